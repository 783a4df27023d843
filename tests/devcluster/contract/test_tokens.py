"""The contract: a pod's identity towards the API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster.node.testing import Pods, eventually

pytestmark = pytest.mark.cluster

_TELL = r"""
import json, os, ssl, urllib.request
base = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(base + "token").read()
url = "https://%s:%s/api" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=base + "ca.crt")))
print(json.dumps({"token": token, "namespace": open(base + "namespace").read(),
    "kind": json.load(opener.open(request))["kind"], "audience": open("/tokens/vault").read()}))
"""


def _review(pods: Pods, token: str, audiences: list[str] | None) -> Any:
    spec = {"token": token} | ({"audiences": audiences} if audiences else {})
    return pods.client.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})["status"]


def test_tokens_say_who_the_pod_is_and_to_whom(pods: Pods) -> None:
    pods.make("serviceaccounts", "trainer")
    source = {"serviceAccountToken": {"path": "vault", "audience": "vault.example.org", "expirationSeconds": 600}}
    created = pods.create(
        "identity",
        container={
            "command": ["sh", "-c", 'python3 -c "$0" && exec sleep 60', _TELL],
            "volumeMounts": [{"name": "tokens", "mountPath": "/tokens"}],
        },
        volumes=[{"name": "tokens", "projected": {"sources": [source]}}],
        serviceAccountName="trainer",
    )
    pods.wait("identity", "Running")
    told = json.loads(eventually(lambda: pods.log("identity"), "it tells"))
    assert told["namespace"] == pods.namespace
    assert told["kind"] == "APIVersions", "the API server's certificate and the token are good"
    status = _review(pods, told["token"], None)
    assert status["authenticated"]
    assert status["user"]["username"] == f"system:serviceaccount:{pods.namespace}:trainer"
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["identity"]
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [created["metadata"]["uid"]]
    assert _review(pods, told["audience"], ["vault.example.org"])["audiences"] == ["vault.example.org"]
    assert not _review(pods, told["audience"], None).get("authenticated"), "it is for somebody else"
    assert not _review(pods, told["token"], ["vault.example.org"]).get("authenticated")
