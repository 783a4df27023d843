"""From `spec.placement` to what the solver is asked, and from where a gang sits to what its plan tells."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from meshwright.placement.nesting.layout import Within
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.supply.capacity import snapshot
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import Resources
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology
from meshwright.rendering.frozen import FrozenPlan
from meshwright.rendering.gang import RenderSettings, freeze, note, request, reservation
from meshwright.rendering.seats import MOST_BYTES
from meshwright_api.job import TrainingJob
from tests.controller.rendering.jobs import a_job, a_role, a_trained_job

TREE = Topology((Level("spine", "s", 0.25), Level("leaf", "l", 0.5), Level("node", HOSTNAME)))


def nodes(leaves: int, per_leaf: int, gpus: int = 8, shuffle: bool = False) -> list[NodeCapacity]:
    numbers = list(range(leaves * per_leaf))
    names = [f"n{number:05}" for number in numbers]
    if shuffle:
        random.Random(1).shuffle(names)
    room = Resources(cpu=64_000, memory=2**40, gpus=gpus, pods=110)
    return [
        NodeCapacity(names[i], room, {"s": f"s{i // per_leaf // 2}", "l": f"l{i // per_leaf}", HOSTNAME: names[i]})
        for i in numbers
    ]


def planned(job: TrainingJob, cluster: Iterable[NodeCapacity], topology: Topology = TREE) -> FrozenPlan:
    asked = request(job)
    placed = TopologySolver(topology).place(asked, snapshot(cluster, []))
    assert placed
    return freeze(job, attempt=1, incarnation=1, request=asked, placed=placed, settings=RenderSettings())


def constraint(axis: str, within: str, required: bool = False) -> dict[str, Any]:
    return {"constraints": [{"axis": axis, "within": within, "required": required}]}


def trained(placement: Mapping[str, Any], pods: int = 4, **axes: int) -> TrainingJob:
    section = {"model": {"name": "gpt3", "preset": "tiny"}, "data": {"source": "/data"}, "steps": 10}
    role = {"name": "worker", "replicas": pods, "gpusPerPod": 1}
    return a_job(role, trainer=section | {"parallelism": axes}, placement=dict(placement))


def test_constraints_speak_of_axes_and_pods_of_all_of_them() -> None:
    layout = request(trained(constraint("shard", "leaf", required=True), data=2, shard=2)).layout
    assert layout
    assert layout.constraints == (Within(frozenset({"shard"}), "leaf", required=True),)
    layout = request(trained(constraint("pods", "leaf"), data=2, shard=2)).layout
    assert layout
    assert layout.constraints == (Within(frozenset(axis.name for axis in layout.axes), "leaf"),)


def test_the_other_wishes_arrive_too_and_a_wish_makes_a_grid_of_pods_without_gpus() -> None:
    layout = request(a_job(a_role(3), placement={"exclusive": "leaf", "spread": "spine", "balanced": True})).layout
    assert layout
    assert (layout.pods, layout.exclusive, layout.spread, layout.balanced) == (3, "leaf", "spine", True)
    assert request(a_job(a_role(3), placement={})).layout is None
    layout = request(a_job(a_role(3) | {"spread": "leaf"}, placement={"spread": "spine"})).layout
    assert layout
    assert layout.spread == "leaf"


@pytest.mark.parametrize(
    ("roles", "pods", "near"),
    [
        ([a_role(4, gpus_per_pod=8), a_role(2, name="ps")], 4, {"ps": ""}),
        ([a_role(4, gpus_per_pod=8), a_role(2, name="ps") | {"near": "worker"}], 4, {"ps": "worker"}),
        ([a_role(1, name="ps"), a_role(2) | {"near": "ps"}], 1, {"worker": "ps"}),
        ([a_role(4, gpus_per_pod=8) | {"near": "ps"}, a_role(1, name="ps")], 4, {"ps": "worker"}),
        ([a_role(1, name="master", gpus_per_pod=1), a_role(4, gpus_per_pod=8)], 4, {"master": "worker"}),
        ([a_role(4), a_role(2, name="ps") | {"spread": "leaf"}], 4, {"ps": ""}),
    ],
    ids=["plain", "near", "near the smaller", "mutual", "a smaller master", "spread"],
)
def test_the_largest_kind_is_laid_out_and_others_stand_beside_it(
    roles: list[dict[str, Any]], pods: int, near: dict[str, str]
) -> None:
    asked = request(a_job(*roles))
    assert asked.layout
    assert asked.layout.pods == pods
    assert {role.role: role.near for role in asked.roles if role.role in near} == near


def test_groups_tell_which_ranks_share_a_domain() -> None:
    plan = planned(trained({}, data=2, shard=2), nodes(4, 2, gpus=1)).launch_plan
    assert [(group.level, group.domain, group.ranks) for group in plan.groups] == [
        ("spine", "s0", "0-3"),
        ("leaf", "s0/l0", "0-1"),
        ("leaf", "s0/l1", "2-3"),
        *(("node", f"s0/l{i // 2}/n{i:05}", str(i)) for i in range(4)),
    ]
    assert [(use.level, use.domains) for use in plan.levels] == [("spine", 1), ("leaf", 2), ("node", 4)]


def test_ranks_are_those_of_processes_in_all_roles() -> None:
    job = a_job(
        a_role(1, name="master", gpus_per_pod=8, processes_per_pod=8), a_role(3, gpus_per_pod=8, processes_per_pod=8)
    )
    plan = planned(job, nodes(2, 2)).launch_plan
    by_leaf = {group.domain: group.ranks for group in plan.groups if group.level == "leaf"}
    assert by_leaf == {"s0/l0": "0-15", "s0/l1": "16-31"}


def test_first_fit_stands_beside_it_and_bytes_are_told_only_where_the_mesh_is_known() -> None:
    cluster = nodes(4, 4, gpus=1, shuffle=True)
    told = {use.level: use for use in planned(trained({}, pods=8, data=4, shard=2), cluster).launch_plan.levels}
    ours, theirs = told["leaf"].crossing_bytes, told["leaf"].first_fit_bytes
    assert ours is not None
    assert theirs is not None
    assert 0 < ours < theirs
    unknown = planned(a_job(a_role(8, gpus_per_pod=1)), cluster).launch_plan.levels
    assert [(use.crossing_bytes, use.first_fit_bytes) for use in unknown] == [(None, None)] * 3


def test_the_hash_covers_domains_and_whether_the_job_is_alone() -> None:
    cluster = nodes(4, 2, gpus=1)
    elsewhere = [node for node in cluster if node.labels["s"] == "s1"]
    job, alone = (a_job(a_role(2, gpus_per_pod=1), placement=p) for p in ({}, {"exclusive": "leaf"}))
    plans = [planned(job, cluster), planned(job, elsewhere), planned(alone, cluster)]
    assert len({plan.sha256 for plan in plans}) == 3
    again = FrozenPlan.load(plans[2].plan_config_map(), plans[2].placement_config_map(), plans[2].sha256)
    assert reservation(again).exclusive == "leaf"
    assert reservation(plans[0]).exclusive == ""


def test_a_plan_of_25000_pods_stays_small_and_tells_the_levels_for_which_there_is_room() -> None:
    job = a_job(a_role(25_000, gpus_per_pod=8))
    plan = planned(job, nodes(800, 32, shuffle=True))
    assert len(plan.plan_text) < 64 * 1024
    assert {group.level for group in plan.launch_plan.groups} == {"spine"}
    assert sum(len(g.domain) + len(g.ranks) for g in plan.launch_plan.groups) < MOST_BYTES
    assert plan.launch_plan.levels[1].domains == -(-25_000 // 32)


def test_what_was_preferred_and_not_had_is_told_and_nothing_else() -> None:
    job = a_job(a_role(4, gpus_per_pod=1), placement=constraint("pods", "leaf"))
    asked = request(job)
    tight, roomy = (TopologySolver(TREE).place(asked, snapshot(nodes(2, n, gpus=1), [])) for n in (2, 4))
    assert tight
    assert roomy
    assert note(asked, tight) == "Preferred, but not to be had: pods within leaf."
    assert note(asked, roomy) == ""
    blind = TopologySolver(Topology()).place(asked, snapshot(nodes(2, 2, gpus=1), []))
    assert blind
    assert "no topology" in note(asked, blind)
    plain = request(a_trained_job())
    anywhere = TopologySolver(Topology()).place(plain, snapshot(nodes(1, 1), []))
    assert anywhere
    assert note(plain, anywhere) == ""
