"""A namespace's quota is asked for the whole gang before its first pod is made."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.lifecycle.model import Identity, Pod, PodState
from meshwright.placement.model import GangRequest, RoleRequest
from meshwright.placement.queueing.claims import Claim
from meshwright.placement.queueing.quota import Quota, shortage
from meshwright.placement.supply.resources import NOTHING
from meshwright.quotas import Promises
from tests.controller.placement.clusters import a_gang


def a_pod(**spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2, "nvidia.com/gpu": 4}}
    return {"spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


def a_quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> Quota:
    status = {"hard": hard, "used": used or {}}
    return Quota.parse({"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": status})


CLAIM = Claim.of(a_pod())
FOUR = ((CLAIM, 4),)


def test_a_pod_counts_as_the_api_server_counts_it() -> None:
    assert dict(CLAIM.amounts) == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 500,
        "requests.cpu": 500,
        "limits.cpu": 2000,
        "memory": 2**30,
        "requests.memory": 2**30,
        "requests.nvidia.com/gpu": 4,
    }


@pytest.mark.parametrize(
    ("hard", "used", "says"),
    [
        ({"pods": "4"}, {"pods": "0"}, ""),
        ({"pods": "4"}, {"pods": "1"}, "ResourceQuota team: 4 pods needed, 3 of 4 left"),
        ({"count/pods": "3"}, {}, "ResourceQuota team: 4 count/pods needed, 3 of 3 left"),
        ({"requests.cpu": "2"}, {}, ""),
        ({"cpu": "1500m"}, {}, "ResourceQuota team: 2 cpu needed, 1.5 of 1.5 left"),
        ({"limits.cpu": "7"}, {}, "ResourceQuota team: 8 limits.cpu needed, 7 of 7 left"),
        ({"requests.memory": "5Gi"}, {"requests.memory": "2Gi"}, "4Gi requests.memory needed, 3Gi of 5Gi left"),
        ({"requests.nvidia.com/gpu": "12"}, {}, "16 requests.nvidia.com/gpu needed, 12 of 12 left"),
        ({"requests.nvidia.com/gpu": "12"}, {"requests.nvidia.com/gpu": "99"}, "0 of 12 left"),
        ({"services": "0", "limits.memory": "1"}, {}, ""),
        ({"pods": "no quantity"}, {}, ""),
    ],
)
def test_what_is_lacking_is_said_with_figures(hard: dict[str, Any], used: dict[str, Any], says: str) -> None:
    found = shortage(FOUR, [a_quota(hard, used)])
    assert found.endswith(says) if says else not found


@pytest.mark.parametrize(
    ("spec", "pod", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, a_pod(), True),
        ({"scopes": ["Terminating"]}, a_pod(), False),
        ({"scopes": ["Terminating"]}, a_pod(activeDeadlineSeconds=9), True),
        ({"scopes": ["BestEffort"]}, a_pod(), False),
        ({"scopes": ["BestEffort"]}, {"spec": {"containers": [{"name": "c"}]}}, True),
        ({"scopes": ["NotBestEffort"]}, a_pod(), True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, a_pod(), False),
        (("In", ["high"]), a_pod(priorityClassName="high"), True),
        (("In", ["high"]), a_pod(), False),
        (("NotIn", ["high"]), a_pod(priorityClassName="low"), True),
        (("Exists", []), a_pod(priorityClassName="low"), True),
        (("Exists", []), a_pod(), False),
    ],
    ids=str,
)
def test_a_quota_with_scopes_counts_only_such_pods(spec: Any, pod: dict[str, Any], counts: bool) -> None:
    if isinstance(spec, tuple):
        expression = {"scopeName": "PriorityClass", "operator": spec[0], "values": spec[1]}
        spec = {"scopeSelector": {"matchExpressions": [expression]}}
    assert bool(shortage(((Claim.of(pod), 2),), [a_quota({"pods": "1"}, **spec)])) == counts


def a_request(uid: str, pods: int) -> GangRequest:
    return a_gang(uid, RoleRequest("worker", pods, NOTHING, claim=CLAIM))


def test_a_gang_that_restarts_may_use_what_its_own_pods_give_back() -> None:
    quota = a_quota({"pods": "4"}, {"pods": "4"})
    old = [Pod(f"p{i}", f"p{i}", Identity("worker", i, 1), PodState.RUNNING) for i in range(4)]
    assert Promises().shortage(a_request("u", 4), [quota], old) == ""
    ended = [Pod("p", "p", Identity("worker", 0, 1), PodState.FAILED)]
    assert Promises().shortage(a_request("u", 4), [quota], ended), "what has ended is not counted as used"


def test_what_was_promised_to_one_gang_is_not_promised_to_another() -> None:
    """K41: the quota shows the first one's pods only when they are made."""
    promises, quota = Promises(), a_quota({"pods": "5"})
    promises.make(a_request("first", 4))
    assert "1 of 5 left" in promises.shortage(a_request("second", 4), [quota], ())
    assert promises.shortage(a_request("first", 4), [quota], ()) == "", "not counted against itself"
    assert promises.kept("first")
    assert not promises.kept("first")
    assert promises.shortage(a_request("second", 4), [quota], ()) == ""
