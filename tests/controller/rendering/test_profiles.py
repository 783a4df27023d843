"""An administrator's file of profiles: what it may say, and what is said of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from meshwright.rendering.errors import InvalidProfile, PodSecurityConflict, UnknownProfile
from meshwright.rendering.fabric.presets import PRESETS
from meshwright.rendering.fabric.reading import Profiles, profiles_of
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.surroundings import suited
from meshwright_api.job import TrainingJob
from tests.controller.rendering.fabrics import WRITTEN, a_node, a_profile
from tests.controller.rendering.jobs import a_job, a_role, a_trained_job

SRIOV = WRITTEN["sriov"]


def test_a_preset_needs_only_what_is_different() -> None:
    profile = a_profile("sriov", env={"NCCL_IB_TC": "41", "NCCL_IB_HCA": None}, nics={"count": 2, "networks": ["a/b"]})
    assert (profile.env["NCCL_IB_TC"], profile.env["NCCL_SOCKET_IFNAME"]) == ("41", "eth0")
    assert "NCCL_IB_HCA" not in profile.env
    assert profile.nics is not None
    assert (profile.nics.resource, profile.nics.count) == ("nvidia.com/mlnxnics", 2)
    assert a_profile("sriov", capabilities=None).capabilities == ()


def test_every_preset_has_a_profile_here() -> None:
    assert {entry["preset"] for entry in WRITTEN.values()} == set(PRESETS)


def test_a_compute_domain_is_only_for_nodes_that_are_in_one() -> None:
    assert [e["key"] for e in a_profile("p", computeDomain=True).expressions] == ["nvidia.com/gpu.clique"]
    assert len(a_profile("mnnvl").expressions) == 1


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("tcp", "must be a list"),
        ({"profile": []}, "must be a list"),
        (["tcp"], r"profiles\[0\] must be an object"),
        ([{"preset": "TCP"}], r"profiles\[0\].name"),
        ([{"name": "TCP"}], r"profiles\[0\].name"),
        ([{"name": "a"}, {"name": "a"}], r"profiles\[1\].name: a is there twice"),
        ([{"name": "a", "preset": "RoCE"}], "no preset RoCE; use one of TCP, SRIOVInfiniBand, SharedRDMA, MNNVL"),
        ([{"name": "a", "hostNetworks": True}], "hostNetworks: no such field; did you mean hostNetwork?"),
        ([{"name": "a", "nodes": {"matchLabel": {}}}], "nodes.matchLabel: no such field; did you mean matchLabels?"),
        ([{"name": "a", "nics": {"resources": "x"}}], "nics.resources: no such field; did you mean resource?"),
        ([{"name": "a", "env": {"NCCL_DEBUG": 1}}], r"profiles\[0\].env.NCCL_DEBUG.*but it is 1"),
        ([{"name": "a", "env": {"MASTER_PORT": "1"}}], "MASTER_PORT is Meshwright's to set"),
        ([{"name": "a", "preset": "SRIOVInfiniBand"}], "nics.networks"),
        ([{"name": "a", **SRIOV, "nics": {"networks": ["a/b", "a/c"]}}], "2 networks for 8 adapters"),
        ([{"name": "a", **SRIOV, "resources": {"nvidia.com/mlnxnics": 8}}], "nics counts them already"),
        ([{"name": "a", **SRIOV, "annotations": {"k8s.v1.cni.cncf.io/networks": "x"}}], "nics writes it"),
        ([{"name": "a", "hugePages": {"pages": "1Gi"}}], "hugePages"),
        ([{"name": "a", "hugePages": {"hugepages-2Mi": "1Gi", "hugepages-1Gi": "1Gi"}}], "only one size"),
        ([{"name": "a", "template": {"containers": []}}], "template.containers: no such field"),
        ([{"name": "a", "template": {"spec": {"affinity": {}}}}], "template.spec.affinity must be left out"),
        ([{"name": "a", "template": {"spec": {"nodeName": "n"}}}], "template.spec.nodeName must be left out"),
        ([{"name": "a", "template": {"spec": {"hostNetwork": True}}}], "in the profile itself"),
        ([{"name": "a", "template": {"spec": {"containers": [{"name": "tcpxo"}]}}}], "initContainer"),
        ([{"name": "a", "template": {"spec": {"containers": [{"name": "trainer", "env": []}]}}}], "as `env`"),
        ([{"name": "a", "template": {"metadata": {"name": "x"}}}], "only labels and annotations"),
        ([{"name": "a", "nodes": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}], "operator"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_name(document: Any, says: str) -> None:
    with pytest.raises(InvalidProfile, match=says):
        profiles_of(document)


IB = {"name": "ib", "preset": "SharedRDMA", "nodes": {"matchLabels": {"fabric": "ib"}}}
TCP = {"name": "tcp", "preset": "TCP", "nodes": {}}
BY_NAME = {"name": "special", "preset": "TCP"}
GPU_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
IB_NODES = [a_node("a", fabric="ib"), a_node("b", fabric="ib")]
OTHERS = [a_node("c", fabric="roce")]
JOB = a_job(a_role(2, gpus_per_pod=8))


@pytest.mark.parametrize(
    ("profiles", "nodes", "job", "expected"),
    [
        ([IB, TCP], IB_NODES, JOB, "ib"),
        ([IB, TCP], OTHERS, JOB, "tcp"),
        ([TCP, IB], IB_NODES, JOB, "tcp"),
        ([IB], IB_NODES + OTHERS, JOB, None),
        ([IB, TCP], IB_NODES + OTHERS, JOB, "tcp"),
        ([IB], [*IB_NODES, a_node("cpu", gpus=0)], JOB, "ib"),
        ([IB], [*IB_NODES, a_node("cpu", gpus=0)], a_job(a_role(2)), None),
        ([IB], IB_NODES + OTHERS, a_job(a_role(2, gpus_per_pod=8, nodeSelector={"fabric": "ib"})), "ib"),
        ([IB], [*IB_NODES, a_node("tainted", taints=[GPU_TAINT])], JOB, "ib"),
        ([IB], [], JOB, None),
        ([BY_NAME, IB], OTHERS, JOB, None),
        ([BY_NAME, IB], OTHERS, a_job(a_role(2), profile="special"), "special"),
        ([IB, TCP], IB_NODES, a_job(a_role(2, gpus_per_pod=8), profile="tcp"), "tcp"),
        ([IB], [*IB_NODES, a_node("cpu", gpus=0)], a_job(a_role(2, gpus_per_pod=8), a_role(1, name="ps")), "ib"),
    ],
    ids=[
        "the nodes are all of one profile",
        "the first whose nodes they are",
        "the administrator's order counts",
        "a job that may go to others gets none",
        "or the one that is for all",
        "nodes without GPUs cannot take its pods",
        "a job without GPUs may go anywhere",
        "its own selector narrows where it may go",
        "so do taints",
        "no nodes, no profile",
        "without nodes only by name",
        "named",
        "a name comes before nodes",
        "pods with GPUs decide",
    ],
)
def test_which_profile_a_job_gets(profiles: Any, nodes: Any, job: TrainingJob, expected: str | None) -> None:
    got = suited(job, RenderSettings(), profiles_of(profiles), lambda: nodes).profile
    assert (got.name if got else None) == expected


def test_tolerations_of_a_profile_open_nodes_to_it() -> None:
    tolerant = {**IB, "template": {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}}}
    nodes = [a_node("a", taints=[GPU_TAINT], fabric="ib")]
    assert suited(JOB, RenderSettings(), profiles_of([IB]), lambda: nodes).profile is None
    assert suited(JOB, RenderSettings(), profiles_of([tolerant]), lambda: nodes).profile is not None


def test_nodes_are_not_read_for_a_job_that_names_its_profile() -> None:
    def nodes() -> Any:
        raise AssertionError

    suited(a_job(a_role(1), profile="special"), RenderSettings(), profiles_of([BY_NAME]), nodes)
    suited(JOB, RenderSettings(), profiles_of([BY_NAME]), nodes)
    suited(JOB, RenderSettings(), Profiles(), nodes)


@pytest.mark.parametrize(
    ("profiles", "says"),
    [([IB, BY_NAME], "there is no profile nvl; use one of ib, special"), ([], "this cluster has none; leave it out")],
)
def test_an_unknown_name_is_answered_with_those_there_are(profiles: Any, says: str) -> None:
    with pytest.raises(UnknownProfile, match=f"spec.profile: .*{says}"):
        suited(a_job(a_role(1), profile="nvl"), RenderSettings(), profiles_of(profiles), list)


def test_pod_security_is_asked_before_there_is_any_pod() -> None:
    baseline = RenderSettings.for_namespace({"pod-security.kubernetes.io/enforce": "baseline"})
    job = a_trained_job({"name": "worker", "gpusPerPod": 8})
    named = a_job(a_role(1), profile="ib")
    says = (
        r"spec.roles\[worker\]: containers\[trainer\].securityContext.capabilities.add: IPC_LOCK, of profile ib, is "
        "refused by Pod Security level baseline, which namespace team enforces; set spec.profile to another one"
    )
    with pytest.raises(PodSecurityConflict, match=says):
        suited(named, baseline, profiles_of([IB]), list)
    with pytest.raises(PodSecurityConflict, match="of profile ib"):
        suited(job, baseline, profiles_of([IB]), lambda: IB_NODES)
    suited(named, RenderSettings(), profiles_of([IB]), list)
    suited(a_job(a_role(1), profile="tcp"), baseline, profiles_of([TCP]), list)


def test_pod_security_tells_the_templates_faults_from_the_profiles() -> None:
    baseline = RenderSettings.for_namespace({"pod-security.kubernetes.io/enforce": "baseline"})
    job = a_job(a_role(1, hostPID=True))
    with pytest.raises(PodSecurityConflict, match=r"spec.roles\[worker\]: hostPID: true, of the template, .* leave it"):
        suited(job, baseline, Profiles(), list)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"resources": {"rdma/ib": "many"}}, 'resources.rdma/ib: "many" is no amount'),
        ({"resources": {"rdma/ib": -1}}, "resources.rdma/ib: -1 is no amount"),
        ({"sharedMemory": "64GB"}, 'sharedMemory: "64GB" is no amount'),
        ({"hugePages": {"hugepages-2Mi": ""}}, 'hugePages.hugepages-2Mi: "" is no amount'),
    ],
)
def test_nonsense_for_an_amount_is_named(field: dict[str, Any], said: str) -> None:
    """At the operator's start, not in every pass over every job that gets the profile."""
    with pytest.raises(InvalidProfile, match=re.escape(said)):
        profiles_of([{"name": "ib", **field}])


@pytest.mark.parametrize(("name", "taken"), [("tcp", True), ("mnnvl", True), ("sriov", False), ("shared", False)])
def test_presets_without_a_capability_pass_the_strictest_level(name: str, taken: bool) -> None:
    """As docs/fabrics.md says; that these verdicts are the API server's, another test shows."""
    restricted = RenderSettings.for_namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    role = {"name": "worker", "gpusPerPod": 8, "template": {}}
    job = a_trained_job(role)
    everywhere = profiles_of([{"name": name, **WRITTEN[name], "nodes": {}}])
    nodes = [replace(a_node("a"), labels={"nvidia.com/gpu.clique": "c.0"})]
    if taken:
        assert suited(job, restricted, everywhere, lambda: nodes).profile is not None
    else:
        with pytest.raises(PodSecurityConflict, match="IPC_LOCK"):
            suited(job, restricted, everywhere, lambda: nodes)
