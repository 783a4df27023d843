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
    """Whether a mount path would cover the launch plan."""
    return path.rstrip("/") == MOUNT or path.startswith(f"{MOUNT}/")
