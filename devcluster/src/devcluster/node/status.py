"""The status of a pod, built from the states of its containers exactly as a kubelet builds it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from devcluster.node.model import Container, Pod

_MESSAGES_OF_A_POD: Final = 12 * 1024
"""Characters of all termination messages of a pod together; a container has its equal share, and the start of more."""

COMPLETED: Final = "Completed"
ERROR: Final = "Error"
START_ERROR: Final = "StartError"
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
CREATING: Final = "ContainerCreating"
INITIALIZING: Final = "PodInitializing"
FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Waiting:
    """Not started yet."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """Started."""

    started_at: str
    container_id: str = ""


@dataclass(frozen=True)
class Terminated:
    """Ended, or known to be lost."""

    exit_code: int
    reason: str
    message: str = ""
    started_at: str = ""
    finished_at: str = ""
    container_id: str = ""


ContainerState = Waiting | Running | Terminated


@dataclass(frozen=True)
class Verdict:
    """Why the pod as a whole has failed, whatever its containers did."""

    reason: str
    message: str


@dataclass(frozen=True)
class PodState:
    """All that a status is made from.

    Attributes:
        states: By container name, init containers too. A container that is not named has not been looked at.
        sandbox: Whether the pod has its address and folders now.
        over: The pod is being torn down and no container runs any more.
    """

    states: Mapping[str, ContainerState] = field(default_factory=dict)
    start_time: str = ""
    pod_ip: str = ""
    host_ip: str = ""
    sandbox: bool = False
    over: bool = False
    verdict: Verdict | None = None


def initialized(pod: Pod, state: PodState) -> bool:
    """Whether every init container has succeeded, or a main container got its turn."""
    if any(isinstance(_of(state, one), Running | Terminated) for one in pod.containers):
        return True
    return not _incomplete(pod, state)


def phase(pod: Pod, state: PodState) -> str:
    """The phase; containers are never restarted here, so a failure is final."""
    if _verdict(state):
        return "Failed"
    init = [_of(state, one) for one in pod.init_containers]
    main = [_of(state, one) for one in pod.containers]
    if any(isinstance(one, Terminated) and one.exit_code for one in init):
        return "Failed"
    if all(isinstance(one, Terminated) for one in main):
        failed = any(isinstance(one, Terminated) and one.exit_code for one in main)
        return "Failed" if failed else "Succeeded"
    if state.over:  # deleted before all of it could run
        return "Failed"
    if any(isinstance(one, Waiting) for one in main):
        return "Pending"
    return "Running"


def status_patch(pod: Pod, state: PodState, now: str, previous: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The status to send.

    Args:
        now: For conditions that have changed.
        previous: The conditions as last sent, by type; unchanged ones keep their transition time.
    """
    result: dict[str, Any] = {"phase": phase(pod, state), "observedGeneration": pod.generation}
    if verdict := _verdict(state):
        result |= {"reason": verdict.reason, "message": verdict.message}
    if state.start_time:
        result["startTime"] = state.start_time
    if state.host_ip:
        result |= {"hostIP": state.host_ip, "hostIPs": [{"ip": state.host_ip}]}
    if state.pod_ip:
        result |= {"podIP": state.pod_ip, "podIPs": [{"ip": state.pod_ip}]}
    result["conditions"] = [_dated(one, now, previous) for one in _conditions(pod, state)]
    if state.states:
        result["containerStatuses"] = [
            _container_status(pod, one, state) for one in sorted(pod.containers, key=lambda one: one.name)
        ]
        if pod.init_containers:
            result["initContainerStatuses"] = [_container_status(pod, one, state) for one in pod.init_containers]
    return result


def rejected(pod: Pod, verdict: Verdict, now: str) -> dict[str, Any]:
    """The status of a pod that the node does not take."""
    return {
        "phase": "Failed",
        "reason": verdict.reason,
        "message": f"Pod was rejected: {verdict.message}",
        "startTime": now,
        "observedGeneration": pod.generation,
    }


def image_id(image: str) -> str:
    """A stable digest made up from the name, since no image is ever pulled."""
    name = image.partition("@")[0]
    return f"{name}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _verdict(state: PodState) -> Verdict | None:
    """The verdict, once no container runs any more: until then a phase may not be final."""
    running = any(isinstance(one, Running) for one in state.states.values())
    return None if running else state.verdict


def _of(state: PodState, container: Container) -> ContainerState:
    return state.states.get(container.name, Waiting(CREATING))


def _incomplete(pod: Pod, state: PodState) -> list[str]:
    return [one.name for one in pod.init_containers if not _succeeded(_of(state, one))]


def _succeeded(state: ContainerState) -> bool:
    return isinstance(state, Terminated) and state.exit_code == 0


def _conditions(pod: Pod, state: PodState) -> Sequence[dict[str, str]]:
    is_phase = phase(pod, state)
    unready = [one.name for one in pod.containers if not isinstance(_of(state, one), Running)]
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(is_phase)
    if done:
        ready = _condition(False, done)
    elif unready:
        ready = _condition(False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = _condition(True)
    if is_phase == "Succeeded":
        start = _condition(True, "PodCompleted")
    elif initialized(pod, state):
        start = _condition(True)
    else:
        names = " ".join(_incomplete(pod, state))
        start = _condition(False, "ContainersNotInitialized", f"containers with incomplete status: [{names}]")
    return (
        {"type": "PodReadyToStartContainers", **_condition(state.sandbox and not done)},
        {"type": "Initialized", **start},
        {"type": "Ready", **ready},
        {"type": "ContainersReady", **ready},
        {"type": "PodScheduled", **_condition(True)},
    )


def _condition(holds: bool, reason: str = "", message: str = "") -> dict[str, str]:
    texts = {"reason": reason, "message": message}
    return {"status": "True" if holds else "False", **{key: value for key, value in texts.items() if value}}


def _dated(condition: dict[str, str], now: str, previous: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    before = previous.get(condition["type"])
    same = before is not None and before.get("status") == condition["status"]
    time = before["lastTransitionTime"] if before and same else now
    # An explicit null clears what an earlier patch has set: conditions are merged by type.
    return {"reason": None, "message": None, **condition, "lastTransitionTime": time, "lastProbeTime": None}


def _container_status(pod: Pod, container: Container, state: PodState) -> dict[str, Any]:
    its = _of(state, container)
    is_init = container in pod.init_containers
    started = isinstance(its, Running)
    return {
        "name": container.name,
        "image": container.image,
        "imageID": image_id(container.image) if not isinstance(its, Waiting) else "",
        "restartCount": 0,
        "ready": _succeeded(its) if is_init else started,
        "started": started,
        "state": _state(its, _MESSAGES_OF_A_POD // len(pod.containers + pod.init_containers)),
        "lastState": {},
        **({"containerID": its.container_id} if not isinstance(its, Waiting) and its.container_id else {}),
    }


def _state(state: ContainerState, longest_message: int) -> dict[str, Any]:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        case Running(started_at):
            return {"running": {"startedAt": started_at}}
        case Terminated():
            texts = {
                "reason": state.reason,
                "message": state.message[:longest_message],
                "startedAt": state.started_at,
                "finishedAt": state.finished_at,
                "containerID": state.container_id,
            }
            return {"terminated": {"exitCode": state.exit_code, **{k: v for k, v in texts.items() if v}}}
