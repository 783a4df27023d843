"""Words in a pod template that are Meshwright's to set."""

from __future__ import annotations

from typing import Final

from meshwright_api.names import GROUP

ENV: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "LOCAL_WORLD_SIZE")
"""Variables that say where a process stands in the job."""
ENV_PREFIXES: Final = ("MASTER_", "PET_", "MESHWRIGHT_")
"""Beginnings of variables for the rendezvous, for torchrun and for Meshwright's own."""
LABEL_PREFIX: Final = f"{GROUP}/"
"""Beginning of labels and annotations that identify pods."""
NAME_PREFIX: Final = "meshwright"
"""Beginning of names of containers and volumes that Meshwright adds."""
MOUNT: Final = "/etc/meshwright"
"""Folder in every container with the launch plan."""
OWN_FOLDER: Final = "/meshwright"
"""Folder in the trained container with the agent and with code from a ConfigMap.

Not below the launch plan's: that is read-only, and a mount point could not be made in it."""
AGENT_FOLDER: Final = f"{OWN_FOLDER}/agent"
"""Where the agent is put by its init container and found by the trained one."""
CODE_MOUNT: Final = f"{OWN_FOLDER}/code"
"""Where `trainer.code.configMap` is mounted."""
TOKEN_FOLDER: Final = "/var/run/secrets/meshwright"
"""Where the agent finds the token by which the operator knows its pod."""
MOUNTS: Final = (MOUNT, OWN_FOLDER, TOKEN_FOLDER)
"""Folders that nobody else may cover."""
POD_FIELDS: Final = {
    "nodeName": "Meshwright places pods; use nodeSelector or affinity to narrow where",
    "hostname": "Meshwright sets it so that ranks find each other",
    "subdomain": "Meshwright sets it so that ranks find each other",
    "ephemeralContainers": "they cannot be in a template; use kubectl debug on a running pod",
}
"""Fields of a pod spec that a template must leave out, and what to do instead."""
GPU: Final = "nvidia.com/gpu"
"""The resource that gpusPerPod counts."""
TRAINER: Final = "trainer"
"""Name of the container whose exit is judged, where there are several."""


def is_env(name: str) -> bool:
    """Whether an environment variable is Meshwright's to set."""
    return name in ENV or name.startswith(ENV_PREFIXES)


def is_mount(path: str) -> bool:
    """Whether a mount path would cover one of Meshwright's folders."""
    return any(path.rstrip("/") == mount or path.startswith(f"{mount}/") for mount in MOUNTS)
