"""The contract: what a container finds in its environment and on its command line."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from devcluster.node.testing import Pods, state_of

pytestmark = pytest.mark.cluster
_TELL = "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:], 'cwd': os.getcwd()}))"


def _field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resource(resource: str, divisor: str = "0") -> dict[str, Any]:
    return {"valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}


def _key(kind: str, name: str, key: str, *, optional: bool = False) -> dict[str, Any]:
    return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, "optional": optional}}}


def test_every_source_of_variables_and_every_expansion(pods: Pods, kubelet: Any) -> None:
    pods.make("configmaps", "settings", data={"color": "blue", "size": "10"})
    pods.make("secrets", "keys", data={"password": base64.b64encode(b"hunter2").decode()})
    env = {
        "LITERAL": {"value": "plain"},
        "REFERS_BACK": {"value": "<$(LITERAL)>"},
        "REFERS_FORWARD": {"value": "<$(LATER)>"},
        "ESCAPED": {"value": "$$(LITERAL) $(LITERAL) $$$(LITERAL) $LITERAL $("},
        "TWICE": {"value": "$(REFERS_FORWARD)"},
        "FROM_WHOLE": {"value": "$(cm_color)/$(KUBERNETES_SERVICE_PORT)"},
        "LATER": {"value": "late"},
        "EMPTY": {"value": ""},
        "NAME": _field("metadata.name"),
        "NAMESPACE": _field("metadata.namespace"),
        "UID": _field("metadata.uid"),
        "RANK": _field("metadata.labels['example.org/rank']"),
        "NOTE": _field("metadata.annotations['note']"),
        "NO_SUCH_LABEL": _field("metadata.labels['none']"),
        "NODE": _field("spec.nodeName"),
        "ACCOUNT": _field("spec.serviceAccountName"),
        "POD_IP": _field("status.podIP"),
        "POD_IPS": _field("status.podIPs"),
        "HOST_IP": _field("status.hostIP"),
        "CPU_LIMIT": _resource("limits.cpu"),
        "CPU_MILLIS": _resource("limits.cpu", "1m"),
        "CPU_REQUEST": _resource("requests.cpu", "1m"),
        "MEMORY_MIB": _resource("limits.memory", "1Mi"),
        "SIZE": _key("configMap", "settings", "size"),
        "PASSWORD": _key("secret", "keys", "password"),
        "NO_KEY": _key("configMap", "settings", "none", optional=True),
        "NO_MAP": _key("configMap", "none", "none", optional=True),
        "cm_size": {"value": "overridden"},
    }
    created = pods.create(
        "variables",
        metadata={"labels": {"example.org/rank": "7"}, "annotations": {"note": "two words"}},
        container={
            "command": ["python3", "-c", _TELL, "$(LITERAL)", "$$(LITERAL)", "$(NOT_SET)", "$(LITERAL)$(LATER) x"],
            "args": ["$(POD_IP)", "a b"],
            "env": [{"name": name, **source} for name, source in env.items()],
            "envFrom": [
                {"prefix": "cm_", "configMapRef": {"name": "settings"}},
                {"secretRef": {"name": "keys"}},
                {"configMapRef": {"name": "none", "optional": True}},
            ],
            "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}},
        },
    )
    pod = pods.finished("variables")
    told = json.loads(pods.log("variables"))
    got = told["env"]
    assert {name: got.get(name) for name in env} == {
        "LITERAL": "plain",
        "REFERS_BACK": "<plain>",
        "REFERS_FORWARD": "<$(LATER)>",
        "ESCAPED": "$(LITERAL) plain $plain $LITERAL $(",
        "TWICE": "<$(LATER)>",
        "FROM_WHOLE": f"blue/{got['KUBERNETES_SERVICE_PORT']}",
        "LATER": "late",
        "EMPTY": "",
        "NAME": "variables",
        "NAMESPACE": pods.namespace,
        "UID": created["metadata"]["uid"],
        "RANK": "7",
        "NOTE": "two words",
        "NO_SUCH_LABEL": "",
        "NODE": pod["spec"]["nodeName"],
        "ACCOUNT": "default",
        "POD_IP": pod["status"]["podIP"],
        "POD_IPS": pod["status"]["podIP"],
        "HOST_IP": pod["status"]["hostIP"],
        "CPU_LIMIT": "2",
        "CPU_MILLIS": "1500",
        "CPU_REQUEST": "250",
        "MEMORY_MIB": "64",
        "SIZE": "10",
        "PASSWORD": "hunter2",
        "NO_KEY": None,
        "NO_MAP": None,
        "cm_size": "overridden",
    }
    assert got["cm_color"] == "blue"
    assert got["password"] == "hunter2"
    assert got["HOSTNAME"] == "variables"
    assert got["KUBERNETES_SERVICE_HOST"]
    assert "PYTEST_CURRENT_TEST" not in got, "nothing of the node's own environment shows"
    assert told["argv"] == ["plain", "$(LITERAL)", "$(NOT_SET)", "plainlate x", pod["status"]["podIP"], "a b"]
    assert told["cwd"] == kubelet.working_dir


def test_a_missing_config_map_is_waited_for_and_named(pods: Pods) -> None:
    pods.create("early", "true", container={"env": [{"name": "A", **_key("configMap", "late", "a")}]})
    waiting = pods.wait_until(
        "early",
        lambda pod: (
            "containerStatuses" in pod["status"] and state_of(pod).get("reason") == "CreateContainerConfigError"
        ),
        "waits",
    )
    assert waiting["status"]["phase"] == "Pending"
    assert state_of(waiting)["message"] == 'configmap "late" not found'
    pods.make("configmaps", "late", data={"b": "1"})
    wanted = f"couldn't find key a in ConfigMap {pods.namespace}/late"
    pods.wait_until("early", lambda pod: state_of(pod).get("message") == wanted, "names the key")
    pods.client.merge(pods.path("late", "configmaps"), {"data": {"a": "1"}})
    assert pods.finished("early")["status"]["phase"] == "Succeeded"
