"""A whole life of a job in virtual time: a leader that sees everything at once, and a server that keeps books."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from meshwright.lifecycle.admitting import needs_offer, next_attempt, next_incarnation
from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.model import (
    CreatePod,
    Decision,
    DeleteJob,
    DeletePod,
    Identity,
    Observation,
    Offer,
    Pod,
    PodState,
    Policy,
    StorePlan,
)
from meshwright_api.status import Incident, Phase, TrainingJobStatus
from tests.controller.lifecycle.gangs import T0, a_job, a_policy

MAX_ROUNDS = 60


@dataclass
class Life:
    """One job, its pods, and everything that was written or done for it."""

    policy: Policy = field(default_factory=a_policy)
    now: datetime = T0
    generation: int = 1
    status: TrainingJobStatus = field(default_factory=TrainingJobStatus)
    pods: dict[str, Pod] = field(default_factory=dict)
    plan_stored: str = ""
    plan_in_hand: str = ""
    lost_nodes: frozenset[str] = frozenset()
    seen: set[Identity] = field(default_factory=set)
    offer: Offer | None = None
    """What the queue answers; room for everybody if None."""
    preempted: bool = False
    progress_due: bool = True
    refusal: str = ""
    written: list[TrainingJobStatus] = field(default_factory=list)
    created: list[Identity] = field(default_factory=list)
    deleted: list[DeletePod] = field(default_factory=list)
    job_deleted: bool = False
    wake_after: float | None = None

    # --- the leader ----------------------------------------------------------------------------------------------

    def settle(self) -> Life:
        """Lets the leader work until it has nothing to do."""
        for _ in range(MAX_ROUNDS):
            if not self.step():
                return self
        raise AssertionError(f"the leader does not come to rest: {decide(self.observe())}")

    def step(self) -> bool:
        """One decision and everything that it causes; False if it causes nothing."""
        decision = decide(self.observe())
        if decision.confirm_pods:
            decision = decide(replace(self.observe(), pods_confirmed=True))
            assert not decision.confirm_pods
        self.wake_after = decision.wake_after
        self._apply(decision)
        return decision.status is not None or bool(decision.actions)

    def observe(self) -> Observation:
        """What the leader knows: everything."""
        pods = tuple(sorted(self.pods.values(), key=lambda pod: pod.name))
        there = {pod.identity for pod in pods}
        self.seen |= there
        o = Observation(
            now=self.now,
            job=replace(a_job(self.policy), generation=self.generation),
            status=self.status,
            pods=pods,
            vanished=frozenset(self.seen - there),
            lost_nodes=self.lost_nodes,
            plan_stored=self.plan_stored,
            plan_in_hand=self.plan_in_hand,
            undisturbed_since=T0,
            refusal=self.refusal,
            progress_due=self.progress_due,
            preempted=self.preempted,
        )
        return replace(o, offer=self._answer()) if needs_offer(o) else o

    def _answer(self) -> Offer:
        plan = f"plan-{next_incarnation(self.status)}-{next_attempt(self.status)}"
        return self.offer or Offer(plan_sha256=plan)

    def crash(self) -> Life:
        """The leader dies; another starts, which knows what the server knows."""
        self.plan_in_hand, self.seen = "", set()
        return self

    # --- the API server ------------------------------------------------------------------------------------------

    def _apply(self, decision: Decision) -> None:
        assert not (decision.status and decision.actions), "a pass either writes or acts"
        if decision.status is not None:
            assert decision.status != self.status, f"a write that changes nothing: {decision.why}"
            if decision.status.plan_sha256 != self.status.plan_sha256:
                self.plan_in_hand = decision.status.plan_sha256
            text = decision.status.model_dump_json(by_alias=True, exclude_defaults=True)
            self.status = TrainingJobStatus.model_validate_json(text)
            self.written.append(self.status)
        for action in decision.actions:
            self._act(action)

    def _act(self, action: Any) -> None:
        match action:
            case StorePlan(sha):
                assert sha == self.plan_in_hand, "a plan that nobody holds cannot be stored"
                self.plan_stored = sha
            case CreatePod(identity) if not self.refusal:
                self._create(identity)
            case DeletePod(_, uid, grace) if uid in self.pods:
                self.deleted.append(action)
                self._stop(uid, at_once=grace == 0)
            case DeleteJob():
                self.job_deleted = True

    def _create(self, identity: Identity) -> None:
        name = f"job-{identity.role}-{identity.index}-{identity.incarnation}"
        if any(pod.name == name for pod in self.pods.values()):
            return
        self.created.append(identity)
        uid = f"uid-{name}-{self.created.count(identity)}"
        node = f"node-{identity.index}"
        node = f"spare-{identity.index}" if node in self.lost_nodes else node
        self.pods[uid] = Pod(name=name, uid=uid, identity=identity, node=node, created_at=self.now)

    def _stop(self, uid: str, at_once: bool) -> None:
        pod = self.pods[uid]
        if pod.over or at_once:
            del self.pods[uid]
        elif not pod.stopping:
            self.pods[uid] = replace(pod, stop_requested_at=self.now)

    # --- what happens to it --------------------------------------------------------------------------------------

    def pod(self, index: int, role: str = "worker") -> Pod:
        """The pod of the current incarnation with that index."""
        wanted = Identity(role, index, self.status.incarnation)
        return next(pod for pod in self.pods.values() if pod.identity == wanted)

    def becomes(self, index: int, role: str = "worker", **fields: Any) -> Life:
        """Changes the pod."""
        pod = self.pod(index, role)
        self.pods[pod.uid] = replace(pod, **fields)
        return self

    def start(self, *indexes: int) -> Life:
        """Those pods run; all of them if none is named."""
        for pod in tuple(self.pods.values()):
            wanted = not indexes or pod.identity.index in indexes
            if pod.state is PodState.WAITING and wanted and not pod.stopping:
                self.pods[pod.uid] = replace(pod, state=PodState.RUNNING)
        return self

    def fail(self, index: int, code: int = 1, reason: str = "Error", **fields: Any) -> Life:
        """The pod's container ends with that code."""
        ended: dict[str, Any] = {"state": PodState.FAILED, "exit_code": code, "reason": reason, "finished_at": self.now}
        return self.becomes(index, **(ended | fields))

    def succeed(self, index: int, role: str = "worker") -> Life:
        """The pod's container ends with code 0."""
        return self.becomes(
            index, role, state=PodState.SUCCEEDED, exit_code=0, reason="Completed", finished_at=self.now
        )

    def delete(self, index: int) -> Life:
        """Somebody deletes the pod."""
        self._stop(self.pod(index).uid, at_once=False)
        return self

    def stops_end(self) -> Life:
        """Every pod that was asked to stop is gone, unless its node is lost."""
        self.pods = {u: p for u, p in self.pods.items() if not p.stopping or p.node in self.lost_nodes}
        return self

    def lose(self, node: str) -> Life:
        """The node is lost."""
        self.lost_nodes |= {node}
        return self

    def later(self, seconds: float) -> Life:
        """Time passes."""
        self.now += timedelta(seconds=seconds)
        return self

    def change(self, **fields: Any) -> Life:
        """Somebody edits the spec."""
        self.policy, self.generation = replace(self.policy, **fields), self.generation + 1
        return self

    def restart(self) -> Life:
        """From an incident to a gang that runs again."""
        return self.settle().stops_end().settle().start().settle()

    # --- what came of it -----------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase | None:
        """The phase now."""
        return self.status.phase

    @property
    def last(self) -> Incident:
        """The last judged incident."""
        return self.status.incidents[-1]

    def phases(self) -> list[Phase | None]:
        """Every phase that was written, in order, without repetitions."""
        found: list[Phase | None] = []
        for status in self.written:
            if not found or found[-1] is not status.phase:
                found.append(status.phase)
        return found


def a_life(workers: int = 2, **policy: Any) -> Life:
    """A job that was just made."""
    return Life(a_policy(workers, **policy))


def a_running_life(workers: int = 2, **policy: Any) -> Life:
    """A job whose gang has run for ten minutes."""
    life = a_life(workers, **policy).settle().start().settle()
    assert life.phase is Phase.RUNNING
    return life.later(600).settle()
