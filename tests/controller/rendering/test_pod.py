"""A pod: the user's template with what a gang needs laid over it, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright.rendering.gang import RenderSettings, pod_manifest
from meshwright_api import names
from meshwright_api.names import ANNOTATION_PLAN
from tests.controller.rendering.jobs import UID, a_container, a_job, a_role, env_of, frozen


def rendered(
    role: dict[str, Any], index: int = 0, settings: RenderSettings | None = None, **spec: Any
) -> dict[str, Any]:
    return pod_manifest(frozen(a_job(role, **spec), settings=settings), role["name"], index)


def test_names_follow_from_the_place_so_that_no_pod_is_made_twice() -> None:
    """K51, K52: whoever renders it, and however often, it is the same pod."""
    plan, again = frozen(a_job(a_role(3), a_role(2, name="ps"))), frozen(a_job(a_role(3), a_role(2, name="ps")))
    assert [pod_manifest(plan, *m) for m in plan.members] == [pod_manifest(again, *m) for m in again.members]
    made = [pod_manifest(plan, *member)["metadata"]["name"] for member in plan.members]
    assert made == [names.pod_name("demo", UID, role, index, 1) for role, index in plan.members]
    assert len(set(made)) == 5


def test_the_next_incarnation_has_other_names_and_so_has_a_job_that_is_made_again() -> None:
    first = rendered(a_role())
    later = pod_manifest(frozen(a_job(), incarnation=2), "worker", 0)
    remade = pod_manifest(frozen(a_job(uid="another")), "worker", 0)
    assert len({pod["metadata"]["name"] for pod in (first, later, remade)}) == 3


def test_the_attempt_is_in_no_field_of_a_pod_that_cannot_change() -> None:
    """Or a restart in place would condemn healthy pods."""
    one, two = (pod_manifest(frozen(a_job(), attempt=n), "worker", 0) for n in (111, 222))
    assert one["metadata"]["annotations"].pop(ANNOTATION_PLAN) != two["metadata"]["annotations"].pop(ANNOTATION_PLAN)
    assert one == two


def test_a_pod_is_found_owned_and_named_by_its_job() -> None:
    pod = rendered(a_role(), 1)
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "meshwright.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": "demo",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert pod["metadata"]["namespace"] == "team"
    assert pod["spec"]["hostname"] == pod["metadata"]["name"]
    assert pod["spec"]["subdomain"] == names.gang_name("demo", UID)
    assert {key: pod["metadata"]["labels"][key] for key in (names.LABEL_ROLE, names.LABEL_INDEX)} == {
        "meshwright.dev/role": "worker",
        "meshwright.dev/index": "1",
    }


@pytest.mark.parametrize("member", [("worker", 2), ("worker", -1), ("ps", 0)])
def test_there_is_no_pod_beyond_the_plan(member: tuple[str, int]) -> None:
    with pytest.raises(KeyError, match="no pod"):
        pod_manifest(frozen(a_job(a_role(2))), *member)


def test_a_role_without_replicas_has_no_pods() -> None:
    """K43: 0 means none."""
    plan = frozen(a_job(a_role(1), a_role(0, name="ps")))
    assert list(plan.members) == [("worker", 0)]
    with pytest.raises(KeyError):
        pod_manifest(plan, "ps", 0)


def test_what_the_user_wrote_stays() -> None:
    spec: dict[str, Any] = {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"operator": "Exists"}],
        "serviceAccountName": "trainer",
        "terminationGracePeriodSeconds": 77,
        "imagePullSecrets": [{"name": "s"}],
        "enableServiceLinks": True,
        "dnsPolicy": "Default",
        "hostNetwork": True,
    }
    container = {"workingDir": "/w", "terminationMessagePolicy": "File", "envFrom": [{"secretRef": {"name": "s"}}]}
    pod = rendered(a_role(container=container, metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}}, **spec))
    assert {key: pod["spec"][key] for key in spec} == spec
    assert {key: pod["spec"]["containers"][0][key] for key in container} == container
    assert pod["metadata"]["labels"]["a"] == "b"
    assert pod["metadata"]["annotations"]["c"] == "d"


def test_the_name_of_the_trained_container_is_noted_where_nobody_could_guess_it() -> None:
    """K85: another may be injected beside it, before it or after it."""
    own = rendered(a_role(container={"name": "main"}))["metadata"]["annotations"]
    assert own[names.ANNOTATION_CONTAINER] == "main"
    assert names.ANNOTATION_CONTAINER not in rendered(a_role())["metadata"]["annotations"]


def test_text_that_looks_like_ours_to_fill_in_is_left_alone() -> None:
    odd = "{index} {rank} {} {{ } $(RANK)"
    pod = rendered(a_role(2, "sh", "-c", odd, container={"env": [{"name": "ODD", "value": odd}]}), 1)
    assert pod["spec"]["containers"][0]["command"][2] == odd == env_of(pod)["ODD"]


def test_our_variables_come_first_so_that_the_users_may_refer_to_them() -> None:
    own = [{"name": "OUT", "value": "/out/$(RANK)"}, {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]
    env = rendered(a_role(container={"env": own}))["spec"]["containers"][0]["env"]
    assert env[-2:] == own
    assert "RANK" in [variable["name"] for variable in env[:-2]]
    assert len({variable["name"] for variable in env}) == len(env)


def test_every_container_knows_where_it_stands_and_can_read_the_plan() -> None:
    role = a_role(initContainers=[a_container("fetch", name="fetch")])
    role["template"]["spec"]["containers"].append(a_container("tail", name="logs"))
    spec = rendered(role, 1)["spec"]
    mount = {"name": "meshwright-plan", "mountPath": "/etc/meshwright", "readOnly": True}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert {"name": "RANK", "value": "1"} in container["env"]
        assert mount in container["volumeMounts"]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    plan = frozen(a_job(role)).plan_config_map()
    assert spec["volumes"][-1]["configMap"]["name"] == plan["metadata"]["name"]
    assert json.loads(plan["data"]["plan.json"])["worldSize"] == 2


def test_output_is_not_buffered_unless_the_user_says_so() -> None:
    assert env_of(rendered(a_role()))["PYTHONUNBUFFERED"] == "1"
    chosen = a_role(container={"env": [{"name": "PYTHONUNBUFFERED", "value": ""}]})
    assert env_of(rendered(chosen))["PYTHONUNBUFFERED"] == ""


def test_gpus_are_the_limit_of_the_trained_container_only() -> None:
    role = a_role(gpus_per_pod=8, container={"resources": {"requests": {"cpu": 4}, "limits": {"memory": "1Gi"}}})
    role["template"]["spec"]["containers"].insert(0, a_container("tail", name="logs"))
    logs, trainer = rendered(role)["spec"]["containers"]
    assert trainer["resources"] == {"requests": {"cpu": 4}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "8"}}
    assert "resources" not in logs


def test_shared_volumes_are_mounted_in_the_trained_container() -> None:
    role = a_role(initContainers=[a_container("fetch", name="fetch")])
    volume = {"name": "ckpt", "mountPath": "/ckpt", "emptyDir": {"sizeLimit": "1Gi"}}
    spec = rendered(role, volumes=[volume])["spec"]
    assert {"name": "ckpt", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"]
    assert {"name": "ckpt", "mountPath": "/ckpt"} in spec["containers"][0]["volumeMounts"]
    assert len(spec["initContainers"][0]["volumeMounts"]) == 1


def test_names_resolve_on_the_host_network_too() -> None:
    assert rendered(a_role(hostNetwork=True))["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "dnsPolicy" not in rendered(a_role())["spec"]


def test_explicit_nulls_are_as_good_as_nothing() -> None:
    container = {"env": None, "volumeMounts": None, "securityContext": None, "resources": None}
    role = a_role(
        gpus_per_pod=1, container=container, affinity=None, securityContext=None, volumes=None, initContainers=None
    )
    assert rendered(role) == rendered(a_role(gpus_per_pod=1))


def test_the_users_priority_class_becomes_the_pods() -> None:
    assert rendered(a_role(), queue={"priorityClassName": "high"})["spec"]["priorityClassName"] == "high"
    assert rendered(a_role(priorityClassName="own"))["spec"]["priorityClassName"] == "own"


SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, SAFE),
        ({"runAsUser": 5}, {**SAFE, "runAsUser": 5}),
        ({"capabilities": {"add": ["IPC_LOCK"]}}, {**SAFE, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}),
        ({"capabilities": {"drop": ["NET_RAW"]}}, {**SAFE, "capabilities": {"drop": ["NET_RAW"]}}),
        ({"capabilities": {"drop": None}}, SAFE),
        ({"allowPrivilegeEscalation": True}, {**SAFE, "allowPrivilegeEscalation": True}),
        ({"allowPrivilegeEscalation": None}, SAFE),
        ({"privileged": True}, {"privileged": True, "capabilities": {"drop": ["ALL"]}}),
        ({"privileged": False}, {**SAFE, "privileged": False}),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
    ],
)
def test_containers_give_up_what_they_do_not_ask_for(given: Any, expected: dict[str, Any]) -> None:
    init = a_container(name="i", securityContext=given)
    spec = rendered(a_role(container={"securityContext": given}, initContainers=[init]))["spec"]
    assert spec["containers"][0]["securityContext"] == spec["initContainers"][0]["securityContext"] == expected


def test_the_runtimes_seccomp_profile_is_the_default() -> None:
    assert rendered(a_role())["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    own = {"seccompProfile": {"type": "Unconfined"}, "fsGroup": 5}
    assert rendered(a_role(securityContext=own))["spec"]["securityContext"] == own


@pytest.mark.parametrize(
    ("labels", "pod_security", "non_root"),
    [
        ({}, "", False),
        ({}, "baseline", False),
        ({}, "restricted", True),
        ({"pod-security.kubernetes.io/enforce": "restricted"}, "", True),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, "", False),
        ({"pod-security.kubernetes.io/warn": "restricted"}, "", False),
    ],
)
def test_stock_images_may_run_as_root_unless_the_namespace_forbids_it(
    labels: dict[str, str], pod_security: str, non_root: bool
) -> None:
    settings = RenderSettings.for_namespace(labels, pod_security)
    context = rendered(a_role(), settings=settings)["spec"]["securityContext"]
    assert context.get("runAsNonRoot", False) is non_root
    own = rendered(a_role(securityContext={"runAsNonRoot": False}), settings=settings)["spec"]["securityContext"]
    assert own["runAsNonRoot"] is False, "the template's word stands; Pod Security answers it"
