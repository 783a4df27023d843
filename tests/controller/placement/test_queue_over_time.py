"""The queue over time: gangs arrive, run, end. Nobody starves, nobody gets half, and nobody ends who need not.

Feasibility is judged by `whole_nodes`, which counts nodes and knows nothing of the code under test: every pod takes a
whole node of its pool, so that a gang fits exactly where that many nodes are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshwright.placement.model import GangRequest
from meshwright.placement.queueing.preemption import Holder, by_cost, fewest
from meshwright.placement.queueing.queue import Circumstances, judge
from meshwright.placement.solver import FirstFit
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.ledger import Ledger
from tests.controller.placement.clusters import T0, a_gang, a_node, a_reservation, a_role, a_snapshot

POOLS = {"a": 5, "b": 3}
PASSING = 10
"""Minutes."""
minutes = st.integers(1, 12)


@dataclass(frozen=True)
class Arrival:
    """A gang of whole nodes."""

    minute: int
    pool: str
    nodes: int
    runs: int
    priority: int = 0
    preempts: bool = False

    def request(self, uid: str) -> GangRequest:
        rules = NodeRules.parse({"nodeSelector": {"pool": self.pool}})
        gang = a_gang(uid, a_role(self.nodes, rules=rules, gpus=8), after=60 * self.minute, priority=self.priority)
        return replace(gang, preempts=self.preempts)


arrivals = st.builds(
    Arrival,
    st.integers(0, 30),
    st.sampled_from(sorted(POOLS)),
    st.integers(1, 6),  # more than a pool has: such a gang never starts, and stands in nobody's way
    minutes,
    st.sampled_from([0, 0, 5]),
    st.booleans(),
)


def whole_nodes(pool: str, running: Iterable[Arrival]) -> int:
    """Nodes of a pool that are free beside these gangs."""
    return POOLS[pool] - sum(gang.nodes for gang in running if gang.pool == pool)


def turn(uid: str, gang: Arrival) -> tuple[int, int, str]:
    """The order of the queue: by priority, then by age."""
    return -gang.priority, gang.minute, uid


@dataclass
class Simulation:
    """The cluster, minute by minute."""

    passing: int = PASSING
    ledger: Ledger = field(default_factory=Ledger)
    minute: int = 0
    waiting: dict[str, Arrival] = field(default_factory=dict)
    running: dict[str, tuple[Arrival, int]] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    kept: dict[str, frozenset[str]] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    passed: Counter[str] = field(default_factory=Counter)
    preempted: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for pool, count in POOLS.items():
            for i in range(count):
                self.ledger.node_changed(f"{pool}{i}", a_node(f"{pool}{i}", gpus=8, labels={"pool": pool}))

    def now(self) -> datetime:
        return T0 + timedelta(minutes=self.minute)

    def tick(self, new: Iterable[tuple[str, Arrival]] = ()) -> None:
        """A minute passes: gangs end, others arrive, the queue is looked through until nothing changes."""
        ended = {u for u, (_, end) in self.running.items() if end <= self.minute}
        for uid in sorted(ended | self.stopping):
            arrival, _ = self.running.pop(uid)
            self.release(uid)
            self.stopping.discard(uid)
            if uid not in ended:
                self.waiting[uid] = arrival
        self.waiting.update(new)
        while self.look():
            pass
        self.minute += 1

    def look(self) -> bool:
        """One look through the queue; whether anybody started."""
        given = Circumstances(
            self.now(), timedelta(minutes=self.passing), self.holders, frozenset(self.stopping), self.kept
        )
        judgement = judge([a.request(u) for u, a in self.waiting.items()], self.ledger.snapshot(), given=given)
        self.kept = judgement.kept
        for preemptor in set(judgement.yields.values()):
            victims = frozenset(v for v, p in judgement.yields.items() if p == preemptor)
            self.judge_victims(preemptor, victims, judgement.placed)
            self.preempted.append((preemptor, victims))
            self.stopping |= victims
        for uid, placed in judgement.placed.items():
            self.start(uid, {index: node for (_, index), node in placed.nodes.items()})
        return bool(judgement.placed)

    def start(self, uid: str, nodes: dict[int, str]) -> None:
        arrival = self.waiting.pop(uid)
        assert len(set(nodes.values())) == arrival.nodes, "whole, and each pod on a node of its own"
        for other, earlier in self.waiting.items():
            comes_later = turn(uid, arrival) > turn(other, earlier)
            if comes_later and earlier.pool == arrival.pool and earlier.nodes <= POOLS[earlier.pool]:
                self.passed[other] += 1
                assert self.minute - earlier.minute < self.passing, f"{uid} passes {other}, which has waited for long"
        self.running[uid] = (arrival, self.minute + arrival.runs)
        self.started.setdefault(uid, self.minute)
        self.ledger.reserve(a_reservation(uid, nodes, gpus=8))
        self.holders[uid] = Holder(uid, arrival.priority, self.now())
        for pool in POOLS:
            assert whole_nodes(pool, (a for a, _ in self.running.values())) >= 0, "more than there is"

    def release(self, uid: str) -> None:
        self.ledger.release(uid)
        del self.holders[uid]

    def judge_victims(self, preemptor: str, victims: frozenset[str], placed: Iterable[str]) -> None:
        """Of lower priority, whole, no more than needed, and only where nothing else would do.

        Who is let in by the same look, and comes first, has its nodes already.
        """
        gang = self.waiting[preemptor]
        stay = {u: a for u, (a, _) in self.running.items() if u not in self.stopping}
        stay |= {u: a for u in placed if turn(u, a := self.waiting[u]) < turn(preemptor, gang)}
        assert gang.preempts
        assert all(stay[v].priority < gang.priority for v in victims)
        for left_out in victims:
            rest = [a for u, a in stay.items() if u not in victims or u == left_out]
            assert whole_nodes(gang.pool, rest) < gang.nodes, f"{left_out} need not end"


@settings(max_examples=120, deadline=None)
@given(st.lists(arrivals, max_size=14))
@example([*[Arrival(0, "b", 1, 2, 0, False)] * 2, Arrival(1, "b", 1, 1, 5, False), Arrival(1, "b", 1, 1, 5, True)])
def test_nobody_starves_and_nobody_gets_half(schedule: list[Arrival]) -> None:
    simulation = Simulation()
    named = {f"u{i:02}": arrival for i, arrival in enumerate(schedule)}
    # After the last arrival each that can run alone has had its turn by the time that all others took one by one.
    # A gang that is preempted begins anew, at most once for each that comes before it.
    horizon = 31 + PASSING + sum(a.runs + 1 for a in schedule) * (1 + sum(a.preempts for a in schedule))
    possible = {uid for uid, arrival in named.items() if arrival.nodes <= POOLS[arrival.pool]}
    while simulation.minute <= 31 or simulation.running or simulation.waiting.keys() & possible:
        assert simulation.minute <= horizon, f"{simulation.waiting} do not get their turn"
        simulation.tick((u, a) for u, a in named.items() if a.minute == simulation.minute)
    assert simulation.started.keys() == possible
    assert simulation.waiting.keys() == named.keys() - possible
    assert not simulation.running


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4))
def test_a_stream_of_small_gangs_passes_a_large_one_for_a_bounded_time(large: int, small: int) -> None:
    """Small gangs arrive each minute for ever, and always leave too little for the large one."""
    simulation = Simulation()
    runs = small + 3
    simulation.tick([("s-1", Arrival(0, "a", 1, runs))])
    simulation.tick([("large", Arrival(1, "a", large, 5))])
    for minute in range(2, 60):
        simulation.tick([(f"s{minute:03}", Arrival(minute, "a", 1, runs))])
    assert simulation.started["large"] <= 1 + PASSING + runs
    assert simulation.passed["large"] <= PASSING


FIVE = [a_node(f"n{i}", gpus=8) for i in range(5)]
LARGE, SMALL = a_gang("large", a_role(3, gpus=8)), a_gang("small", a_role(1, gpus=4), after=1)
R1, R2 = a_reservation("r1", {0: "n0", 1: "n1"}, gpus=8), a_reservation("r2", {0: "n2"}, gpus=8)
SOON = Circumstances(
    T0 + timedelta(minutes=5), timedelta(minutes=10), {uid: Holder(uid, 0, T0) for uid in ("r1", "r2")}
)
LATE = replace(SOON, now=T0 + timedelta(minutes=10))


def test_at_first_one_place_is_kept_and_what_is_left_is_used() -> None:
    judgement = judge([LARGE, SMALL], a_snapshot(FIVE, [], [R1, R2]), given=SOON)
    assert judgement.kept == {"large": {"n0", "n1", "n3"}}
    assert set(judgement.placed["small"].nodes.values()) == {"n4"}


def test_who_has_waited_for_long_keeps_all_that_he_could_use() -> None:
    assert not judge([LARGE, SMALL], a_snapshot(FIVE, [], [R1, R2]), given=LATE).placed


def test_the_kept_place_stays_where_it_is_and_any_other_is_taken_as_soon_as_it_fits() -> None:
    older = replace(SOON, kept={"large": frozenset({"n2", "n3", "n4"})})
    judgement = judge([LARGE, SMALL], a_snapshot(FIVE, [], [R1, R2]), given=older)
    assert (judgement.kept, judgement.placed) == (older.kept, {})
    r1_ended = judge([LARGE, SMALL], a_snapshot(FIVE, [], [R2]), given=older)
    assert set(r1_ended.placed["large"].nodes.values()) == {"n0", "n1", "n3"}


def test_a_kept_place_that_broke_is_given_up_for_another() -> None:
    broken = [a_node("n3", gpus=8, ready="False") if node.name == "n3" else node for node in FIVE]
    older = replace(SOON, kept={"large": frozenset({"n2", "n3", "n4"})})
    judgement = judge([LARGE], a_snapshot(broken, [], [R1, R2]), given=older)
    assert judgement.kept == {"large": {"n0", "n1", "n4"}}


holdings = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=5
)  # nodes, priority, minute


@settings(max_examples=150, deadline=None)
@given(holdings, st.integers(1, 8))
def test_the_gangs_that_end_are_the_cheapest_that_will_do(held: list[tuple[int, int, int]], wanted: int) -> None:
    """Against every subset: none of the chosen can stay, and no other set spares the dearest of them."""
    reservations, holders, first = [], [], 0
    for number, (nodes, priority, minute) in enumerate(held):
        reservations.append(a_reservation(f"r{number}", {i: f"n{first + i:02}" for i in range(nodes)}, gpus=8))
        holders.append(Holder(f"r{number}", priority, T0 + timedelta(minutes=minute)))
        first += nodes
    total = first + 1
    snapshot = a_snapshot([a_node(f"n{i:02}", gpus=8) for i in range(total)], [], reservations)
    found = fewest(a_gang("new", a_role(wanted, gpus=8)), snapshot, by_cost(holders), FirstFit())
    sizes = {f"r{number}": nodes for number, (nodes, _, _) in enumerate(held)}

    def enough(gone: Iterable[str]) -> bool:
        return 1 + sum(sizes[uid] for uid in gone) >= wanted

    if found is None:
        assert not enough(sizes)
        return
    chosen, placed = found
    assert enough(chosen)
    assert len(set(placed.nodes.values())) == wanted
    assert not any(enough(set(chosen) - {uid}) for uid in chosen)
    order = [holder.job_uid for holder in by_cost(holders)]
    dearest = max((order.index(uid) for uid in chosen), default=-1)
    for count in range(len(sizes) + 1 if chosen else 0):
        for other in combinations(order[: max(dearest, 0)], count):
            assert not enough(other), f"{other} are all cheaper than the dearest of {chosen}"


def test_the_lowest_priority_ends_first_and_among_equals_the_youngest() -> None:
    old, young = Holder("old", 0, T0), Holder("young", 0, T0 + timedelta(hours=1))
    dear = Holder("dear", 1, T0 + timedelta(hours=2))
    assert [holder.job_uid for holder in by_cost([dear, old, young])] == ["young", "old", "dear"]


FULL = a_snapshot(FIVE, [], [R1, R2, a_reservation("r3", {0: "n3", 1: "n4"}, gpus=8)])


def preempting(given: Circumstances, *holders: Holder, nodes: int = 2) -> set[str]:
    """Who ends for a gang of priority 5 that wants that many nodes."""
    urgent = replace(a_gang("urgent", a_role(nodes, gpus=8), priority=5), preempts=True)
    judgement = judge([urgent], FULL, given=replace(given, holders={h.job_uid: h for h in holders}))
    assert not judgement.placed
    assert set(judgement.yields.values()) <= {"urgent"}
    return set(judgement.yields)


def test_only_who_is_lower_and_not_spared_ends() -> None:
    low, equal, spared = Holder("r1", 0, T0), Holder("r2", 5, T0), Holder("r3", 0, T0, spared=True)
    assert preempting(SOON, low, equal, spared) == {"r1"}
    assert preempting(SOON, low, equal, spared, nodes=3) == set(), "not enough: then nobody ends for nothing"


def test_nobody_more_ends_while_those_who_were_told_to_make_room_enough() -> None:
    low = [Holder(uid, 0, T0) for uid in ("r1", "r2", "r3")]
    assert preempting(replace(SOON, leaving={"r3"}), *low) == set()
    assert preempting(replace(SOON, leaving={"r2"}), *low) == {"r1"}


def test_pods_of_gangs_that_hold_no_place_any_more_are_waited_for() -> None:
    """Their gang is over or suspended, and they are stopping."""
    assert preempting(SOON, Holder("r1", 0, T0), Holder("r2", 0, T0)) == set()


def test_a_gang_that_may_not_preempt_waits() -> None:
    urgent = a_gang("urgent", a_role(2, gpus=8), priority=5)
    assert not judge([urgent], FULL, given=SOON).yields


def test_places_that_are_made_free_for_one_are_no_one_elses() -> None:
    urgent = replace(a_gang("urgent", a_role(2, gpus=8), priority=5), preempts=True)
    holders = {uid: Holder(uid, 0, T0) for uid in ("r1", "r2", "r3")}
    half_gone = a_snapshot(FIVE, [], [R1, R2, a_reservation("r3", {0: "n3"}, gpus=8)])
    given = replace(SOON, holders=holders, leaving={"r3"})
    judgement = judge([urgent, SMALL], half_gone, given=given)
    assert (judgement.placed, judgement.yields) == ({}, {})
