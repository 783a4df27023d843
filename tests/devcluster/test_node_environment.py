"""Environment, commands and their expansion, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.environment import configs_of, entries, execution
from devcluster.node.errors import NotYet
from devcluster.node.expansion import expand
from devcluster.node.fields import Site, field_value
from devcluster.node.model import Pod, parse_pod
from devcluster.node.quantity import divided, parse_quantity

SITE = Site("127.20.0.1", "127.0.0.1", {"cpu": "4", "memory": "8Gi"})
_VARIABLES = {"VAR_A": "A", "VAR_B": "B", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": "", "my.name": "dotted"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___$(VAR_A)", "___B___A"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("foo\\$(VAR_A)", "foo\\A"),
        ("$(VAR_EMPTY)|", "|"),
        ("$(my.name)", "dotted"),
        ("$(NOT_THERE)", "$(NOT_THERE)"),
        ("$$(NOT_THERE)", "$(NOT_THERE)"),
        ("$(VAR_A", "$(VAR_A"),
        ("$(VAR_A)$(VAR_B", "A$(VAR_B"),
        ("$", "$"),
        ("$$", "$"),
        ("$VAR_A", "$VAR_A"),
        ("${VAR_A}", "${VAR_A}"),
        ("$()", "$()"),
        ("$)(VAR_A)", "$)(VAR_A)"),
        ("a$", "a$"),
        ("$(($(VAR_A))", "$(($(VAR_A))"),
    ],
)
def test_expansion_follows_the_rules_of_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, _VARIABLES) == expanded


@given(st.text(alphabet="$()AB x"))
def test_what_has_no_dollar_is_left_alone_and_doubling_every_dollar_escapes(text: str) -> None:
    assert expand(text.replace("$", ""), {"A": "1"}) == text.replace("$", "")
    assert expand(text.replace("$", "$$"), {"A": "1", "": "2", "B": "3"}) == text


def a_pod(container: dict[str, Any] | None = None, **spec: Any) -> Pod:
    main = {"name": "main", "image": "any", "command": ["true"], **(container or {})}
    return parse_pod(
        {
            "metadata": {
                "uid": "u-1", "name": "p", "namespace": "ns",
                "labels": {"app": "x"}, "annotations": {"quote": 'a"b\nc'},
            },
            "spec": {"nodeName": "n", "containers": [main], "restartPolicy": "Never", **spec},
        }
    )  # fmt: skip


def _env_of(env: list[dict[str, Any]], configs: Any = None, **container: Any) -> dict[str, str]:
    pod = a_pod({"env": env, **container})
    run = execution(pod, pod.containers[0], SITE, configs or {}, {"PATH": "/bin"}, {"KUBERNETES_SERVICE_HOST": "h"})
    return dict(run.env)


def test_a_variable_may_refer_to_earlier_ones_and_to_services_only() -> None:
    env = _env_of(
        [
            {"name": "A", "value": "$(B)"},
            {"name": "B", "value": "b"},
            {"name": "C", "value": "$(A)-$(B)-$(KUBERNETES_SERVICE_HOST)-$(PATH)"},
            {"name": "B", "value": "again $(B)"},
        ]
    )
    assert (env["A"], env["B"], env["C"]) == ("$(B)", "again b", "$(B)-b-h-$(PATH)")


def test_the_containers_own_entries_win() -> None:
    env = _env_of([{"name": "PATH", "value": "/mine"}, {"name": "KUBERNETES_SERVICE_HOST", "value": "other"}])
    assert (env["PATH"], env["KUBERNETES_SERVICE_HOST"]) == ("/mine", "other")


def test_an_optional_key_that_is_missing_leaves_an_earlier_value() -> None:
    configs = {("configmap", "c"): {"A": b"whole"}}
    ref = {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "none", "optional": True}}}
    env = _env_of([{"name": "A", **ref}], configs, envFrom=[{"configMapRef": {"name": "c"}}])
    assert env["A"] == "whole"


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({("secret", "s"): None}, 'secret "s" not found'),
        ({("secret", "s"): {"other": b""}}, "couldn't find key k in Secret ns/s"),
    ],
)
def test_what_is_missing_is_named(configs: Any, message: str) -> None:
    ref = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    with pytest.raises(NotYet, match=message) as caught:
        _env_of([{"name": "A", **ref}], configs)
    assert caught.value.waiting == "CreateContainerConfigError"


def test_every_config_that_is_needed_is_known_beforehand() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    pod = a_pod({"env": env, "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}]})
    assert configs_of(pod.containers[0]) == {("secret", "s"), ("configmap", "c")}


def test_secrets_and_binary_data_are_decoded() -> None:
    assert entries("secret", {"data": {"a": "aGk="}}) == {"a": b"hi"}
    assert entries("configmap", {"data": {"a": "hi"}, "binaryData": {"b": "/w=="}}) == {"a": b"hi", "b": b"\xff"}
    assert entries("configmap", {}) == {}


def test_metadata_as_lines_is_quoted() -> None:
    assert field_value(a_pod(), SITE, "metadata.annotations") == 'quote="a\\"b\\nc"'
    assert field_value(a_pod(), SITE, "metadata.labels") == 'app="x"'
    with pytest.raises(NotYet, match="unsupported fieldPath"):
        field_value(a_pod(), SITE, "spec.schedulerName")


def test_a_limit_that_is_not_set_is_the_nodes() -> None:
    def shown(resource: str) -> str:
        ref = {"resourceFieldRef": {"resource": resource}}
        return _env_of([{"name": "A", "valueFrom": ref}])["A"]

    assert (shown("limits.cpu"), shown("limits.memory"), shown("requests.cpu")) == ("4", str(8 << 30), "0")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", "0.5"),
        ("2", "2"),
        ("4Gi", str(4 << 30)),
        ("1.5Ki", "1536"),
        ("2k", "2000"),
        ("1e3", "1000"),
        ("3E", "3e18"),
    ],
)
def test_quantities(text: str, number: str) -> None:
    assert parse_quantity(text) == parse_quantity(number)


def test_quantities_are_rounded_up_and_nonsense_is_refused() -> None:
    assert (divided("1100m", "1"), divided("1Gi", "1Mi"), divided("1", "1m"), divided("1", "0")) == (
        "2",
        "1024",
        "1000",
        "1",
    )
    for text in ("", "x", "1Zi", "--1"):
        with pytest.raises(ValueError, match="not a quantity"):
            parse_quantity(text)
