"""Options become arguments: pure, no process."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.access import write_private
from devcluster.arguments import apiserver, controllers, etcd, scheduler
from devcluster.nodes import NodeSettings
from devcluster.settings import Layout, Options, Ports

LAYOUT, PORTS = Layout(Path("/c")), Ports(api=1, controllers=2, scheduler=3)


def test_the_node_grace_period_reaches_the_controllers() -> None:
    assert "--node-monitor-grace-period=3.5s" in controllers(LAYOUT, PORTS, Options(node_monitor_grace_seconds=3.5))


def test_tolerations_default_to_upstreams_and_can_be_shortened() -> None:
    for options, seconds in ((Options(), 300), (Options(toleration_seconds=5), 5)):
        arguments = apiserver(LAYOUT, PORTS, options)
        assert f"--default-not-ready-toleration-seconds={seconds}" in arguments
        assert f"--default-unreachable-toleration-seconds={seconds}" in arguments


def test_feature_gates_reach_the_three_that_know_them() -> None:
    options = Options(feature_gates={"GangScheduling": True, "Other": False})
    for arguments in (apiserver, controllers, scheduler):
        assert "--feature-gates=GangScheduling=true,Other=false" in arguments(LAYOUT, PORTS, options)
        assert not [a for a in arguments(LAYOUT, PORTS, Options()) if a.startswith("--feature-gates")]


def test_api_versions_can_be_turned_on() -> None:
    arguments = apiserver(LAYOUT, PORTS, Options(runtime_config={"scheduling.k8s.io/v1alpha1": True}))
    assert "--runtime-config=scheduling.k8s.io/v1alpha1=true" in arguments


def test_the_audit_log_can_be_left_out() -> None:
    assert "--audit-log-mode=blocking" in apiserver(LAYOUT, PORTS, Options())
    assert not [a for a in apiserver(LAYOUT, PORTS, Options(audit=False)) if "audit" in a]


def test_all_listen_on_loopback_or_on_a_socket_only() -> None:
    for arguments in (apiserver, controllers, scheduler):
        assert "--bind-address=127.0.0.1" in arguments(LAYOUT, PORTS, Options())
    listening = [a.partition("=")[2] for a in etcd(LAYOUT) if a.startswith("--listen")]
    assert listening
    assert all(url.startswith("unix://") for url in listening)


def test_node_settings_become_the_node_programs_command_line() -> None:
    command = NodeSettings(mode="fake", count=3, gpus=8, labels={"a": "b", "c/d": ""}).command(LAYOUT, Path("/s"))
    assert command[3] == "devcluster.node"
    assert {"--mode=fake", "--count=3", "--gpus=8", "--label=a=b", "--label=c/d=", "--state-dir=/s"} <= set(command)
    assert "--kubeconfig=/c/kubeconfig-devcluster-nodes" in command


@pytest.mark.parametrize("before", [None, 0o644])
def test_private_files_are_private_even_where_a_public_one_was(tmp_path: Path, before: int | None) -> None:
    path = tmp_path / "token"
    if before:
        path.touch(before)
    write_private(path, "secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "secret"
