"""Names and addresses, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.node.addresses import Block
from devcluster.node.model import Pod, parse_pod
from devcluster.node.names import HeadlessService, Record, hosts_file, parse_service, records, with_addresses

GANG = HeadlessService("ns", "gang", {"app": "x"}, True)
READY_ONLY = HeadlessService("ns", "ready", {"app": "x"}, False)


def a_pod(name: str, *, ip: str = "127.20.0.1", phase: str = "Running", ready: str = "True", **more: Any) -> Pod:
    meta = {"uid": name, "name": name, "namespace": "ns", "labels": {"app": "x"}} | more.pop("metadata", {})
    spec = {"containers": [{"name": "a"}], "hostname": name, "subdomain": "gang"} | more
    status = {"phase": phase, "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}
    return parse_pod({"metadata": meta, "spec": spec, "status": status})


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("pod", "service", "hosts"),
    [
        (a_pod("a"), GANG, ["a"]),
        (a_pod("a", ready="False", phase="Pending"), GANG, ["a"]),
        (a_pod("a", metadata=DELETED), GANG, ["a"]),
        (a_pod("a", ip=""), GANG, []),
        (a_pod("a", phase="Failed"), GANG, []),
        (a_pod("a", metadata={"labels": {}}), GANG, []),
        (a_pod("a", metadata={"namespace": "other"}), GANG, []),
        (a_pod("a", subdomain="ready"), READY_ONLY, ["a"]),
        (a_pod("a", subdomain="ready", ready="False"), READY_ONLY, []),
        (a_pod("a", subdomain="ready", metadata=DELETED), READY_ONLY, []),
        (a_pod("a", subdomain="elsewhere"), GANG, [""]),
    ],
)
def test_who_has_a_name(pod: Pod, service: HeadlessService, hosts: list[str]) -> None:
    assert [one.host for one in records([pod], [service])] == hosts


def test_only_headless_services_have_names_here() -> None:
    meta = {"name": "gang", "namespace": "ns"}
    spec = {"clusterIP": "None", "selector": {"app": "x"}, "publishNotReadyAddresses": True}
    assert parse_service({"metadata": meta, "spec": spec}) == GANG
    assert parse_service({"metadata": meta, "spec": {"clusterIP": "10.96.0.7"}}) is None
    assert not HeadlessService("ns", "s", {}, True).selects(a_pod("a")), "no selector selects nothing"


def test_names_depend_on_who_asks() -> None:
    record = Record("ns", "gang", "a", "127.20.0.1")
    assert record.names("ns") == (
        "a.gang.ns.svc.cluster.local", "a.gang.ns.svc", "a.gang.ns", "a.gang",
        "gang.ns.svc.cluster.local", "gang.ns.svc", "gang.ns", "gang",
    )  # fmt: skip
    assert "a.gang" not in record.names("other")
    assert "a" not in record.names("ns"), "cluster DNS does not know a bare host name"


def test_the_hosts_file_is_a_kubelets_with_the_peers_below() -> None:
    alias = [{"ip": "10.1.1.1", "hostnames": ["foo", "bar"]}]
    text = hosts_file(
        a_pod("a", hostAliases=alias), "127.20.0.1", [Record("ns", "gang", "b", "127.20.0.2")], "127.0.0.1"
    )
    lines = text.splitlines()
    assert lines[0] == "# Kubernetes-managed hosts file."
    assert "127.20.0.1\ta.gang.ns.svc.cluster.local\ta" in lines
    assert "10.1.1.1\tfoo\tbar" in lines
    assert "127.0.0.1\tkubernetes.default.svc.cluster.local kubernetes.default.svc kubernetes.default" in lines
    assert lines[-1].startswith("127.20.0.2\tb.gang.ns.svc.cluster.local ")
    without = hosts_file(a_pod("a", subdomain=""), "127.20.0.1", [], "127.0.0.1")
    assert "127.20.0.1\ta" in without.splitlines()


@pytest.mark.parametrize(
    ("text", "expected", "missing"),
    [
        ("a.gang", "127.20.0.1", set()),
        ("tcp://a.gang.ns.svc.cluster.local:29500/x", "tcp://127.20.0.1:29500/x", set()),
        ("a.gang,b.gang", "127.20.0.1,b.gang", {"b.gang"}),
        ("a.gang.other", "a.gang.other", set()),
        ("x.a.gang", "x.a.gang", set()),
        ("a.gangway", "a.gangway", set()),
        ("nothing", "nothing", set()),
    ],
)
def test_names_become_addresses_where_there_are_no_namespaces(text: str, expected: str, missing: set[str]) -> None:
    peers = [Record("ns", "gang", "a", "127.20.0.1")]
    assert with_addresses(text, a_pod("me"), peers) == (expected, frozenset(missing))


def test_blocks_of_addresses_are_exclusive_until_they_are_closed() -> None:
    first, second = Block(), Block()
    assert first.number != second.number
    assert first.take(127).startswith(f"127.{first.number}.")
    number = first.number
    first.close()
    third = Block()
    assert third.number <= number
    for block in (second, third):
        block.close()


def test_addresses_are_not_used_again_while_others_are_free() -> None:
    block = Block()
    try:
        taken = [block.take(10) for _ in range(600)]
        assert len(set(taken)) == 600
        block.give_back(taken[0])
        assert block.take(10) not in taken
    finally:
        block.close()
