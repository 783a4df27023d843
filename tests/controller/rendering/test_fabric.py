"""A profile under a job: what it gives, whom, and that the job's own word stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.placement.supply.resources import Resources
from meshwright.rendering.gang import FrozenPlan, Ground, pod_manifest, request
from meshwright_api import names
from tests.controller.rendering.fabrics import WRITTEN, a_node, a_profile, frozen_with, pod_with, trained
from tests.controller.rendering.jobs import UID, a_container, a_job, a_role, a_trained_job

NAMES = st.sampled_from([f"NCCL_{letter}" for letter in "ABCDEF"])
VALUES = st.text(alphabet="abc123", max_size=3)
VARIABLES = st.dictionaries(NAMES, VALUES, max_size=5)
GPUS = a_role(1, gpus_per_pod=8)


def environment(pod: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What a container sees, as the API reference says: maps in their order, then `env`; the later wins."""
    container = trained(pod)
    seen: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        seen |= maps[source["configMapRef"]["name"]]
    return seen | {variable["name"]: variable.get("value", "") for variable in container["env"]}


@given(profile=VARIABLES, own=VARIABLES, from_map=st.none() | VARIABLES)
@settings(max_examples=100, deadline=None)
def test_the_users_variables_win_wherever_they_come_from(
    profile: dict[str, str], own: dict[str, str], from_map: dict[str, str] | None
) -> None:
    container: dict[str, Any] = {"env": [{"name": name, "value": value} for name, value in own.items()]}
    if from_map is not None:
        container["envFrom"] = [{"configMapRef": {"name": "theirs"}}]
    plan = frozen_with(a_job(a_role(1, container=container)), a_profile("p", env=profile))
    maps = {m["metadata"]["name"]: m["data"] for m in plan.objects if m["kind"] == "ConfigMap"}
    seen = environment(pod_manifest(plan, "worker", 0), maps | {"theirs": from_map or {}})
    users = {**(from_map or {}), **own}
    assert {name: seen[name] for name in users} == users
    assert {name: seen[name] for name in profile.keys() - users.keys()} == {
        name: value for name, value in profile.items() if name not in users
    }


def test_variables_come_from_a_map_only_where_the_container_reads_maps() -> None:
    """Where they can be, they are in the pod, for people to see."""
    plain = frozen_with(a_job(a_role(1)), a_profile("tcp"))
    assert [m["kind"] for m in plan_objects(plain)] == ["NetworkPolicy"]
    reading = a_role(1, container={"envFrom": [{"secretRef": {"name": "s"}}]})
    plan = frozen_with(a_job(reading), a_profile("tcp"), incarnation=3)
    (made,) = [m for m in plan_objects(plan) if m["kind"] == "ConfigMap"]
    assert made["metadata"]["name"] == names.variables_name("demo", UID, 3)
    assert made["metadata"]["labels"][names.LABEL_INCARNATION] == "3"
    assert made["immutable"] is True
    assert made["data"]["NCCL_IB_DISABLE"] == "1"


def plan_objects(plan: FrozenPlan) -> list[Mapping[str, Any]]:
    return list(plan.objects)


def test_what_the_template_says_itself_stands() -> None:
    own = {
        "image": "mine:1",
        "resources": {"limits": {"rdma/ib": "2", "memory": "8Gi"}, "requests": {"cpu": "4"}},
        "securityContext": {"capabilities": {"add": ["NET_ADMIN"], "drop": ["KILL"]}, "runAsUser": 7},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    spec: dict[str, Any] = {
        "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}],
        "hostNetwork": False,
        "schedulerName": "mine",
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    below = {
        "metadata": {"labels": {"team": "x", "rack": "1"}, "annotations": {"net": "theirs", "more": "m"}},
        "spec": {"schedulerName": "theirs", "runtimeClassName": "nvidia", "tolerations": [{"operator": "Exists"}]},
    }
    profile = a_profile(
        "p",
        image="theirs:1",
        resources={"rdma/ib": 1, "rdma/other": 3},
        capabilities=["IPC_LOCK"],
        sharedMemory="64Gi",
        hostNetwork=True,
        template=below,
    )
    role = a_role(1, container=own, metadata={"labels": {"team": "mine"}, "annotations": {"net": "mine"}}, **spec)
    pod = pod_with(a_job(role), profile)
    container = trained(pod)
    assert container["image"] == "mine:1"
    assert container["resources"] == {
        "limits": {"rdma/ib": "2", "memory": "8Gi", "rdma/other": "3"},
        "requests": {"cpu": "4"},
    }
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK", "NET_ADMIN"], "drop": ["KILL"]}
    assert [m["name"] for m in container["volumeMounts"] if m["mountPath"] == "/dev/shm"] == ["shm"]
    assert (pod["spec"]["hostNetwork"], pod["spec"]["schedulerName"]) == (False, "mine")
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}, {"key": "a", "operator": "Exists"}]
    assert (pod["metadata"]["labels"]["team"], pod["metadata"]["labels"]["rack"]) == ("mine", "1")
    assert (pod["metadata"]["annotations"]["net"], pod["metadata"]["annotations"]["more"]) == ("mine", "m")


def test_a_shared_volume_of_the_job_at_dev_shm_stands() -> None:
    shm = {"name": "big", "mountPath": "/dev/shm", "emptyDir": {"medium": "Memory"}}
    container = trained(pod_with(a_job(a_role(1), volumes=[shm]), a_profile("tcp")))
    assert [m["name"] for m in container["volumeMounts"] if m["mountPath"] == "/dev/shm"] == ["big"]


def test_the_trainers_image_comes_from_the_profile_unless_the_template_names_one() -> None:
    profile = a_profile("p", image="fabric/trainer:2")
    assert trained(pod_with(a_trained_job(), profile, trainer_image="trainer:1"))["image"] == "fabric/trainer:2"
    assert trained(pod_with(a_trained_job(), a_profile("q"), trainer_image="trainer:1"))["image"] == "trainer:1"
    assert trained(pod_with(a_job(a_role(1)), profile))["image"] == "pytorch/pytorch:latest"


def test_networks_stand_once_for_each_adapter_in_their_order() -> None:
    rails = ["fabric/rail-0", "fabric/rail-1"]
    one = a_profile("p", nics={"resource": "r/vf", "count": 3, "networks": ["fabric/ib"]})
    each = a_profile("p", nics={"resource": "r/vf", "count": 2, "networks": rails})
    for profile, networks, count in ((one, ["fabric/ib"] * 3, "3"), (each, rails, "2")):
        pod = pod_with(a_job(GPUS), profile)
        assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].split(", ") == networks
        assert trained(pod)["resources"]["limits"]["r/vf"] == count


def test_huge_pages_are_asked_for_and_mounted() -> None:
    pod = pod_with(a_job(GPUS), a_profile("p", hugePages={"hugepages-2Mi": "5120Mi"}))
    assert trained(pod)["resources"]["limits"]["hugepages-2Mi"] == "5120Mi"
    (mount,) = [m for m in trained(pod)["volumeMounts"] if m["mountPath"] == "/dev/hugepages"]
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
    assert volume["emptyDir"] == {"medium": "HugePages-2Mi"}


def test_pods_without_gpus_stay_as_they_are_beside_pods_that_have_some() -> None:
    job = a_job(GPUS, a_role(1, name="ps"))
    with_profile, without = (pod_with(job, profile, "ps", isolate=False) for profile in (a_profile("sriov"), None))
    for pod in (with_profile, without):
        del pod["metadata"]["annotations"]["meshwright.dev/plan-sha256"]
    assert with_profile == without
    assert "IPC_LOCK" in json.dumps(pod_with(job, a_profile("sriov"))), "the others have it"
    assert "IPC_LOCK" in json.dumps(pod_with(a_job(a_role(1)), a_profile("sriov"))), "a gang without GPUs has it whole"


def test_only_the_trained_container_gets_the_fabric() -> None:
    role = a_role(1, initContainers=[a_container("fetch", name="fetch")])
    role["template"]["spec"]["containers"].insert(0, a_container("tail", name="logs"))
    pod = pod_with(a_job(role), a_profile("shared"))
    others = [pod["spec"]["containers"][0], *pod["spec"]["initContainers"]]
    assert not [c["name"] for c in others if "NCCL" in json.dumps(c) or "IPC_LOCK" in json.dumps(c)]
    assert trained(pod)["resources"]["limits"] == {"rdma/rdma_shared_device_a": "1"}


def test_the_gang_asks_the_cluster_for_what_the_profile_adds() -> None:
    profile = a_profile("p", resources={"rdma/ib": 8}, nodes={"matchLabels": {"fabric": "ib"}})
    (role,) = request(a_job(a_role(2, gpus_per_pod=8)), profile=profile).roles
    assert role.resources == Resources(gpus=8, pods=1, other=(("rdma/ib", 8),))
    assert role.rules.obstacle(a_node(fabric="ib")) is None
    assert role.rules.obstacle(a_node(fabric="tcp")) is not None


def test_its_nodes_narrow_the_users_affinity_and_never_widen_it() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    profile = a_profile("p", nodes={"matchLabels": {"fabric": "ib"}})
    (role,) = request(a_job(a_role(1, affinity=affinity)), profile=profile).roles
    verdicts = {(zone, fabric): role.rules.obstacle(a_node(zone=zone, fabric=fabric)) is None
                for zone in "ab" for fabric in ("ib", "tcp")}  # fmt: skip
    assert [place for place, taken in verdicts.items() if taken] == [("a", "ib")]


def test_pods_of_one_nvlink_domain_share_a_compute_domain_and_others_do_not() -> None:
    cliques = {"node-0": "cluster.1", "node-1": "cluster.1", "node-2": "cluster.2"}
    plan = frozen_with(a_job(a_role(3, gpus_per_pod=4)), a_profile("mnnvl"), Ground(cliques=cliques))
    pods = [pod_manifest(plan, *member)["spec"] for member in plan.members]
    templates = [claim["resourceClaimTemplateName"] for pod in pods for claim in pod["resourceClaims"]]
    assert templates[0] == templates[1] != templates[2]
    domains = {m["metadata"]["name"]: m for m in plan.objects if m["kind"] == "ComputeDomain"}
    assert {d["spec"]["channel"]["resourceClaimTemplate"]["name"] for d in domains.values()} == set(templates)
    assert all("ownerReferences" not in d["metadata"] for d in domains.values()), "it would go before its pods"
    for pod in pods:
        claims = pod["containers"][0]["resources"]["claims"]
        assert [claim["name"] for claim in claims] == [claim["name"] for claim in pod["resourceClaims"]]


def test_a_restart_in_the_same_nvlink_domain_keeps_its_compute_domain() -> None:
    job, profile = a_job(a_role(2, gpus_per_pod=4)), a_profile("mnnvl")
    first, second = (frozen_with(job, profile, incarnation=i) for i in (1, 2))
    assert set(first.domains.values()) == set(second.domains.values())
    other = frozen_with(a_job(a_role(2, gpus_per_pod=4), uid="another"), profile)
    assert not set(first.domains.values()) & set(other.domains.values())


@pytest.mark.parametrize("preset", WRITTEN)
def test_a_profile_that_changes_in_the_middle_of_a_start_does_not_mix_pods(preset: str) -> None:
    """What is left to create is made from the stored plan, whatever the profile says by then."""
    job = a_job(a_role(3, gpus_per_pod=8))
    before = frozen_with(job, a_profile(preset))
    after = frozen_with(job, a_profile(preset, env={"NCCL_DEBUG": "TRACE"}))
    assert before.sha256 != after.sha256
    restored = FrozenPlan.load(before.plan_config_map(), before.placement_config_map(), before.sha256)
    assert [pod_manifest(restored, *m) for m in restored.members] == [pod_manifest(before, *m) for m in before.members]
    assert (restored.objects, restored.domains, restored.ports) == (before.objects, before.domains, before.ports)


def test_without_a_profile_nothing_is_different() -> None:
    plain, empty = (pod_with(a_job(GPUS), profile) for profile in (None, a_profile("nothing")))
    assert plain["spec"] == empty["spec"]
