from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from meshwright.settings import InvalidSettings, Settings, parse


def test_defaults_are_usable() -> None:
    settings = parse([], {})
    assert settings.watched == (None,)
    assert settings.lease_duration_seconds > settings.lease_renew_deadline_seconds
    assert settings.lease_namespace == "default"


def test_flags_come_before_the_environment_and_that_before_defaults() -> None:
    env = {"MESHWRIGHT_WORKERS": "3", "MESHWRIGHT_LOG_FORMAT": "text"}
    settings = parse(["--workers", "5"], env)
    assert (settings.workers, settings.log_format, settings.api_concurrency) == (5, "text", 64)


def test_namespaces_are_a_list() -> None:
    assert parse(["--namespaces", "a, b,"], {}).watched == ("a", "b")
    assert parse([], {"MESHWRIGHT_NAMESPACES": ""}).watched == (None,)


def test_switches() -> None:
    assert parse(["--no-capacity-reader"], {}).capacity_reader is False
    assert parse([], {"MESHWRIGHT_CAPACITY_READER": "false"}).capacity_reader is False
    assert parse(["--capacity-reader"], {"MESHWRIGHT_CAPACITY_READER": "0"}).capacity_reader is True


def test_each_process_has_an_identity_of_its_own() -> None:
    """A process that is started again under its pod's name must not think that it holds the lease."""
    first, second = parse([], {"POD_NAME": "operator-0"}), parse([], {"POD_NAME": "operator-0"})
    assert first.identity.startswith("operator-0_")
    assert first.identity != second.identity


@pytest.mark.parametrize(
    ("env", "kubeconfig"),
    [
        ({"KUBECONFIG": "/x"}, "/x"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "MESHWRIGHT_KUBECONFIG": "/y"}, "/y"),
    ],
)
def test_the_kubeconfig_is_found_as_kubectl_finds_it(env: dict[str, str], kubeconfig: str) -> None:
    assert parse([], env).kubeconfig == kubeconfig


@pytest.mark.parametrize(
    ("argv", "env", "named"),
    [
        (["--workers", "many"], {}, "workers"),
        (["--workers", "0"], {}, "workers must be positive"),
        (["--lease-retry-seconds", "20"], {}, "lease times must grow"),
        (["--topology", "gke", "--topology-levels", "leaf=a/l"], {}, "cannot both be given"),
        (["--topology-levels", "leaf=not a label"], {}, "no label of nodes"),
        (["--topology", "gke", "--topology-bandwidth", "leaf=3"], {}, "levels are block, subblock, host, node"),
        (["--topology-bandwidth", "leaf=3"], {}, "none, since no topology is set"),
        ([], {"MESHWRIGHT_LOG_FORMAT": "xml"}, "log_format cannot be 'xml'"),
        ([], {"MESHWRIGHT_CAPACITY_READER": "perhaps"}, "capacity_reader"),
        (["--metrics-scrapers", "monitoring"], {}, "metrics_scrapers is no JSON"),
        (["--metrics-scrapers", "{}"], {}, "metrics_scrapers must be a list of peers"),
        (["--metrics-scrapers", '[{"pods": {}}]'], {}, "namespaceSelector"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_name(argv: list[str], env: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidSettings, match=named):
        parse(argv, env)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[{name: a, preset: RoCE}]", "no preset RoCE"),
        ("[{name: a", "profiles_file"),
        ("", "must be a list"),
        (None, "No such file"),
    ],
)
def test_profiles_that_cannot_be_used_are_said_with_their_file(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "profiles.yaml"
    if text is not None:
        file.write_text(text)
    settings = parse(["--profiles-file", str(file)], {})
    with pytest.raises(InvalidSettings, match=f"(?s){file}.*{says}|{says}.*{file}"):
        _ = settings.profiles


def test_every_setting_says_what_it_is() -> None:
    assert all(spec.metadata["help"] for spec in fields(Settings))


@pytest.mark.parametrize(
    ("argv", "endpoint"),
    [
        ([], "http://meshwright-operator-heartbeat.default.svc:8082"),
        (["--lease-name=a", "--lease-namespace=b", "--heartbeat-port=9"], "http://a-heartbeat.b.svc:9"),
        (["--heartbeat-url=http://127.0.0.1:9"], "http://127.0.0.1:9"),
        (["--heartbeat-port=0"], ""),
    ],
)
def test_agents_report_to_the_charts_service_unless_told_otherwise(argv: list[str], endpoint: str) -> None:
    assert parse(argv, {}).heartbeat_endpoint == endpoint


def test_a_topology_is_one_of_the_presets_or_none() -> None:
    assert parse([], {}).topology == ""
    assert parse([], {"MESHWRIGHT_TOPOLOGY": "topograph"}).topology == "topograph"
    with pytest.raises(InvalidSettings, match="topology cannot be 'mine'"):
        parse([], {"MESHWRIGHT_TOPOLOGY": "mine"})
