"""Gangs that share a node's network: every port is one gang's, and one pod's of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.placement.model import Placed
from meshwright.rendering.errors import PortsTaken
from meshwright.rendering.fabric.ports import PORTS, block
from meshwright.rendering.gang import FrozenPlan, Ground, RenderSettings, freeze, pod_manifest, request
from tests.controller.rendering.fabrics import a_profile, trained
from tests.controller.rendering.jobs import a_job, a_role, a_trained_job, env_of

HOST = a_profile("host", hostNetwork=True)


def gang(uid: str, nodes: list[str], taken: tuple[range, ...] = (), **spec: Any) -> FrozenPlan:
    """A gang of the built-in trainer on these nodes, one pod each."""
    role = {"name": "worker", "replicas": len(nodes), "gpusPerPod": 1, **spec}
    job = a_trained_job(role)
    job = replace(job, metadata=replace(job.metadata, uid=uid))
    placed = Placed({("worker", index): node for index, node in enumerate(nodes)})
    return freeze(
        job,
        attempt=1,
        incarnation=1,
        request=request(job, profile=HOST),
        placed=placed,
        settings=RenderSettings(profile=HOST),
        ground=Ground(ports=taken),
    )


def listening(plan: FrozenPlan) -> list[tuple[str, int]]:
    """(node, port) of everything that the gang's pods listen at, as they are told."""
    found = []
    for member in plan.members:
        pod = pod_manifest(plan, *member)
        env = env_of(pod)
        found.append((plan.nodes[member], int(env["MESHWRIGHT_METRICS_PORT"])))
        if member == ("worker", 0):
            found.append((plan.nodes[member], int(env["MASTER_PORT"])))
    return found


@given(gangs=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=2, max_size=6))
@settings(max_examples=25, deadline=None)
def test_no_two_listen_at_one_port_of_a_node(gangs: list[list[str]]) -> None:
    plans: list[FrozenPlan] = []
    for number, nodes in enumerate(gangs):
        taken = tuple(p.ports for p in plans if p.ports and set(p.nodes.values()) & set(nodes))
        plans.append(gang(f"uid-{number}", nodes, taken))
    counts = Counter(place for plan in plans for place in listening(plan))
    assert [place for place, count in counts.items() if count > 1] == []
    assert all(port in PORTS for _, port in counts)


def test_two_gangs_that_would_begin_at_one_port_get_different_ones() -> None:
    first = block("the same", {("worker", 0): "a"}, [])
    second = block("the same", {("worker", 0): "a"}, [first])
    assert not set(first) & set(second)


def test_when_all_are_taken_it_is_said() -> None:
    with pytest.raises(PortsTaken, match="no 2 ports in a row"):
        block("x", {("worker", 0): "a"}, [range(PORTS.start, PORTS.stop - 1)])
    assert block("x", {("worker", 0): "a"}, [range(PORTS.start, PORTS.stop - 2)]) == range(PORTS.stop - 2, PORTS.stop)


def test_the_port_of_metrics_is_declared_as_it_is_served() -> None:
    """kube-scheduler keeps pods apart by the ports that they declare."""
    plan = gang("uid", ["a", "a", "b"])
    for member in plan.members:
        pod = pod_manifest(plan, *member)
        (port,) = [p for p in trained(pod)["ports"] if p["name"] == "metrics"]
        assert port["containerPort"] == int(env_of(pod)["MESHWRIGHT_METRICS_PORT"])
    assert pod_manifest(plan, "worker", 0)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_all_of_it_is_frozen() -> None:
    plan = gang("uid", ["a", "a"])
    again = FrozenPlan.load(plan.plan_config_map(), plan.placement_config_map())
    assert again.ports == plan.ports
    assert [pod_manifest(again, *m) for m in again.members] == [pod_manifest(plan, *m) for m in plan.members]


def test_a_template_that_asks_for_the_hosts_network_itself_gets_ports_too() -> None:
    job = a_job(a_role(1, hostNetwork=True))

    def plan(*taken: range) -> FrozenPlan:
        placed, ground = Placed({("worker", 0): "a"}), Ground(ports=taken)
        return freeze(
            job, attempt=1, incarnation=1, request=request(job), placed=placed, settings=RenderSettings(), ground=ground
        )

    first = plan()
    assert first.ports is not None
    ports = [env_of(pod_manifest(p, "worker", 0))["MASTER_PORT"] for p in (first, plan(first.ports))]
    assert len(set(ports)) == 2


def test_on_the_pod_network_ports_are_as_they_were() -> None:
    job = a_trained_job()
    plan = freeze(job, attempt=1, incarnation=1, request=request(job), placed=None, settings=RenderSettings())
    assert plan.ports is None
    assert env_of(pod_manifest(plan, "worker", 0))["MESHWRIGHT_METRICS_PORT"] == "9464"
