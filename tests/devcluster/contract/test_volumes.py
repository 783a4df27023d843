"""The contract: what a container finds in its file system."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from devcluster.node.testing import Pods, eventually, state_of

pytestmark = pytest.mark.cluster

_TELL = r"""
import json, os, stat, sys
def look(path):
    try:
        if os.path.isdir(path):
            return sorted(name for name in os.listdir(path) if not name.startswith(".."))
        return [open(path).read(), oct(stat.S_IMODE(os.stat(path).st_mode))]
    except OSError as error:
        return error.strerror
def write(path):
    try:
        open(path, "w").write("x")
        return "written"
    except OSError as error:
        return error.strerror
wanted = json.loads(sys.argv[1])
print(json.dumps({"see": {p: look(p) for p in wanted["see"]}, "write": {p: write(p) for p in wanted["write"]}}))
"""


def _tell(see: list[str], write: list[str]) -> list[str]:
    return ["python3", "-c", _TELL, json.dumps({"see": see, "write": write})]


def test_config_maps_secrets_and_metadata_as_files(pods: Pods) -> None:
    binary = base64.b64encode(b"bin").decode()
    pods.make("configmaps", "settings", data={"a": "1", "b": "2"}, binaryData={"c": binary})
    pods.make("secrets", "keys", data={"token": base64.b64encode(b"secret").decode()})
    item = {"key": "a", "path": "deep/er/name", "mode": 0o400}
    fields = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "rank", "fieldRef": {"fieldPath": "metadata.annotations['rank']"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}},
    ]
    volumes: dict[str, dict[str, Any]] = {
        "all": {"configMap": {"name": "settings"}},
        "some": {"configMap": {"name": "settings", "items": [item], "defaultMode": 0o600}},
        "none": {"configMap": {"name": "no-such", "optional": True}},
        "secret": {"secret": {"secretName": "keys", "defaultMode": 0o440}},
        "self": {"downwardAPI": {"items": fields}},
        "mixed": {
            "projected": {
                "defaultMode": 0o444,
                "sources": [
                    {"configMap": {"name": "settings", "items": [{"key": "b", "path": "from-map"}]}},
                    {"secret": {"name": "keys"}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ],
            }
        },
    }
    paths = {"all": "/config/all", "some": "/etc/some", "none": "/none", "secret": "/var/run/keys", "self": "/self"}
    paths["mixed"] = "/opt/no/such/folder"
    see = [
        "/config/all", "/config/all/a", "/config/all/c", "/etc/some/deep/er/name", "/etc/some", "/none",
        "/var/run/keys/token", "/self/labels", "/self/rank", "/self/memory", "/opt/no/such/folder/from-map",
        "/opt/no/such/folder/token", "/opt/no/such/folder/name", "/one-file",
    ]  # fmt: skip
    pods.create(
        "files",
        metadata={"labels": {"b": "2", "a": "1"}, "annotations": {"rank": "3"}},
        container={
            "command": _tell(see, ["/config/all/new", "/one-file"]),
            "resources": {"limits": {"memory": "64Mi"}},
            "volumeMounts": [
                *({"name": name, "mountPath": path} for name, path in paths.items()),
                {"name": "all", "mountPath": "/one-file", "subPath": "b"},
            ],
        },
        volumes=[{"name": name, **volume} for name, volume in volumes.items()],
    )
    assert pods.finished("files")["status"]["phase"] == "Succeeded"
    told = json.loads(pods.log("files"))
    assert told["see"] == {
        "/config/all": ["a", "b", "c"],
        "/config/all/a": ["1", "0o644"],
        "/config/all/c": ["bin", "0o644"],
        "/etc/some": ["deep"],
        "/etc/some/deep/er/name": ["1", "0o400"],
        "/none": [],
        "/var/run/keys/token": ["secret", "0o440"],
        "/self/labels": ['a="1"\nb="2"', "0o644"],
        "/self/rank": ["3", "0o644"],
        "/self/memory": ["67108864", "0o644"],
        "/opt/no/such/folder/from-map": ["2", "0o444"],
        "/opt/no/such/folder/token": ["secret", "0o444"],
        "/opt/no/such/folder/name": ["files", "0o444"],
        "/one-file": ["2", "0o644"],
    }
    assert set(told["write"].values()) == {"Read-only file system"}


def test_folders_that_are_shared_kept_and_protected(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("from the host")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    claimed = tmp_path / "claimed"
    claimed.mkdir()
    capacity = {"storage": "1Gi"}
    modes = ["ReadWriteMany"]
    volume_name = f"volume-{pods.namespace}"
    pods.client.request(
        "POST",
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": volume_name},
            "spec": {
                "capacity": capacity, "accessModes": modes, "hostPath": {"path": str(claimed)},
                "claimRef": {"namespace": pods.namespace, "name": "checkpoints"}, "storageClassName": "",
            },
        },
    )  # fmt: skip
    volume = f"/api/v1/persistentvolumes/{volume_name}"
    eventually(lambda: pods.client.request("GET", volume)["status"].get("phase") == "Available", "the volume is known")
    spec = {"accessModes": modes, "resources": {"requests": capacity}, "storageClassName": ""}
    pods.make("persistentvolumeclaims", "checkpoints", spec=spec | {"volumeName": volume_name})
    script = "echo from-init > /scratch/a && mkdir -p /scratch/sub && echo in-sub > /scratch/sub/b"
    pods.create(
        "folders",
        initContainers=[
            {"name": "first", "command": ["sh", "-c", script],
             "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
        ],
        container={
            "command": _tell(
                ["/scratch/a", "/part/b", "/host/given", "/new-part", "/named-part"],
                ["/scratch/new", "/host/new", "/frozen/new", "/checkpoints/step-1", "/new-part/x", "/dev/shm/x"],
            ),
            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [
                {"name": "scratch", "mountPath": "/scratch"},
                {"name": "scratch", "mountPath": "/part", "subPath": "sub"},
                {"name": "scratch", "mountPath": "/new-part", "subPath": "made/now"},
                {"name": "scratch", "mountPath": "/named-part", "subPathExpr": "of-$(POD)"},
                {"name": "host", "mountPath": "/host"},
                {"name": "host", "mountPath": "/frozen", "readOnly": True},
                {"name": "claim", "mountPath": "/checkpoints"},
            ],
        },
        volumes=[
            {"name": "scratch", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": str(tmp_path), "type": "Directory"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "checkpoints"}},
        ],
    )  # fmt: skip
    assert pods.finished("folders")["status"]["phase"] == "Succeeded"
    told = json.loads(pods.log("folders"))
    assert told["see"]["/scratch/a"][0] == "from-init\n"
    assert told["see"]["/part/b"][0] == "in-sub\n"
    assert told["see"]["/host/given"][0] == "from the host"
    assert told["see"]["/new-part"] == told["see"]["/named-part"] == []
    assert told["write"].pop("/frozen/new") == "Read-only file system"
    assert set(told["write"].values()) == {"written"}
    assert (tmp_path / "new").read_text() == "x"
    assert (claimed / "step-1").read_text() == "x"
    pods.client.request("DELETE", volume)


def test_a_missing_volume_source_is_waited_for(pods: Pods) -> None:
    mount = {"volumeMounts": [{"name": "late", "mountPath": "/late"}]}
    volume = [{"name": "late", "secret": {"secretName": "late"}}]
    pods.create("patient", "cat", "/late/a", container=mount, volumes=volume)

    def complaints() -> list[str]:
        events = pods.client.request("GET", pods.path(kind="events"))["items"]
        return [one["message"] for one in events if one["reason"] == "FailedMount"]

    assert any('secret "late" not found' in one for one in eventually(complaints, "an event"))
    pod = pods.wait_until("patient", lambda pod: "containerStatuses" in pod["status"], "it says what it waits for")
    assert pod["status"]["phase"] == "Pending"
    assert state_of(pod) == {"is": "waiting", "reason": "ContainerCreating"}
    pods.make("secrets", "late", data={"a": base64.b64encode(b"here").decode()})
    assert pods.finished("patient")["status"]["phase"] == "Succeeded"
    assert pods.log("patient") == "here"
