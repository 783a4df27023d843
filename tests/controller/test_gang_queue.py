"""The queue as the operator keeps it: looked through once per change, woken by the caches, true to what it promised."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.gang_queue import GangQueue
from meshwright.placement.model import GangRequest, Placed, Refused, Reservation, Snapshot
from meshwright.placement.queueing.preemption import Holder
from meshwright.placement.solver import FirstFit
from tests.controller.placement.clusters import T0, a_gang, a_gang_pod, a_reservation, a_role

NO_SERVER: Any = None
NOW = T0 + timedelta(days=1)


class Counting(FirstFit):
    """Counts how often a place is looked for."""

    looks = 0

    def place(self, gang: GangRequest, snapshot: Snapshot) -> Placed | None:
        self.looks += 1
        return super().place(gang, snapshot)


class Bench:
    """A queue over caches that a test tells what happens."""

    def __init__(self, nodes: int = 4) -> None:
        self.pods, self.nodes, self.solver = PodCache(NO_SERVER), NodeCache(NO_SERVER), Counting()
        for i in range(nodes):
            self.node(f"n{i}")
        self.queue = GangQueue(self.pods, self.nodes, self.solver)
        self.room = 0
        self.queue.on_room = self._room

    def _room(self) -> None:
        self.room += 1

    def node(self, name: str, gpus: int = 8, ready: bool = True, **spec: Any) -> None:
        allocatable = {"cpu": "8", "pods": "110", "nvidia.com/gpu": str(gpus)}
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.nodes.reflectors[0]._put(
            {
                "metadata": {"name": name, "uid": name},
                "spec": spec,
                "status": {"allocatable": allocatable, "conditions": conditions},
            }
        )

    def pod(self, name: str, node: str, gpus: int = 8, phase: str = "Running") -> None:
        container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
        spec = {"nodeName": node, "containers": [container]}
        self.pods.reflectors[0]._put(
            {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": phase}}
        )

    def ask(self, gang: GangRequest) -> Placed | Refused:
        return self.queue.ask(gang, NOW)

    def take(self, gang: GangRequest, priority: int = 0) -> None:
        """Asks, and takes the place that is offered."""
        answer = self.ask(gang)
        assert isinstance(answer, Placed)
        requests = {role.role: role.resources for role in gang.roles}
        self.queue.reserve(Reservation(gang.job_uid, 1, answer.nodes, requests), Holder(gang.job_uid, priority, NOW))


def whole(uid: str, nodes: int, **kwargs: Any) -> GangRequest:
    return a_gang(uid, a_role(nodes, gpus=8), **kwargs)


def test_five_hundred_that_ask_cost_one_look_through_the_queue() -> None:
    bench = Bench()
    bench.take(whole("runs", 3))
    gangs = [whole(f"w{i:03}", 2 + i % 3, after=i) for i in range(500)]
    for gang in gangs:
        bench.ask(gang)
    bench.pod("busy", "n3")
    bench.pods.reflectors[0]._drop("busy")
    bench.solver.looks = 0
    assert bench.queue.turns(NOW) == ()
    for gang in gangs:
        assert isinstance(bench.ask(gang), Refused)
    assert bench.solver.looks <= 20


def test_those_who_start_together_cost_one_look_and_get_nodes_of_their_own() -> None:
    bench = Bench(nodes=8)
    bench.pod("busy", "n0")
    gangs = [whole(f"w{i}", 1, after=i) for i in range(7)]
    for gang in gangs:
        bench.queue._waiting[gang.job_uid] = gang
    bench.queue._room()
    assert set(bench.queue.turns(NOW)) == {gang.job_uid for gang in gangs}
    bench.solver.looks = 0
    for gang in gangs:
        bench.take(gang)
    assert bench.solver.looks == 0, "each was judged with what the others take taken away"
    taken = [node for gang in gangs for node in bench.queue.held_by(gang.job_uid).nodes.values()]  # type: ignore[union-attr]
    assert sorted(taken) == [f"n{i}" for i in range(1, 8)]


def test_an_offer_is_worth_nothing_once_somebody_else_took_the_room() -> None:
    bench = Bench(nodes=1)
    assert isinstance(bench.ask(whole("w", 1)), Placed)
    bench.pod("quick", "n0")
    assert isinstance(bench.ask(whole("w", 1)), Refused)


@pytest.mark.parametrize(
    "how", ["joins", "uncordoned", "untainted", "ready", "grows", "pod gone", "pod ended", "released"]
)
def test_whatever_makes_room_wakes_the_queue_at_once(how: str) -> None:
    bench = Bench(nodes=1)
    before: dict[str, dict[str, Any]] = {
        "uncordoned": {"unschedulable": True},
        "untainted": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "ready": {"ready": False},
        "grows": {"gpus": 4},
    }
    if how in before:
        bench.node("n1", **before[how])
    if how.startswith("pod"):
        bench.node("n1")
        bench.pod("p", "n1")
    if how == "released":
        bench.node("n1")
        bench.queue.reserve(a_reservation("other", {0: "n1"}, gpus=8))
    gang = whole("w", 2)
    assert isinstance(bench.ask(gang), Refused)
    bench.room = 0
    match how:
        case "pod gone":
            bench.pods.reflectors[0]._drop("p")
        case "pod ended":
            bench.pod("p", "n1", phase="Succeeded")
        case "released":
            bench.queue.release("other")
        case _:
            bench.node("n1")
    assert bench.room
    assert bench.queue.turns(NOW) == ("w",)
    assert isinstance(bench.ask(gang), Placed)


def test_what_takes_room_wakes_nobody() -> None:
    bench = Bench()
    bench.take(whole("runs", 3))
    bench.ask(whole("w", 4))
    bench.room = 0
    bench.pod("foreign", "n3")
    for index in range(3):
        pod = a_gang_pod("runs", index, 1, f"n{index}", gpus=8)
        bench.pods.reflectors[0]._put(pod | {"metadata": pod["metadata"] | {"uid": f"p{index}"}})
    assert bench.room == 0


def test_nobody_is_woken_while_nobody_waits() -> None:
    bench = Bench()
    bench.node("n9")
    assert bench.room == 0
    assert bench.queue.turns(NOW) == ()


def an_urgent(nodes: int = 3) -> GangRequest:
    return replace(whole("urgent", nodes, priority=9, after=99), preempts=True)


def test_who_must_yield_is_told_goes_and_leaves_room() -> None:
    bench = Bench()
    bench.take(whole("low", 4))
    assert not bench.queue.must_yield("low", NOW)
    bench.room = 0
    answer = bench.ask(an_urgent())
    assert isinstance(answer, Refused)
    assert "1 job of lower priority will make room" in answer.message
    assert bench.room, "who must make room is told at once"
    assert bench.queue.must_yield("low", NOW)
    assert "low" in bench.queue.turns(NOW)
    bench.queue.yields("low")
    assert not bench.queue.must_yield("low", NOW), "it is on its way"
    bench.queue.release("low")
    assert bench.queue.turns(NOW) == ("urgent",)
    bench.take(an_urgent(), priority=9)


def test_nobody_yields_to_a_gang_that_waits_no_longer() -> None:
    bench = Bench()
    bench.take(whole("low", 4))
    bench.ask(an_urgent())
    bench.queue.leave("urgent")
    assert not bench.queue.must_yield("low", NOW)


def test_a_gang_that_restarts_and_must_yield_is_given_nothing() -> None:
    bench = Bench()
    bench.take(whole("low", 4))
    bench.ask(an_urgent())
    again = whole("low", 4, prefer={("worker", 0): "n0"})
    answer = bench.ask(again)
    assert isinstance(answer, Refused)
    assert "higher priority" in answer.message


def test_after_leadership_was_lost_nothing_is_held() -> None:
    bench = Bench()
    bench.take(whole("runs", 4))
    bench.queue.clear()
    assert bench.queue.held_by("runs") is None
    bench.take(whole("other", 4))
