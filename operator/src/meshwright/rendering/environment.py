"""What plain scripts and torchrun read to find each other.

Ours come before the template's own variables: Kubernetes expands `$(RANK)` in a variable only if RANK was defined
earlier in the list (in `command` and `args` the order does not matter).
"""

from __future__ import annotations

from typing import Any

from meshwright.rendering.perpod import PerPod
from meshwright.rendering.world import World
from meshwright_api.reserved import MOUNT
from meshwright_api.resolve import ResolvedRole

PLAN_FILE = "plan.json"


def environment(world: World, role: ResolvedRole) -> list[dict[str, Any]]:
    """Variables of every container in the role's pods."""
    values = {**_standing(world, role), **_meeting(world), **_torchrun(world, role), **_identity(world, role)}
    return [{"name": name, "value": value} for name, value in values.items()]


def _standing(world: World, role: ResolvedRole) -> dict[str, str | PerPod]:
    # With several processes in a pod only their launcher knows which is which; RANK would be wrong for all but one.
    # The agent is such a launcher, whatever their number.
    alone: dict[str, str | PerPod] = {"RANK": PerPod("{rank}"), "LOCAL_RANK": "0"}
    return {
        **(alone if role.processes_per_pod == 1 and not world.agent else {}),
        "WORLD_SIZE": str(world.size),
        "LOCAL_WORLD_SIZE": str(role.processes_per_pod),
        "NODE_RANK": PerPod("{pod}"),
    }


def _meeting(world: World) -> dict[str, str | PerPod]:
    meeting = world.rendezvous()
    return {"MASTER_ADDR": meeting.host, "MASTER_PORT": str(meeting.port)}


def _torchrun(world: World, role: ResolvedRole) -> dict[str, str | PerPod]:
    """Defaults of torchrun's options.

    The static rendezvous keeps our numbering; c10d sorts nodes by the text of their names (10 before 2). Torchrun must
    not restart workers by itself: the others would wait for them in a broken collective, and nobody would count it.
    """
    meeting = world.rendezvous()
    return {
        "PET_NNODES": str(world.pods),
        "PET_NPROC_PER_NODE": str(role.processes_per_pod),
        "PET_NODE_RANK": PerPod("{pod}"),
        "PET_MASTER_ADDR": meeting.host,
        "PET_MASTER_PORT": str(meeting.port),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": f"{meeting.host}:{meeting.port}",
        "PET_RDZV_ID": meeting.id,
        "PET_MAX_RESTARTS": "0",
    }


def _identity(world: World, role: ResolvedRole) -> dict[str, str | PerPod]:
    # No attempt: a pod may outlive one, and its environment could not follow.
    return {
        "MESHWRIGHT_JOB": world.metadata.name,
        "MESHWRIGHT_NAMESPACE": world.metadata.namespace,
        "MESHWRIGHT_JOB_UID": world.metadata.uid,
        "MESHWRIGHT_ROLE": role.name,
        "MESHWRIGHT_INDEX": PerPod("{index}"),
        "MESHWRIGHT_INCARNATION": str(world.incarnation),
        "MESHWRIGHT_PLAN": f"{MOUNT}/{PLAN_FILE}",
    }
