"""What process nodes cannot do, said before a pod starts."""

from __future__ import annotations

from typing import Final

from devcluster.node.model import Pod
from devcluster.node.status import Verdict
from devcluster.node.volume_model import UnsupportedVolume

NOT_SUPPORTED: Final = "NotSupported"


def unsupported(pod: Pod) -> Verdict | None:
    """Why the pod cannot run; None if it can."""
    problems = []
    if pod.restart_policy != "Never":
        problems.append(f"restartPolicy {pod.restart_policy}: containers are never restarted here, use Never")
    for container in pod.init_containers:
        if container.restart_policy:
            problems.append(f"init container {container.name} has a restartPolicy: sidecars are not supported")
    for container in (*pod.init_containers, *pod.containers):
        if not container.command:
            problems.append(f"container {container.name} has no command, and there is no image to take one from")
    for name, volume in pod.volumes.items():
        if isinstance(volume, UnsupportedVolume):
            problems.append(f"volume {name} is of kind {volume.kind}")
    return Verdict(NOT_SUPPORTED, "process nodes cannot run it: " + "; ".join(problems)) if problems else None


def ignored(pod: Pod) -> str:
    """The fields that are set and have no effect, as a sentence; empty if there are none."""
    fields = [f"spec.{name}" for name in pod.not_honoured]
    fields += [f"{one.name}.{name}" for one in (*pod.init_containers, *pod.containers) for name in one.not_honoured]
    fields += [f"{one.name}.resources.limits" for one in pod.containers if set(one.limits) & {"cpu", "memory"}]
    return f"process nodes do not honour: {', '.join(fields)}" if fields else ""
