"""Which processes a pod runs, and what each finds in its environment. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from meshwright_agent.plan import Place, Plan

SOCKET = "MESHWRIGHT_AGENT_SOCKET"
"""Variable with the path of the socket that takes progress."""

_LAUNCHERS = {"torchrun", "torchrun-script", "deepspeed"}
_MODULES = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
}
_SHELLS = {"sh", "bash", "dash", "zsh", "ash"}
_PYTHON = re.compile(r"python[0-9.]*")


@dataclass(frozen=True)
class Launch:
    """One process to start."""

    local_rank: int
    rank: int
    """Rank of the process; of its first process, if it is a launcher that starts the pod's processes itself."""
    command: tuple[str, ...]
    environment: Mapping[str, str]


def launches(
    plan: Plan, place: Place, command: Sequence[str], environment: Mapping[str, str], socket: str
) -> tuple[Launch, ...]:
    """The processes of a pod.

    Args:
        plan: The attempt.
        place: The pod's place in it.
        command: What the user's container runs.
        environment: The container's variables.
        socket: Path of the progress socket; empty if there is none.
    """
    base = {**environment, **({SOCKET: socket} if socket else {})}
    if is_launcher(command):
        # It numbers its processes itself; a RANK from outside would be every one's.
        alone = {name: value for name, value in base.items() if name not in ("RANK", "LOCAL_RANK")}
        return (Launch(0, place.first_rank, tuple(command), alone),)
    count = place.role.processes_per_pod
    return tuple(
        Launch(local, place.first_rank + local, tuple(command), {**base, **_standing(plan, place, base, local)})
        for local in range(count)
    )


def _standing(plan: Plan, place: Place, base: Mapping[str, str], local_rank: int) -> dict[str, str]:
    """What torch's `env://` and scripts written for torchrun read."""
    role = place.role
    rank = place.first_rank + local_rank
    values = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": plan.world_size,
        "LOCAL_WORLD_SIZE": role.processes_per_pod,
        "NODE_RANK": place.node_rank,
        "GROUP_RANK": place.node_rank,
        "GROUP_WORLD_SIZE": plan.pods,
        "ROLE_NAME": role.name,
        "ROLE_RANK": rank - role.first_rank,
        "ROLE_WORLD_SIZE": role.replicas * role.processes_per_pod,
        "MASTER_ADDR": plan.rendezvous_host,
        "MASTER_PORT": plan.rendezvous_port,
        "TORCHELASTIC_RUN_ID": plan.rendezvous_id,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    if role.processes_per_pod > 1 and "OMP_NUM_THREADS" not in base:
        # As torchrun does: several processes with a thread per core each would fight for the cores.
        values["OMP_NUM_THREADS"] = 1
    return {name: str(value) for name, value in values.items()}


def is_launcher(command: Sequence[str]) -> bool:
    """Whether the command starts the pod's processes itself: torchrun, `accelerate launch`, deepspeed.

    It is looked for behind `env A=B`, `numactl ...` and the like too, and in the text of a `bash -c`. What follows a
    script or a Python module belongs to that, so `train.py --launcher torchrun` is none.
    """
    words = list(command)
    for position, word in enumerate(words):
        name, rest = PurePosixPath(word).name, words[position + 1 :]
        if name in _LAUNCHERS or (name == "accelerate" and rest[:1] == ["launch"]):
            return True
        if name in _SHELLS:
            return _shell_launches(rest)
        if _PYTHON.fullmatch(name):
            return _python_launches(rest)
        if name.endswith((".py", ".sh")):
            return False
    return False


def _python_launches(arguments: Sequence[str]) -> bool:
    for position, word in enumerate(arguments):
        if word == "-m":
            return arguments[position + 1 : position + 2] != [] and arguments[position + 1] in _MODULES
        if word == "-c":
            return False
        if not word.startswith("-"):
            # `python /opt/venv/bin/torchrun` and scripts; a value of -W or -X is neither.
            if PurePosixPath(word).name in _LAUNCHERS:
                return True
            if word.endswith(".py"):
                return False
    return False


def _shell_launches(arguments: Sequence[str]) -> bool:
    """Whether any command in the text of a `-c` is a launcher."""
    for position, word in enumerate(arguments[:-1]):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            text = arguments[position + 1]
            return any(is_launcher(_words(part)) for part in re.split(r"[;&|\n]+", text))
    return False


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # A quote that spans what the text was split at.
        return text.split()
