"""The NetworkPolicy of a job on the API server. That it is enforced is the network plugin's work, and none is here."""

from __future__ import annotations

import json

from meshwright_api import names
from tests.system.stage import Json, Stage, a_job, eventually


def test_a_network_policy_is_there_before_the_first_pod_and_goes_with_the_job(stage: Stage) -> None:
    uid = stage.create(a_job("closed", workers=2))
    stage.wait_phase("closed", "Running")
    (policy,) = policies(stage)
    gang = {"matchLabels": {names.LABEL_JOB_UID: uid}}
    assert policy["spec"] == {
        "podSelector": gang,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": gang}]}],
    }
    assert all(pod["metadata"]["labels"][names.LABEL_JOB_UID] == uid for pod in stage.gang(1))
    created = creations(stage)
    assert created.count("networkpolicies") == 1
    assert created.index("networkpolicies") < created.index("pods")
    stage.delete("closed")
    eventually(lambda: not policies(stage), "the garbage collector removes the policy")


def test_one_policy_is_for_all_incarnations(stage: Stage) -> None:
    stage.create(a_job("again"))
    stage.wait_phase("again", "Running")
    (before,) = policies(stage)
    stage.end(stage.gang(1)[0])
    stage.wait_phase("again", "Running", attempt=2)
    (after,) = policies(stage)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def policies(stage: Stage) -> list[Json]:
    path = f"/apis/networking.k8s.io/v1/namespaces/{stage.namespace}/networkpolicies"
    return list(stage.cluster.request("GET", path)["items"])


def creations(stage: Stage) -> list[str]:
    """The kinds of the objects that were created in the namespace, in order, by the API server's audit log."""
    events = map(json.loads, stage.cluster.audit_log.read_text().splitlines())
    return [
        event["objectRef"]["resource"]
        for event in events
        if event.get("verb") == "create"
        and (event.get("objectRef") or {}).get("namespace") == stage.namespace
        and not event["objectRef"].get("subresource")
        and (event.get("responseStatus") or {}).get("code") == 201
    ]
