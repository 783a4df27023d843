"""A small world for `decide`: an API server, two leaders of which one holds the lease, and an environment.

Everything is a value: a `World` is a tuple, a step leads from one to the next, and nothing is random. Exhaustive
exploration and random histories are built on the same steps.

What is modelled. Job status with its resource version (a write that was decided from an older version is refused); the
plan map; pods by identity, each waiting, running, failed, succeeded, stopping or gone; a leader's view of the pods,
which lags behind by some events and then advances by one event or all at once; its view of the job, which lags when
somebody changes the spec; its memory (plan in hand, pods seen, its own writes that the view does not show yet); its
decision's actions, carried out one by one. A leader may die between any two of these and starts again without memory,
with fresh views. The lease moves as a step; the deposed leader's remaining actions are refused, except that, with
`late`, one of them may still be on its way and reach the server at any later time.

What is left out. Time passes only as "the time for evidence is over"; windows, deadlines and refunds have tests of
their own. A process that begins to lead reads the job itself before it acts, as `reconcile` does: without that, it
would create pods of an incarnation that is over (`fresh_start=False` shows it).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.lifecycle.phases import PLANNED
from meshwright_api.status import Phase
from tests.controller.lifecycle.mirror import Mirror, Outcome, PodFacts, Pods, View
from tests.controller.lifecycle.promises import Ledger, Violation, check_create, check_stop, check_write, disturbed
from tests.controller.lifecycle.world import Late, Leader, Op, Setting, Standby, Step, World


class Simulation:
    """The steps of a world under one setting."""

    def __init__(self, setting: Setting, mirror: Mirror | None = None) -> None:
        """With a `mirror` of the same gang and policy, answers that are known from other settings are used again."""
        self.setting = setting
        self.mirror = mirror or Mirror(setting.pods, setting.max_restarts, setting.force)

    def start(self) -> World:
        """A job that was just made, and two processes that know of nothing."""
        return World(
            status=self.mirror.first_status,
            suspend=False,
            generation=1,
            stored=False,
            lapsed=False,
            tail=((),),
            created=0,
            again=0,
            robbed=0,
            lost=0,
            leader=Leader(),
            standby=Standby(),
            late=None,
            ledger=Ledger(),
            left=self.setting.budgets,
        )

    def steps(self, w: World) -> Iterator[Step]:
        """Everything that may happen next."""
        yield from self.leader_steps(w)
        yield from self._pod_steps(w)
        yield from self._other_steps(w)

    # --- the leading process -------------------------------------------------------------------------------------

    def leader_goes_on(self, w: World) -> Step | None:
        """The leader's next step when it hears of everything, in order, before it decides."""
        if w.leader.todo:
            return self._next_action(w)
        *_, current = self._views(w)
        return self.decide(w, current)

    def environment_goes_on(self, w: World) -> Step | None:
        """What happens next of itself: pods stop, pods start, time passes. None if nothing does."""
        for pod in w.tail[-1]:
            if pod.stop:
                return f"{pod.name} is gone", self._becomes(w, pod, None)
        for pod in w.tail[-1]:
            if pod.state == "W" and not pod.lost:
                return f"{pod.name} starts", self._becomes(w, pod, pod._replace(state="R"))
        if self.mirror.statuses[w.status].incident and not w.lapsed:
            return "time for evidence is over", w._replace(lapsed=True)
        return None

    def leader_steps(self, w: World) -> Iterator[Step]:
        """What the leading process may do next."""
        if w.leader.todo:
            yield self._next_action(w)
            return
        for leader in self._views(w):
            if (step := self.decide(w, leader)) is not None:
                yield step
            if w.left.refusals and not w.wanted and self.mirror.waits(*(leader.job or w[:3])):
                refused = w._replace(left=w.left._replace(refusals=w.left.refusals - 1))
                if (step := self.decide(refused, leader, offered=False)) is not None:
                    yield step

    def _next_action(self, w: World) -> Step:
        op, *rest = w.leader.todo
        return f"leader: {op}", self.carry_out(w, op, w.leader._replace(todo=tuple(rest)))

    def _views(self, w: World) -> Iterator[Leader]:
        """What the leader may know when it decides: each state that its view may have come to by then.

        That it hears of something is no step of its own, since nobody can tell before it decides. The last view is the
        current one, reached event by event.
        """
        leader, newest = w.leader, len(w.tail) - 1
        jobs = (leader,) if leader.job is None else (leader, leader._replace(job=None))
        for view in jobs:
            if newest > view.at + 1:
                yield self._advance(view, w.tail, newest, relist=True)
            yield view
            for to in range(view.at + 1, newest + 1):
                view = self._advance(view, w.tail, to)
                yield view

    def _advance(self, leader: Leader, tail: tuple[Pods, ...], to: int, *, relist: bool = False) -> Leader:
        """The leader after the next event, or after a list that skips what came and went in between."""
        shown, undisturbed = self.mirror.masks(tail[to])
        unseen = 0 if relist else leader.unseen & ~shown
        stopped = leader.stopped & undisturbed
        return Leader(leader.job, to, leader.seen | shown, unseen, stopped, leader.in_hand, leader.todo)

    def decide(self, w: World, leader: Leader, *, offered: bool = True) -> Step | None:
        """The leader's decision in this view and the first thing that it does; None if it has nothing to do."""
        leader, outcome = self._outcome(w, leader, offered=offered)
        if outcome is None:
            return None
        if outcome[0] == "write":
            if leader.job is not None and self.setting.versions:
                return "leader: conflict", w._replace(leader=leader._replace(job=None))
            return "leader: writes", self.write(w, outcome[1], leader)
        op, *rest = outcome[1]
        return f"leader: decides {op}", self.carry_out(w, op, leader._replace(todo=tuple(rest)))

    def _outcome(self, w: World, leader: Leader, *, offered: bool = True) -> tuple[Leader, Outcome]:
        outcome = self._look(w, leader, False, offered)
        if outcome == ("confirm",):
            leader = self._advance(leader, w.tail, len(w.tail) - 1, relist=True)
            outcome = self._look(w, leader, True, offered)
            if outcome == ("confirm",):
                raise Violation("decisions come to rest", "a confirmed view is to be confirmed again")
        return leader, outcome

    def _look(self, w: World, leader: Leader, confirmed: bool, offered: bool) -> Outcome:
        view, job = w.tail[leader.at], leader.job or w[:3]
        return self.mirror.look(
            View(
                *job,
                view,
                leader.unseen,
                leader.unseen & w.again,
                leader.stopped,
                leader.seen & self.mirror.gang(job[0]) & ~self.mirror.masks(view)[0] & ~leader.unseen,
                w.lost,
                w.stored,
                leader.in_hand,
                w.lapsed,
                confirmed,
                offered and not w.wanted,
                w.wanted,
            )
        )

    # --- the API server ------------------------------------------------------------------------------------------

    def write(self, w: World, status: int, author: Leader | None) -> World:
        """A status write that reached the server and that was decided from the current version (or nobody looked).

        Args:
            author: The leader as it is when it gets the answer; None if the write was a deposed leader's.
        """
        old, new = self.mirror.statuses[w.status], self.mirror.statuses[status]
        ledger = check_write(old, new, w.ledger, w.tail[-1], late=self.setting.late, size=self.setting.pods)
        planned = new.incarnation != old.incarnation or new.plan_sha256 not in ("", old.plan_sha256)
        leader = author._replace(job=None) if author else w.leader._replace(job=w.leader.job or w[:3])
        if planned:
            leader = leader._replace(in_hand=author is not None)
        return self._trim(
            self._new_version(w)._replace(
                status=status,
                lapsed=w.lapsed and new.incident is not None,
                stored=w.stored and not planned,
                ledger=ledger,
                leader=leader,
                wanted=w.wanted and new.phase in (*PLANNED, Phase.RESTARTING) and not planned,
            )
        )

    def _new_version(self, w: World) -> World:
        """The job has a new version: a write that was decided from the old one will be refused."""
        late = None if w.late and w.late[0] == "write" and self.setting.versions else w.late
        standby = w.standby
        if not self.setting.fresh_start:
            standby = standby._replace(jobs=(*standby.jobs, w[:3]))
        return w if late is w.late and standby is w.standby else w._replace(late=late, standby=standby)

    def carry_out(self, w: World, op: Op, author: Leader | None) -> World:
        """An action that reached the server."""
        if op[0] == "plan":
            return self._trim(w._replace(stored=True, leader=author or w.leader))
        if op[0] == "create":
            return self._create(w, op[1], op[2], author)
        return self._delete(w, op, author)

    def _create(self, w: World, incarnation: int, index: int, author: Leader | None) -> World:
        bit = self.mirror.bit(incarnation, index)
        if self.mirror.masks(w.tail[-1])[0] & bit:
            return self._trim(w._replace(leader=author)) if author else w
        knew = author is not None and bool(author.seen & bit)
        check_create(
            self.mirror.statuses[w.status],
            incarnation,
            w.tail[-1],
            again=bool(w.created & bit),
            forgivable=bool(w.robbed & bit) and not knew,
            late=self.setting.late,
        )
        again = bool(w.created & bit)
        pod = PodFacts(incarnation, index, generation=int(again))
        leader = w.leader
        if author:
            leader = author._replace(seen=author.seen | bit, unseen=author.unseen | bit)
        w = w._replace(created=w.created | bit, again=w.again | (bit if again else 0), leader=leader)
        return self._pods_change(w, (*w.tail[-1], pod))

    def _delete(self, w: World, op: Op, author: Leader | None) -> World:
        _, incarnation, index, generation, grace = op  # type: ignore[misc]  # The caller has told them apart.
        pods = w.tail[-1]
        pod = next((p for p in pods if p[:3] == (incarnation, index, generation)), None)
        if author:
            bit = self.mirror.bit(incarnation, index) if pod else 0
            w = w._replace(leader=author._replace(stopped=author.stopped | bit))
        if pod is None or (pod.stop and grace):
            return self._trim(w)
        check_stop(self.mirror.statuses[w.status], pod)
        at_once = pod.state in "FS" or grace == 0
        return self._pods_change(w, _with(pods, pod, None if at_once else pod._replace(stop=True)))

    def _pods_change(self, w: World, pods: Pods) -> World:
        tail = (*w.tail, tuple(sorted(pods)))
        leader, standby, oldest = w.leader, w.standby, len(tail) - 1 - self.setting.lag
        if leader.at < oldest:
            leader = self._advance(leader, tail, leader.at + 1)
        if standby.at < oldest:
            seen = standby.seen | self.mirror.masks(tail[standby.at + 1])[0]
            standby = standby._replace(at=standby.at + 1, seen=seen)
        return self._trim(w._replace(tail=tail, leader=leader, standby=standby))

    def _trim(self, w: World) -> World:
        """Forgets what nobody looks at any more; a process that never leads again needs no view."""
        tail, leader, standby = w.tail, w.leader, w.standby
        first = min(leader.at, standby.at) if w.left.transfers else leader.at
        if not w.left.transfers:
            standby = _NOBODY
        elif first:
            standby = standby._replace(at=standby.at - first)
        if not first:
            return w if standby is w.standby else w._replace(standby=standby)
        return w._replace(tail=tail[first:], leader=leader._replace(at=leader.at - first), standby=standby)

    # --- pods and their nodes ------------------------------------------------------------------------------------

    def _pod_steps(self, w: World) -> Iterator[Step]:
        for pod in w.tail[-1]:
            if pod.stop:
                yield from self._stopping_steps(w, pod)
            elif not pod.lost:
                yield from self._life_steps(w, pod)
            if not pod.stop and w.left.deletions:
                yield self._deleted_by_somebody(w, pod)

    def _life_steps(self, w: World, pod: PodFacts) -> Iterator[Step]:
        if pod.state == "W":
            yield f"{pod.name} starts", self._becomes(w, pod, pod._replace(state="R"))
        if pod.state == "R":
            yield from self._failure(w, pod)
            if self.setting.successes:
                yield f"{pod.name} succeeds", self._becomes(w, pod, pod._replace(state="S"))
        if pod.state in "WR" and w.left.node_losses:
            spent = w._replace(
                left=w.left._replace(node_losses=w.left.node_losses - 1),
                lost=w.lost | self.mirror.bit(pod.incarnation, pod.rank),
            )
            yield f"{pod.name} loses its node", self._becomes(spent, pod, pod._replace(lost=True), fault="lost")

    def _failure(self, w: World, pod: PodFacts) -> Iterator[Step]:
        """A failure of its own, or the consequence of another's: those cost nothing, there may be as many as pods."""
        others = (p for p in w.tail[-1] if p.incarnation == pod.incarnation and p != pod)
        current = pod.incarnation == self.mirror.statuses[w.status].incarnation
        if (current and w.ledger.first) or any(p.state == "F" or p.stop or p.lost for p in others):
            yield f"{pod.name} fails too", self._becomes(w, pod, pod._replace(state="F", after=True))
        elif w.left.fails:
            spent = w._replace(left=w.left._replace(fails=w.left.fails - 1))
            yield f"{pod.name} fails", self._becomes(spent, pod, pod._replace(state="F"), fault="failed")

    def _stopping_steps(self, w: World, pod: PodFacts) -> Iterator[Step]:
        yield f"{pod.name} is gone", self._becomes(w, pod, None)
        if self.setting.exits_on_stop and pod.state == "R" and not pod.lost:
            for state, code in (("F", 143), ("S", 0)):
                yield f"{pod.name} exits with {code}", self._becomes(w, pod, pod._replace(state=state, after=True))

    def _deleted_by_somebody(self, w: World, pod: PodFacts) -> Step:
        spent = w._replace(left=w.left._replace(deletions=w.left.deletions - 1))
        gone = pod.state in "FS"
        after = None if gone else pod._replace(stop=True)
        return f"somebody deletes {pod.name}", self._becomes(spent, pod, after, fault="deleted")

    def _becomes(self, w: World, pod: PodFacts, after: PodFacts | None, fault: str = "") -> World:
        ledger = disturbed(w.ledger, self.mirror.statuses[w.status], pod, after, fault)
        robbed = w.robbed | self.mirror.bit(pod.incarnation, pod.rank) if after is None else w.robbed
        if ledger is not w.ledger or robbed != w.robbed:
            w = w._replace(ledger=ledger, robbed=robbed)
        return self._pods_change(w, _with(w.tail[-1], pod, after))

    # --- people, time, processes ---------------------------------------------------------------------------------

    def _other_steps(self, w: World) -> Iterator[Step]:
        status, left = self.mirror.statuses[w.status], w.left
        if status.incident and not w.lapsed and any(p.state in "WR" for p in w.tail[-1]):
            yield "time for evidence is over", w._replace(lapsed=True)
        if left.toggles:
            yield (
                "resume" if w.suspend else "suspend",
                self._new_version(w)._replace(
                    suspend=not w.suspend,
                    generation=w.generation + 1,
                    leader=w.leader._replace(job=w.leader.job or w[:3]),
                    left=left._replace(toggles=left.toggles - 1),
                ),
            )
        if left.plan_deletions and w.stored:
            yield (
                "somebody deletes the plan",
                w._replace(
                    stored=False,
                    ledger=w.ledger._replace(clouded=True, first=w.ledger.first or "free"),
                    left=left._replace(plan_deletions=left.plan_deletions - 1),
                ),
            )
        if left.preemptions and not w.wanted and status.phase in (*PLANNED, Phase.RESTARTING):
            # Whether a failure of its own came first may not be seen: then either judgement is right.
            ledger = w.ledger._replace(clouded=True, first=w.ledger.first or "free")
            left = left._replace(preemptions=left.preemptions - 1)
            yield "another gang needs its places", w._replace(wanted=True, ledger=ledger, left=left)
        if w.wanted and not status.incident:
            yield "nobody needs its places any more", w._replace(wanted=False)
        if left.crashes:
            yield "leader dies and starts again", self._crash(w._replace(left=left._replace(crashes=left.crashes - 1)))
        if left.transfers:
            yield from self._transfers(w._replace(left=left._replace(transfers=left.transfers - 1)))
        if w.late:
            yield f"late: {w.late}", self.arrive(w)
            yield "late: lost on its way", w._replace(late=None)

    def _crash(self, w: World) -> World:
        newest = len(w.tail) - 1
        return self._trim(w._replace(leader=Leader(at=newest, seen=self.mirror.masks(w.tail[-1])[0])))

    def _transfers(self, w: World) -> Iterator[Step]:
        standby = w.standby
        new = Leader(at=standby.at, seen=standby.seen | self.mirror.masks(w.tail[standby.at])[0])
        old = Standby(w.leader.at, w.leader.seen & ~w.leader.unseen)
        for late in self._on_its_way(w):
            moved = w._replace(leader=new, standby=old, late=late)
            yield f"lease moves ({late or 'nothing'} on its way)", self._trim(moved)
        for job in standby.jobs:
            started = Leader(job, at=len(w.tail) - 1, seen=self.mirror.masks(w.tail[-1])[0])
            yield (
                f"lease moves to a new process that believes {job}",
                self._trim(w._replace(leader=started, standby=old)),
            )

    def _on_its_way(self, w: World) -> Iterator[Late | None]:
        """What the deposed leader may have sent just before: its next action, or what it decides in any view."""
        yield None
        if not self.setting.late:
            return
        if w.leader.todo:
            yield w.leader.todo[0]
            return
        for view in self._views(w):
            leader, outcome = self._outcome(w, view)
            if outcome and outcome[0] == "act":
                yield outcome[1][0]
            elif outcome and (leader.job is None or not self.setting.versions):
                yield ("write", outcome[1])

    def arrive(self, w: World) -> World:
        """What was on its way reaches the server."""
        late, w = w.late, w._replace(late=None)
        assert late is not None
        if late[0] == "write":
            return self.write(w, late[1], None)
        return self.carry_out(w, late, None)


_NOBODY = Standby()


def _with(pods: Pods, old: PodFacts, new: PodFacts | None) -> Pods:
    return tuple(p for p in (new if pod == old else pod for pod in pods) if p is not None)
