"""Between the small world's tuples and the real `decide`: builds observations, and remembers every answer.

Statuses are numbered. Times and messages are made equal before that, so that worlds that differ in nothing else are
one; every status also goes through JSON once, as it does on the API server.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from meshwright.lifecycle import decide as lifecycle
from meshwright.lifecycle.admitting import next_attempt, next_incarnation
from meshwright.lifecycle.decide import needs_offer
from meshwright.lifecycle.model import (
    CreatePod,
    DeletePod,
    Identity,
    Job,
    Observation,
    Offer,
    Pod,
    PodState,
    Policy,
    RoleSize,
    StorePlan,
)
from meshwright_api.status import Incident, OpenIncident, PodCounts, TrainingJobStatus
from tests.controller.lifecycle.gangs import T0, at

NOW = at(10)
LONG_AGO = T0 - timedelta(seconds=1000)
EVIDENCE_SECONDS = 15
FAULT, STOP, AFTERMATH = at(0), at(1), at(2)
"""A pod that fails of its own ends before anybody is asked to stop, and what follows from that ends after it."""


class PodFacts(NamedTuple):
    """A pod as it truly is."""

    incarnation: int
    rank: int
    generation: int = 0
    """Tells a second pod of the same identity from the first; there should be none."""
    state: str = "W"
    stop: bool = False
    lost: bool = False
    after: bool = False
    """Whether its end was the consequence of another's, or of a request to stop."""

    @property
    def name(self) -> str:
        return f"pod {self.rank} of incarnation {self.incarnation}"


Pods = tuple[PodFacts, ...]


class View(NamedTuple):
    """What a leader knows when it decides. Sets of identities are bits."""

    status: int
    suspend: bool
    generation: int
    pods: Pods = ()
    unseen: int = 0
    again: int = 0
    """Those of `unseen` that are second pods of their identity."""
    stopped: int = 0
    vanished: int = 0
    lost: int = 0
    stored: bool = False
    in_hand: bool = False
    lapsed: bool = False
    confirmed: bool = False
    offered: bool = True
    wanted: bool = False


Outcome = tuple[Any, ...] | None
"""("write", status) | ("act", ops) | ("confirm",) | None."""

_UNKNOWN: Final[Outcome] = ("unknown",)
_STATES: Final = {"W": PodState.WAITING, "R": PodState.RUNNING, "S": PodState.SUCCEEDED, "F": PodState.FAILED}


class Mirror:
    """Asks `decide` about views of the small world."""

    def __init__(self, pods: int, max_restarts: int = 10, force: bool = False) -> None:
        self.size = pods
        self.policies = {
            suspend: Policy(
                roles=(RoleSize("worker", pods),),
                suspend=suspend,
                max_restarts=max_restarts,
                evidence_seconds=EVIDENCE_SECONDS,
                force_delete_on_lost_node=force,
            )
            for suspend in (False, True)
        }
        self.statuses: list[TrainingJobStatus] = []
        self._numbers: dict[TrainingJobStatus, int] = {}
        self._answers: dict[View, Outcome] = {}
        self._pods: dict[PodFacts, Pod] = {}
        self._masks: dict[Pods, tuple[int, int]] = {}
        self.first_status = self.number(TrainingJobStatus())

    def number(self, status: TrainingJobStatus) -> int:
        """The number of a status, made equal in times and messages."""
        alike = _alike(status)
        if alike not in self._numbers:
            text = alike.model_dump_json(by_alias=True, exclude_defaults=True)
            assert TrainingJobStatus.model_validate_json(text) == alike, "a status that JSON changes"
            self._numbers[alike] = len(self.statuses)
            self.statuses.append(alike)
        return self._numbers[alike]

    def bit(self, incarnation: int, index: int) -> int:
        """An identity as a bit."""
        return 1 << ((incarnation - 1) * self.size + index)

    def gang(self, status: int) -> int:
        """The identities of the current incarnation as bits."""
        return ((1 << self.size) - 1) << self.size * max(0, self.statuses[status].incarnation - 1)

    def masks(self, pods: Pods) -> tuple[int, int]:
        """The identities of these pods as bits, and of those that nobody has asked to stop."""
        found = self._masks.get(pods)
        if found is None:
            shown = undisturbed = 0
            for pod in pods:
                bit = self.bit(pod.incarnation, pod.rank)
                shown |= bit
                undisturbed |= 0 if pod.stop else bit
            found = self._masks[pods] = (shown, undisturbed)
        return found

    def waits(self, status: int, suspend: bool, generation: int) -> bool:
        """Whether the gang queue would be asked."""
        return needs_offer(self._observation(View(status, suspend, generation)))

    def look(self, view: View) -> Outcome:
        """What `decide` makes of a view; asked once for each."""
        answer = self._answers.get(view, _UNKNOWN)
        if answer is _UNKNOWN:
            answer = self._answers[view] = self._ask(view)
        return answer

    @property
    def views(self) -> int:
        """How many different views `decide` was asked about."""
        return len(self._answers)

    def uid(self, facts: PodFacts) -> str:
        """The UID of a pod."""
        return f"{facts.incarnation}/{facts.rank}/{facts.generation}"

    def _ask(self, view: View) -> Outcome:
        decision = lifecycle.decide(self._observation(view))
        if decision.confirm_pods:
            return ("confirm",)
        if decision.status is not None:
            assert not decision.actions, "a pass either writes or acts"
            return ("write", self.number(decision.status))
        return ("act", tuple(self._op(action) for action in decision.actions)) if decision.actions else None

    def _op(self, action: Any) -> tuple[Any, ...]:
        match action:
            case StorePlan():
                return ("plan",)
            case CreatePod(identity):
                return ("create", identity.incarnation, identity.index)
            case DeletePod(_, uid, grace):
                incarnation, index, generation = map(int, uid.split("/"))
                return ("delete", incarnation, index, generation, grace)
        raise AssertionError(f"an action that the small world does not have: {action}")

    def _observation(self, view: View) -> Observation:
        status = self.statuses[view.status]
        o = Observation(
            now=NOW + timedelta(seconds=EVIDENCE_SECONDS) if view.lapsed else NOW,
            job=Job("job", "ns", "uid", view.generation, "1", self.policies[view.suspend]),
            status=status,
            pods=self._believed(view),
            pods_confirmed=view.confirmed,
            vanished=self._identities(view.vanished),
            lost_nodes=frozenset(f"node-{i.index}-{i.incarnation}" for i in self._identities(view.lost)),
            plan_stored=status.plan_sha256 if view.stored else "",
            plan_in_hand=status.plan_sha256 if view.in_hand else "",
            undisturbed_since=LONG_AGO,
            progress_due=False,
            preempted=view.wanted,
        )
        if not needs_offer(o):
            return o
        plan = f"plan-{next_incarnation(status)}-{next_attempt(status)}"
        offer = Offer(plan_sha256=plan) if view.offered else Offer(reason="WaitingForCapacity")
        return replace(o, offer=offer)

    def _believed(self, view: View) -> tuple[Pod, ...]:
        """The view, with the leader's own writes that it does not show yet."""
        pods = [
            pod._replace(stop=pod.stop or bool(view.stopped & self.bit(pod.incarnation, pod.rank))) for pod in view.pods
        ]
        created = self._identities(view.unseen & ~self.masks(view.pods)[0])
        for i in created:
            again = view.again & self.bit(i.incarnation, i.index)
            pods.append(PodFacts(i.incarnation, i.index, generation=int(bool(again))))
        return tuple(self._pod(facts) for facts in sorted(pods))

    def _identities(self, mask: int) -> frozenset[Identity]:
        found = set()
        while mask:
            low = mask & -mask
            incarnation, index = divmod(low.bit_length() - 1, self.size)
            found.add(Identity("worker", index, incarnation + 1))
            mask ^= low
        return frozenset(found)

    def _pod(self, facts: PodFacts) -> Pod:
        found = self._pods.get(facts)
        if found is None:
            found = self._pods[facts] = self._build(facts)
        return found

    def _build(self, facts: PodFacts) -> Pod:
        ended = facts.state in "FS"
        by_stop = facts.stop and facts.after
        exit_code = None if not ended else 0 if facts.state == "S" else 143 if by_stop else 1
        return Pod(
            name=facts.name,
            uid=self.uid(facts),
            identity=Identity("worker", facts.rank, facts.incarnation),
            state=_STATES[facts.state],
            node=f"node-{facts.rank}-{facts.incarnation}",
            created_at=T0,
            stop_requested_at=STOP if facts.stop else None,
            finished_at=(AFTERMATH if facts.after else FAULT) if ended else None,
            exit_code=exit_code,
            reason={"F": "Error", "S": "Completed"}.get(facts.state, ""),
        )


def _alike(status: TrainingJobStatus) -> TrainingJobStatus:
    """The status with all times, counts and messages made equal, and only the last incident."""
    return status.model_copy(
        update={
            "incident": _open_alike(status.incident) if status.incident else None,
            "incidents": tuple(_incident_alike(i) for i in status.incidents[-1:]),
            "charged_restarts": (LONG_AGO,) * len(status.charged_restarts),
            "disruptions": (LONG_AGO,) * len(status.disruptions),
            "pods": PodCounts(),
            "ready": "",
            "start_time": status.start_time and T0,
            "admitted_time": status.admitted_time and T0,
            "completion_time": status.completion_time and T0,
            "active_since": status.active_since and T0,
            "active_seconds": 0,
            "conditions": tuple(
                c.model_copy(update={"message": "", "last_transition_time": T0}) for c in status.conditions
            ),
        }
    )


def _open_alike(incident: OpenIncident) -> OpenIncident:
    return incident.model_copy(update={"opened_at": NOW})


def _incident_alike(incident: Incident) -> Incident:
    lost = None if incident.seconds_lost is None else 0
    return incident.model_copy(update={"opened_at": LONG_AGO, "judged_at": LONG_AGO, "seconds_lost": lost})
