"""The gang queue: whole gangs over one snapshot, in turn, and nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshwright.placement.model import GangRequest, Placed, Refused, Snapshot
from meshwright.placement.queueing.queue import judge
from meshwright.placement.solver import FirstFit, Solver
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.resources import NOTHING
from meshwright_api.names import REASON_WAITING_FOR_CAPACITY, REASON_WAITING_FOR_TURN
from tests.controller.placement.clusters import a_few, a_gang, a_node, a_pod, a_reservation, a_role, a_snapshot
from tests.controller.placement.test_solver import gangs, snapshots, taken

FOUR = [a_node(f"n{i}", gpus=8) for i in range(4)]


def admit(waiting: list[GangRequest], snapshot: Snapshot, solver: Solver | None = None) -> dict[str, Placed | Refused]:
    """The answers to all, as if each had waited for long."""
    judgement = judge(waiting, snapshot, solver)
    return {gang.job_uid: judgement.verdict(gang.job_uid) for gang in waiting}


def admitted(waiting: list[GangRequest], snapshot: Snapshot) -> set[str]:
    return {uid for uid, verdict in admit(waiting, snapshot).items() if isinstance(verdict, Placed)}


def reason(waiting: list[GangRequest], snapshot: Snapshot, uid: str) -> str:
    verdict = admit(waiting, snapshot)[uid]
    assert isinstance(verdict, Refused)
    return verdict.reason


def whole(uid: str, nodes: int, *, after: int = 0, priority: int = 0) -> GangRequest:
    """A gang that needs that many whole nodes."""
    return a_gang(uid, a_role(nodes, gpus=8), after=after, priority=priority)


def test_two_gangs_that_fit_alone_but_not_together_never_get_half_each() -> None:
    """K37: one wins whole, the other keeps nothing."""
    hundred = [a_node(f"n{i:03}", gpus=1) for i in range(100)]
    first, second = a_gang("a", a_role(100, gpus=1)), a_gang("b", a_role(100, gpus=1), after=1)
    verdicts = admit([second, first], a_snapshot(hundred))
    assert isinstance(verdicts["a"], Placed)
    assert len(set(verdicts["a"].nodes.values())) == 100
    assert isinstance(verdicts["b"], Refused)


def test_gangs_that_fit_together_start_together_on_nodes_of_their_own() -> None:
    verdicts = admit([whole("a", 2), whole("b", 2, after=1)], a_snapshot(FOUR))
    nodes = [node for verdict in verdicts.values() if isinstance(verdict, Placed) for node in verdict.nodes.values()]
    assert sorted(nodes) == ["n0", "n1", "n2", "n3"]


def test_the_older_job_goes_first_and_the_uid_decides_between_twins() -> None:
    assert admitted([whole("new", 3, after=5), whole("old", 3, after=1)], a_snapshot(FOUR)) == {"old"}
    assert admitted([whole("b", 3), whole("a", 3)], a_snapshot(FOUR)) == {"a"}


def test_priority_goes_before_age() -> None:
    assert admitted([whole("old", 3), whole("urgent", 3, after=9, priority=10)], a_snapshot(FOUR)) == {"urgent"}


def test_a_restarted_gang_goes_before_everyone_who_has_not_begun() -> None:
    again = a_gang("again", a_role(2, gpus=8), after=9, prefer={("worker", 0): "n0", ("worker", 1): "gone"})
    assert admitted([whole("urgent", 4, priority=10), again], a_snapshot(FOUR)) == {"again"}


def test_small_jobs_do_not_slip_past_a_large_one_that_waits() -> None:
    busy = a_snapshot(FOUR, [a_pod("n0", gpus=8)])
    running = a_snapshot(FOUR, [], [a_reservation("r", {0: "n0"}, gpus=8)])
    waiting = [whole("large", 4), whole("small", 1, after=1)]
    assert admitted(waiting, running) == set()
    assert reason(waiting, running, "large") == REASON_WAITING_FOR_CAPACITY
    assert reason(waiting, running, "small") == REASON_WAITING_FOR_TURN
    assert admitted(waiting, busy) == {"small"}, "with foreign pods there the large one could not start anyway"


def test_a_job_for_other_nodes_passes() -> None:
    nodes = [*FOUR, a_node("cpu")]
    running = a_snapshot(nodes, [], [a_reservation("r", {0: "n0"}, gpus=8)])
    assert admitted([whole("large", 4), a_gang("cpu", a_role(2, cpu=1), after=1)], running) == {"cpu"}
    assert admitted([whole("large", 4), a_gang("cpu", a_role(9, cpu=1), after=1)], running) == set()


def test_a_job_that_can_never_start_blocks_nobody() -> None:
    nowhere = NodeRules.parse({"nodeSelector": {"gpu": "typo"}})
    impossible = [whole("a", 5), a_gang("b", a_role(1, gpus=16)), a_gang("c", a_role(1, rules=nowhere, gpus=1))]
    assert admitted([*impossible, whole("d", 4, after=1)], a_snapshot(FOUR)) == {"d"}


def test_what_a_waiting_job_is_told_counts_those_that_started_before_it() -> None:
    verdicts = admit([whole("a", 5), whole("b", 1, after=1), whole("c", 5, after=2)], a_snapshot(FOUR))
    assert isinstance(verdicts["a"], Refused)
    assert isinstance(verdicts["c"], Refused)
    assert "there is room for 4" in verdicts["a"].message
    assert "there is room for 3" in verdicts["c"].message


def test_the_large_one_starts_once_the_running_one_has_ended() -> None:
    waiting = [whole("large", 4), *(whole(f"small{i}", 1, after=i) for i in range(1, 9))]
    assert admitted(waiting, a_snapshot(FOUR)) == {"large"}


def test_all_who_wait_behind_are_told_so_with_a_count() -> None:
    running = a_snapshot(FOUR, [], [a_reservation("r", {0: "n0"}, gpus=8)])
    verdicts = admit([whole("a", 4), whole("b", 4, after=1), whole("c", 1, after=2)], running)
    assert verdicts["c"] == Refused(
        REASON_WAITING_FOR_TURN, "would fit now, but its nodes are kept for 2 jobs ahead in the queue"
    )


def test_a_thousand_like_jobs_cost_a_few_looks() -> None:
    looks = 0

    class Counting(FirstFit):
        def place(self, gang: GangRequest, snapshot: Snapshot) -> Placed | None:
            nonlocal looks
            looks += 1
            return super().place(gang, snapshot)

    running = a_snapshot(FOUR, [], [a_reservation("r", {0: "n0"}, gpus=8)])
    verdicts = admit([whole(f"{i:04}", 4) for i in range(1000)], running, Counting())
    assert len(verdicts) == 1000
    assert not any(isinstance(verdict, Placed) for verdict in verdicts.values())
    assert looks <= 8


queues = st.lists(gangs(roles=2), max_size=5).map(
    lambda queue: [a_gang(f"u{i}", *g.roles, after=i % 2, avoid=g.avoid, prefer=g.prefer) for i, g in enumerate(queue)]
)


@a_few
@given(queues, snapshots())
def test_all_admitted_gangs_together_fit_into_what_is_free(waiting: list[GangRequest], snapshot: Snapshot) -> None:
    verdicts = admit(waiting, snapshot)
    assert verdicts.keys() == {gang.job_uid for gang in waiting}
    total = dict.fromkeys(snapshot.free, NOTHING)
    for gang in waiting:
        verdict = verdicts[gang.job_uid]
        if isinstance(verdict, Placed):
            assert set(verdict.nodes) == {member for role in gang.roles for member in role.members()}
            for node, amount in taken(gang, verdict).items():
                total[node] += amount
    for node, amount in total.items():
        assert not (amount.cpu and amount.cpu > snapshot.free[node].cpu)
        assert not (amount.gpus and amount.gpus > snapshot.free[node].gpus)
        assert not (amount.pods and amount.pods > snapshot.free[node].pods)


@a_few
@given(queues, snapshots())
def test_the_order_in_which_gangs_are_listed_changes_nothing(waiting: list[GangRequest], snapshot: Snapshot) -> None:
    assert admit(waiting, snapshot) == admit(list(reversed(waiting)), snapshot)


pairs = st.tuples(gangs(), gangs()).map(
    lambda pair: (a_gang("first", *pair[0].roles, priority=1), a_gang("second", *pair[1].roles))
)


@a_few
@given(pairs, snapshots())
def test_what_comes_behind_never_changes_what_is_ahead(
    pair: tuple[GangRequest, GangRequest], snapshot: Snapshot
) -> None:
    ahead, behind = pair
    assert admit([ahead, behind], snapshot)["first"] == admit([ahead], snapshot)["first"]


@a_few
@given(pairs, snapshots())
def test_nobody_behind_takes_what_the_first_could_use(
    pair: tuple[GangRequest, GangRequest], snapshot: Snapshot
) -> None:
    """The job ahead starts no later for those behind: when the reservation of the running gang ends, it still fits."""
    ahead, behind = pair
    verdicts = admit([ahead, behind], snapshot)
    last = verdicts["second"]
    empty = snapshot.without_gangs()
    if isinstance(verdicts["first"], Placed) or isinstance(last, Refused):
        return
    if FirstFit().place(ahead, empty):
        assert FirstFit().place(ahead, empty.with_placed(behind, last))
