"""What the caches keep of a pod or node: a small value instead of some kilobytes of JSON.

Total on purpose: whatever a server, a proxy or a newer version sends, the answer is a value and never an exception,
since one odd object must not blind the operator for all others. Strings that repeat across a cluster are interned.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from meshwright.lifecycle.model import Identity, Pod, PodState
from meshwright.placement.supply.capacity import PodUse
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.requests import ONE_POD
from meshwright.placement.supply.resources import Resources
from meshwright_api import names
from meshwright_api.reserved import TRAINER
from meshwright_api.status import MAX_LAST_WORDS

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod in the cache: what it holds of its node and, if a job owns it, what decisions need."""

    use: PodUse | None
    """None when it holds nothing: not bound, or ended."""
    job_uid: str = ""
    """UID of the TrainingJob that controls it; empty for a foreign pod."""
    pod: Pod | None = None
    address: str = ""
    """Its IP address, if a job owns it and it has one."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node in the cache."""

    capacity: NodeCapacity
    not_ready_since: datetime | None = None
    """When it stopped being Ready, by the control plane's clock; None while it is Ready."""

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.capacity.name


def project_pod(item: Mapping[str, Any]) -> PodRecord:
    """The record of a Pod object."""
    metadata, spec, status = (_map(item.get(part)) for part in ("metadata", "spec", "status"))
    use = _use(item, _text(spec.get("nodeName")), _text(status.get("phase")))
    owner = _controller(metadata)
    job, uid = _text(owner.get("name")), _text(owner.get("uid"))
    identity = _identity(_text(metadata.get("name")), job, uid)
    if identity is None:
        return PodRecord(use)
    uid = sys.intern(uid)
    return PodRecord(use, uid, _gang_pod(identity, metadata, spec, status), _text(status.get("podIP")))


def created_pod(item: Mapping[str, Any], identity: Identity) -> Pod:
    """A pod that was created just now, from its metadata: bound nowhere, nothing known of its containers."""
    metadata = _map(item.get("metadata"))
    return Pod(
        _text(metadata.get("name")),
        _text(metadata.get("uid")),
        identity,
        created_at=_time(metadata.get("creationTimestamp")),
    )


def project_node(item: Mapping[str, Any]) -> NodeRecord:
    """The record of a Node object."""
    metadata = _map(item.get("metadata"))
    try:
        capacity = NodeCapacity.parse(item)
        labels = {sys.intern(key): sys.intern(value) for key, value in capacity.labels.items()}
        capacity = replace(capacity, name=sys.intern(capacity.name), labels=labels)
    except Exception:
        # A node that cannot be understood takes no gang, but it exists, and pods on it are not lost.
        capacity = NodeCapacity(_text(metadata.get("name")), ready=False)
    since = None
    if not capacity.ready:
        ready = _condition(_map(item.get("status")), "Ready")
        since = _time(ready.get("lastTransitionTime")) or _time(metadata.get("creationTimestamp"))
        since = since or datetime.fromtimestamp(0, UTC)
    return NodeRecord(capacity, since)


def _use(item: Mapping[str, Any], node: str, phase: str) -> PodUse | None:
    if not node or phase in ("Succeeded", "Failed"):
        return None
    try:
        use = PodUse.parse(item)
    except Exception:
        return PodUse(sys.intern(node), ONE_POD)
    return use and replace(use, node=sys.intern(use.node), resources=_shared(use.resources))


@lru_cache(maxsize=4096)
def _shared(resources: Resources) -> Resources:
    """One object for equal amounts: most pods of a cluster ask for one of a few sizes."""
    return resources


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner reference by which a TrainingJob controls the object; empty if none does."""
    for owner in map(_map, _list(metadata.get("ownerReferences"))):
        group, _, _ = _text(owner.get("apiVersion")).partition("/")
        if owner.get("controller") is True and owner.get("kind") == names.KIND and group == names.GROUP:
            return owner
    return {}


def _identity(name: str, job: str, uid: str) -> Identity | None:
    """Role, index and incarnation, from the pod's name: unlike labels, nobody can change it afterwards."""
    place = names.parse_pod_name(name, job, uid) if uid else None
    return Identity(sys.intern(place[0]), *place[1:]) if place else None


def _gang_pod(
    identity: Identity, metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]
) -> Pod:
    judged = _judged(metadata, spec, status)
    state = _map(judged.get("state"))
    ended = _map(state.get("terminated"))
    disruption = _condition(status, "DisruptionTarget")
    disrupted = sys.intern(_text(disruption.get("reason")) if disruption.get("status") == "True" else "")
    verdict = _state(status, state, bool(disrupted))
    failure = ended or _failed_init(status) if verdict is PodState.FAILED else ended
    waits = verdict is PodState.WAITING
    return Pod(
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        identity=identity,
        state=verdict,
        node=sys.intern(_text(spec.get("nodeName"))),
        created_at=_time(metadata.get("creationTimestamp")),
        stop_requested_at=_stop_requested(metadata),
        finished_at=_time(ended.get("finishedAt")),
        exit_code=_whole(ended.get("exitCode")),
        reason=sys.intern(_text(status.get("reason")) or _text(failure.get("reason"))),
        disruption=disrupted,
        waiting=sys.intern(_waiting(status, state) if waits else ""),
        # Only the end is kept, and there stands what the pod as a whole ended of.
        last_words=_last_words(failure.get("message"), *_why_waiting(status, state, waits), status.get("message")),
        image_id=sys.intern(_text(judged.get("imageID"))),
        pinned=sys.intern(_pinned(spec)),
        lingers=bool(ended) and _others_run(status, judged),
    )


def _judged(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of the container whose end is the pod's: the one that is noted, the only one, or `trainer`.

    Others may have been injected beside it, before it or after it.
    """
    containers = [_text(_map(c).get("name")) for c in _list(spec.get("containers"))]
    noted = _text(_map(metadata.get("annotations")).get(names.ANNOTATION_CONTAINER))
    unsaid = containers[0] if len(containers) == 1 else TRAINER
    wanted = noted if noted in containers else unsaid
    statuses = map(_map, _list(status.get("containerStatuses")))
    return next((s for s in statuses if s.get("name") == wanted), {})


def _others_run(status: Mapping[str, Any], judged: Mapping[str, Any]) -> bool:
    """Whether a container other than the judged one runs. Native sidecars do not count: the kubelet ends them."""
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    statuses = map(_map, _list(status.get("containerStatuses")))
    return any("running" in _map(s.get("state")) for s in statuses if s.get("name") != judged.get("name"))


def _state(status: Mapping[str, Any], state: Mapping[str, Any], disrupted: bool) -> PodState:
    """How far the pod is: by its judged container where that says something, else by the kubelet's word for the pod.

    A script that saves and exits with 0 on SIGTERM has not finished its training: neither where the pod was to be
    disrupted, nor where the kubelet failed it as a whole (a shutdown, an eviction) without anybody deleting it.
    """
    phase, ended = _text(status.get("phase")), _map(state.get("terminated"))
    if ended:
        told_to_stop = disrupted or (phase == "Failed" and _text(status.get("reason")))
        by_itself = _whole(ended.get("exitCode")) == 0 and not told_to_stop
        return PodState.SUCCEEDED if by_itself else PodState.FAILED
    if phase == "Failed":
        return PodState.FAILED
    if phase == "Succeeded":
        return PodState.SUCCEEDED
    return PodState.RUNNING if isinstance(state.get("running"), dict) else PodState.WAITING


def _failed_init(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How an init container failed, when the judged one never began."""
    for container in map(_map, _list(status.get("initContainerStatuses"))):
        ended = _map(_map(container.get("state")).get("terminated"))
        if ended and _whole(ended.get("exitCode")) != 0:
            return ended
    return {}


def _waiting(status: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Why nothing runs yet: an init container's word, the judged one's, or the scheduler's."""
    for container in map(_map, _list(status.get("initContainerStatuses"))):
        reason = _text(_map(_map(container.get("state")).get("waiting")).get("reason"))
        if reason and reason != "PodInitializing":
            return reason
    scheduled = _condition(status, "PodScheduled")
    unscheduled = _text(scheduled.get("reason")) if scheduled.get("status") == "False" else ""
    return _text(_map(state.get("waiting")).get("reason")) or unscheduled


def _why_waiting(status: Mapping[str, Any], state: Mapping[str, Any], waits: bool) -> tuple[object, ...]:
    """What is said in full of a pod that waits: by the scheduler, of its init containers, of the judged one."""
    if not waits:
        return ()
    scheduled = _condition(status, "PodScheduled")
    inits = (_map(_map(c).get("state")) for c in _list(status.get("initContainerStatuses")))
    return (
        scheduled.get("message") if scheduled.get("status") == "False" else None,
        *(_map(init.get("waiting")).get("message") for init in inits),
        _map(state.get("waiting")).get("message"),
    )


def _pinned(spec: Mapping[str, Any]) -> str:
    """The one node that the pod may be bound to, if we pinned it: every term of its node affinity names that node."""
    required = _map(_map(_map(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    for term in map(_map, _list(required.get("nodeSelectorTerms"))):
        for field in map(_map, _list(term.get("matchFields"))):
            values = _list(field.get("values"))
            if field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1:
                return _text(values[0])
    return ""


def _stop_requested(metadata: Mapping[str, Any]) -> datetime | None:
    """When deletion was asked for: the API server stores the moment at which the grace period will be over."""
    due = _time(metadata.get("deletionTimestamp"))
    grace = _whole(metadata.get("deletionGracePeriodSeconds")) or 0
    try:
        return due - timedelta(seconds=grace) if due else None
    except OverflowError:
        return due


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = map(_map, _list(status.get("conditions")))
    return next((c for c in conditions if c.get("type") == kind), {})


def _last_words(*said: object) -> str:
    text = "\n".join(filter(None, map(_text, said)))
    return text.encode(errors="replace")[-MAX_LAST_WORDS:].decode(errors="ignore")


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        return moment.astimezone(UTC) if moment and moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
