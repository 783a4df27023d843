"""For every rule a job that it refuses, and one that is as near to it as can be and passes.

`says` are parts of the message: the field, the value, the limit, a value that works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright_api.checks.semantics import longest_job_name
from meshwright_api.checks.trainer_features import TRAINER_LATER
from meshwright_api.keys import LIST
from meshwright_api.resolve import resolve
from meshwright_api.spec import Role, TrainingJobSpec
from tests.api.jobs import Json, a_container, a_job, a_role, a_trained_job, a_trainer, with_container, with_pod

SCHEMA = "schema"
"""Refused by types and limits; no rule of ours is involved."""

LONGEST = longest_job_name(resolve(TrainingJobSpec(roles=(Role(name="worker", replicas=2),))))


@dataclass(frozen=True)
class Case:
    """One rule, tried from both sides."""

    rule: str
    bad: Json
    good: Json
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}-{'-'.join(self.says)}"[:60].replace(" ", "_")


def _rule(**fields: Any) -> Json:
    return a_job(failurePolicy={"rules": [{"action": "Fail", **fields}]})


def _volume(**fields: Any) -> Json:
    volume = {"name": "data", "mountPath": "/data", "emptyDir": {}, **fields}
    return a_job(volumes=[{k: v for k, v in volume.items() if v is not None}])


def _volumes(first: str, second: str) -> Json:
    return a_job(volumes=[{"name": n, "mountPath": p, "emptyDir": {}} for n, p in (("a", first), ("b", second))])


def _gpus(limit: Any, per_pod: int | None, container: str = "trainer") -> Json:
    containers = [a_container(name=container, resources={"limits": {"nvidia.com/gpu": limit}})]
    fields: Json = {} if per_pod is None else {"gpusPerPod": per_pod}
    return a_job(roles=[a_role(pod={"containers": containers}, **fields)])


NAMES = (
    Case("job-name", a_job(name="3d"), a_job(name="d3"), ("metadata.name", "3d", "gpt3-1b3")),
    Case("job-name", a_job(name="a.b"), a_job(name="a-b"), ("a.b",)),
    Case(
        "derived-names",
        a_job(name="n" * (LONGEST + 1)),
        a_job(name="n" * LONGEST),
        ("metadata.name", f"has {LONGEST + 1} characters", f"at most {LONGEST}", "shorten"),
    ),
    # The worst index counts: 11 pods need one more digit than 10 (K55).
    Case(
        "derived-names",
        a_job(name="n" * LONGEST, roles=[a_role(replicas=11)]),
        a_job(name="n" * LONGEST, roles=[a_role(replicas=10)]),
        (f"at most {LONGEST - 1}",),
    ),
    # The worst role counts, not the first.
    Case(
        "derived-names",
        a_job(name="n" * LONGEST, roles=[a_role(), a_role("workers")]),
        a_job(name="n" * LONGEST, roles=[a_role(), a_role("server")]),
        (f"at most {LONGEST - 1}",),
    ),
    Case(SCHEMA, a_job(roles=[a_role("Worker")]), a_job(roles=[a_role("worker-1")]), ("spec.roles[0].name", "Worker")),
    Case(SCHEMA, a_job(roles=[a_role(), a_role()]), a_job(roles=[a_role(), a_role("b")]), ("spec.roles", "worker")),
)

SIZES = (
    Case(
        "some-pod",
        a_job(roles=[a_role(replicas=0)]),
        a_job(roles=[a_role(replicas=1)]),
        ("0 pods", "spec.suspend: true"),
    ),
    Case(
        "some-pod",
        a_job(roles=[a_role(replicas=0), a_role("b", replicas=0)]),
        a_job(roles=[a_role(replicas=0), a_role("b", replicas=1)]),
        ("spec.roles",),
    ),
    Case(
        "pods-at-most",
        a_job(roles=[a_role(replicas=20_000), a_role("b", replicas=5_001)]),
        a_job(roles=[a_role(replicas=20_000), a_role("b", replicas=5_000)]),
        ("25001", "at most 25000"),
    ),
    Case(SCHEMA, a_job(roles=[a_role(replicas=-1)]), a_job(), ("spec.roles[0].replicas", "-1")),
    Case(SCHEMA, a_job(roles=[a_role(replicas=25_001)]), a_job(roles=[a_role(replicas=25_000)]), ("25000",)),
    Case(SCHEMA, a_job(roles=[a_role(replicas="2")]), a_job(), ("spec.roles[0].replicas",)),
    Case(
        SCHEMA, a_job(roles=[a_role(processesPerPod=0)]), a_job(roles=[a_role(processesPerPod=1)]), ("processesPerPod",)
    ),
    Case(SCHEMA, a_job(roles=[a_role(gpusPerPod=129)]), a_job(roles=[a_role(gpusPerPod=128)]), ("gpusPerPod", "128")),
    Case("gpus", _gpus(8, 4), _gpus(8, 8), ("worker", "8", "gpusPerPod", "leave one of them out")),
    Case("gpus", _gpus("8", 4), _gpus("8", 8), ("gpusPerPod",)),
    Case("gpus", _gpus("many", 4), _gpus("8000m", 8), ("many",)),
    Case("gpus", _gpus(0, 4), _gpus(8, None), ("gpusPerPod",)),
    Case("gpus", _gpus(8, 0, "only"), _gpus(0, 0, "only"), ("gpusPerPod",)),
)

POLICY_FIELDS = (
    Case("rule-matches-something", _rule(), _rule(exitCodes=[3]), ("spec.failurePolicy.rules", "exitCodes: [3]")),
    Case("rule-matches-something", _rule(exitCodes=[], reasons=[]), _rule(reasons=["OOMKilled"])),
    Case(
        "rule-of-known-role", _rule(exitCodes=[3], role="boss"), _rule(exitCodes=[3], role="worker"), ("no role boss",)
    ),
    Case(SCHEMA, _rule(exitCodes=[0]), _rule(exitCodes=[1]), ("spec.failurePolicy.rules[0].exitCodes[0]",)),
    Case(SCHEMA, _rule(exitCodes=[256]), _rule(exitCodes=[255]), ("255",)),
    Case(SCHEMA, a_job(failurePolicy={"rules": [{"exitCodes": [3]}]}), _rule(exitCodes=[3]), ("action",)),
    Case(
        SCHEMA,
        _rule(exitCodes=[3], action="Ignore"),
        _rule(exitCodes=[3], action="RestartFree"),
        ("Ignore", "RestartFree"),
    ),
    Case(
        SCHEMA,
        a_job(failurePolicy={"maxRestarts": 101}),
        a_job(failurePolicy={"maxRestarts": 100}),
        ("spec.failurePolicy.maxRestarts", "101", "100"),
    ),
    Case(SCHEMA, a_job(failurePolicy={"maxRestarts": -1}), a_job(failurePolicy={"maxRestarts": 0}), ("maxRestarts",)),
    Case(
        SCHEMA, a_job(failurePolicy={"maxDisruptions": 1001}), a_job(failurePolicy={"maxDisruptions": 1000}), ("1000",)
    ),
    Case(
        SCHEMA, a_job(failurePolicy={"windowSeconds": 0}), a_job(failurePolicy={"windowSeconds": 1}), ("windowSeconds",)
    ),
    Case(
        SCHEMA, a_job(failurePolicy={"evidenceSeconds": 601}), a_job(failurePolicy={"evidenceSeconds": 600}), ("600",)
    ),
    Case(
        SCHEMA,
        a_job(health={"startupDeadlineSeconds": 0}),
        a_job(health={"startupDeadlineSeconds": 1}),
        ("startupDeadlineSeconds",),
    ),
    Case(
        SCHEMA,
        a_job(health={"bindDeadlineSeconds": 0}),
        a_job(health={"bindDeadlineSeconds": 1}),
        ("bindDeadlineSeconds",),
    ),
    Case(SCHEMA, a_job(activeDeadlineSeconds=0), a_job(activeDeadlineSeconds=1), ("activeDeadlineSeconds",)),
    Case(SCHEMA, a_job(ttlSecondsAfterFinished=-1), a_job(ttlSecondsAfterFinished=0), ("ttlSecondsAfterFinished",)),
    Case(SCHEMA, a_job(suspend="yes"), a_job(suspend=True), ("spec.suspend", "boolean")),
    Case(SCHEMA, a_job(profile="p" * 64), a_job(profile="p" * 63), ("spec.profile", "63")),
    Case(SCHEMA, a_job(successPolicy="Rank1"), a_job(successPolicy="Rank0"), ("Rank1", "Rank0")),
    Case(SCHEMA, a_job(cleanPodPolicy="Some"), a_job(cleanPodPolicy="All"), ("Some", "All")),
    # Null is "not given", as everywhere in Kubernetes.
    Case(
        SCHEMA,
        a_job(roles=[{"name": "w", "template": None, "replicas": 1}]),
        a_job(ttlSecondsAfterFinished=None, suspend=None),
    ),
    Case(SCHEMA, a_job(roles=[None]), a_job(failurePolicy=None, health=None), ("spec.roles[0]",)),
    Case(SCHEMA, a_job(roles={}), a_job(volumes=None), ("spec.roles",)),
)

VOLUMES = (
    Case("volume-source", _volume(emptyDir=None), _volume(), ("data", "0 sources", "claimName")),
    Case(
        "volume-source",
        _volume(nfs={"server": "a", "path": "/"}),
        _volume(emptyDir=None, persistentVolumeClaim={"claimName": "c"}),
        ("2 sources",),
    ),
    Case("volume-path", _volume(mountPath="data"), _volume(mountPath="/x/y"), ("data", "/checkpoints")),
    Case("volume-path", _volume(mountPath="/a:b"), _volume(mountPath="/a-b"), ("/a:b",)),
    Case(
        "volume-path-reserved",
        _volume(mountPath="/etc/meshwright"),
        _volume(mountPath="/etc/meshwrights"),
        ("/etc/meshwright is Meshwright's",),
    ),
    Case(
        "volume-path-reserved",
        _volume(mountPath="/etc/meshwright/x"),
        _volume(mountPath="/etc/x"),
        ("/etc/meshwright",),
    ),
    Case(
        "volume-path-reserved",
        _volume(mountPath="/meshwright/agent"),
        _volume(mountPath="/data/meshwright"),
        ("/meshwright",),
    ),
    Case(
        "volume-path-reserved",
        _volume(mountPath="/var/run/secrets/meshwright"),
        _volume(mountPath="/var/run/secrets/mine"),
        ("/var/run/secrets/meshwright",),
    ),
    Case("volume-name-reserved", _volume(name="meshwright-plan"), _volume(name="plan"), ("meshwright-plan", "choose")),
    Case("volume-paths-differ", _volumes("/a", "/a"), _volumes("/a", "/b"), ("/a",)),
    Case(SCHEMA, _volume(name=None), _volume(), ("name",)),
    Case(SCHEMA, _volume(mountPath=None), _volume(), ("mountPath",)),
    Case(
        "volumeNames",
        a_job(
            volumes=[{"name": "d", "mountPath": "/d", "emptyDir": {}}],
            roles=[a_role(pod={"volumes": [{"name": "d", "emptyDir": {}}]})],
        ),
        a_job(
            volumes=[{"name": "d", "mountPath": "/d", "emptyDir": {}}],
            roles=[a_role(pod={"volumes": [{"name": "e", "emptyDir": {}}]})],
        ),
        ("worker", "d", "rename"),
    ),
    Case(
        "volumePaths",
        a_job(
            volumes=[{"name": "d", "mountPath": "/d", "emptyDir": {}}],
            roles=[a_role(pod={"containers": [a_container(volumeMounts=[{"name": "e", "mountPath": "/d"}])]})],
        ),
        a_job(
            volumes=[{"name": "d", "mountPath": "/d", "emptyDir": {}}],
            roles=[a_role(pod={"containers": [a_container(volumeMounts=[{"name": "e", "mountPath": "/e"}])]})],
        ),
        ("worker", "/d", "elsewhere"),
    ),
)


def _two(first: Json, second: Json) -> Json:
    return a_job(roles=[a_role(pod={"containers": [a_container(**first), a_container(**second)]})])


def _env(*names: str) -> Json:
    return with_container(env=[{"name": name, "value": "1"} for name in names])


def _on_nodes(requirement: Json) -> Json:
    terms = [{"matchExpressions": [requirement]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


TEMPLATES = (
    Case("noContainer", a_job(roles=[]), a_job(), ("no role", "image")),
    Case(
        "noContainer",
        a_job(roles=[{"name": "worker", "replicas": 1}]),
        a_job(),
        ("worker", "no container", "image: IMAGE"),
    ),
    Case("noContainer", with_pod(containers=[]), a_job(), ("worker",)),
    Case(
        "whichTrains", _two({"name": "a"}, {"name": "b"}), _two({"name": "trainer"}, {"name": "b"}), ("a, b", "trainer")
    ),
    Case("noImage", with_container(image=None), with_container(image="x"), ("worker", "trainer", "pytorch/pytorch")),
    Case("noImage", with_container(image=""), with_container(image="x"), ("trainer",)),
    Case(
        "noImage",
        with_pod(initContainers=[{"name": "prepare"}]),
        with_pod(initContainers=[{"name": "p", "image": "x"}]),
        ("prepare",),
    ),
    *(
        Case("reservedEnv", _env(name), _env(name.lower(), f"X_{name}"), (name, "leave it out"))
        for name in (
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "NODE_RANK",
            "LOCAL_WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
            "PET_NNODES",
            "MESHWRIGHT_JOB",
        )
    ),
    Case(
        "reservedEnv",
        with_pod(initContainers=[{"name": "p", "image": "x", "env": [{"name": "RANK"}]}]),
        _env("RANKS", "LOCAL_RANK_0", "PETS"),
        ("RANK",),
    ),
    Case(
        "reservedEnv",
        _two({"name": "trainer"}, {"name": "b", "env": [{"name": "PET_NNODES"}]}),
        _env("NCCL_DEBUG"),
        ("PET_NNODES",),
    ),
    Case(
        "restartPolicy",
        with_pod(restartPolicy="OnFailure"),
        with_pod(restartPolicy="Never"),
        ("worker", "OnFailure", "failurePolicy.maxRestarts"),
    ),
    Case("reservedField", with_pod(nodeName="node-1"), with_pod(nodeSelector={"a": "b"}), ("nodeName", "nodeSelector")),
    Case("reservedField", with_pod(hostname="x"), with_pod(hostNetwork=True), ("hostname",)),
    Case("reservedField", with_pod(subdomain="x"), with_pod(dnsPolicy="Default"), ("subdomain",)),
    Case("reservedField", with_pod(ephemeralContainers=[{}]), with_pod(tolerations=[{}]), ("ephemeralContainers",)),
    *(
        Case(
            "reservedLabel",
            a_job(roles=[a_role(metadata={kind: {"meshwright.dev/role": "x"}})]),
            a_job(roles=[a_role(metadata={kind: {"example.com/role": "x"}})]),
            ("meshwright.dev/role", "another prefix"),
        )
        for kind in ("labels", "annotations")
    ),
    Case(
        "reservedName",
        with_pod(volumes=[{"name": "meshwright-plan", "emptyDir": {}}]),
        with_pod(volumes=[{"name": "my-meshwright", "emptyDir": {}}]),
        ("meshwright-plan", "choose another"),
    ),
    Case(
        "reservedName",
        with_pod(initContainers=[{"name": "meshwright-agent", "image": "x"}]),
        a_job(),
        ("meshwright-agent",),
    ),
    Case(
        "reservedMount",
        with_container(volumeMounts=[{"name": "x", "mountPath": "/etc/meshwright"}]),
        with_container(volumeMounts=[{"name": "x", "mountPath": "/etc"}]),
        ("/etc/meshwright", "is Meshwright's"),
    ),
    Case(
        "agentCommand",
        {**a_job(agent="Inject")},
        a_job(agent="Inject", roles=[a_role(pod={"containers": [a_container(command=["python", "x.py"])]})]),
        ("worker", "trainer", "command: [python, train.py]"),
    ),
    Case(
        "agentCommand",
        a_job(agent="Inject", roles=[a_role(pod={"containers": [a_container(args=["x.py"])]})]),
        a_job(agent="None"),
        ("command",),
    ),
    Case(
        "priorityClass",
        {
            **a_job(),
            "spec": {"roles": [a_role(pod={"priorityClassName": "low"})], "queue": {"priorityClassName": "high"}},
        },
        {
            **a_job(),
            "spec": {"roles": [a_role(pod={"priorityClassName": "high"})], "queue": {"priorityClassName": "high"}},
        },
        ("low", "leave one of them out"),
    ),
    Case(
        "quantity",
        with_container(resources={"requests": {"cpu": "lots", "memory": "16Gi"}}),
        with_container(resources={"requests": {"cpu": 0.5, "memory": "16Gi", "pods": 1}}),
        ("worker", "lots", "16Gi"),
    ),
    Case(
        "quantity",
        with_container(resources={"limits": {"memory": "-1Gi"}}),
        with_container(resources={"limits": {"memory": "1Gi", "cpu": "500m"}}),
        ("-1Gi", "500m"),
    ),
    Case(
        SCHEMA, with_pod(nodeSelector=["gpu"]), with_pod(nodeSelector={"gpu": "true"}), ("template.spec.nodeSelector",)
    ),
    Case(SCHEMA, with_pod(tolerations={"key": "a"}), with_pod(tolerations=[{"key": "a", "tolerationSeconds": 5}])),
    Case(SCHEMA, with_pod(tolerations=[{"value": True}]), with_pod(tolerations=[{"operator": "Exists"}])),
    Case(SCHEMA, with_pod(affinity="node1"), with_pod(affinity={"podAntiAffinity": {}}), ("template.spec.affinity",)),
    Case(
        SCHEMA,
        with_pod(affinity=_on_nodes({"key": "rack", "operator": "Is", "values": ["1"]})),
        with_pod(affinity=_on_nodes({"key": "rack", "operator": "In", "values": ["1"]})),
        ("nodeSelectorTerms[0].matchExpressions[0].operator",),
    ),
    Case(SCHEMA, with_pod(securityContext="x"), with_pod(securityContext={"fsGroup": 1}), ("spec.securityContext",)),
    Case(
        SCHEMA,
        with_container(securityContext={"capabilities": {"add": "IPC_LOCK"}}),
        with_container(securityContext={"capabilities": {"add": ["IPC_LOCK"]}, "runAsUser": 1}),
        ("capabilities.add",),
    ),
    Case(SCHEMA, with_container(ports=[80]), with_container(ports=[{"containerPort": 80}]), ("ports[0]",)),
    Case(
        SCHEMA,
        with_pod(volumes=[{"name": "v", "hostPath": "/data"}]),
        with_pod(volumes=[{"name": "v", "hostPath": {"path": "/data"}}]),
        ("volumes[0].hostPath",),
    ),
    Case(SCHEMA, with_pod(containers="x"), a_job(), ("spec.roles[0].template.spec.containers",)),
    Case(SCHEMA, with_container(env=[{"value": "x"}]), _env("A"), ("env[0].name",)),
    Case(SCHEMA, with_container(env="RANK=1"), _env(), ("env",)),
    Case(
        SCHEMA, with_container(command="python train.py"), with_container(command=["python", "train.py"]), ("command",)
    ),
    Case(
        SCHEMA,
        a_job(roles=[a_role(metadata={"labels": {"a": 1}})]),
        a_job(roles=[a_role(metadata={"labels": {}})]),
        ("labels",),
    ),
)

LATER = (
    Case("later-elastic", a_job(elastic={"min": 1}), a_job(), ("spec.elastic", "roles[].replicas")),
    Case("later-queue.backend", a_job(queue={"backend": "None"}), a_job(queue={}), ("spec.queue.backend", "Native")),
    Case(
        "later-queue.backend",
        a_job(queue={"backend": "Kueue"}),
        a_job(queue={"backend": "Native"}),
        ("Kueue", "Native"),
    ),
    Case(
        "later-queue.provisioning",
        a_job(queue={"provisioning": "ProvisioningRequest"}),
        a_job(queue={"provisioning": "None"}),
        ("ProvisioningRequest", "None"),
    ),
    Case(
        "later-health.heartbeatTimeoutSeconds",
        a_job(health={"heartbeatTimeoutSeconds": 60}),
        a_job(health={}),
        ("heartbeatTimeoutSeconds", "agent's silence"),
    ),
    Case("later-health.stragglerFactor", a_job(health={"stragglerFactor": 1.5}), a_job(), ("stragglerFactor",)),
)


def _setting(path: tuple[str, ...], value: Any) -> Json:
    """A job whose trainer's section has this value there."""
    for step in reversed(path):
        value = [value] if step == LIST else {step: value}
    assert isinstance(value, dict)
    needed = {"data": {"source": "/data"}, "model": {"name": "gpt3"}}
    for key in value:
        value[key] = needed[key] | value[key] if key in needed and isinstance(value[key], dict) else value[key]
    if path[:3] == ("data", "sources", LIST):
        value["data"]["sources"] = [{"source": "/more"} | item for item in value["data"]["sources"]]
    return a_trained_job(**value)


LATER_VALUES: dict[tuple[str, ...], tuple[Any, Any]] = {
    ("model", "name"): ("t5", "bert"),
    ("model", "experts"): (8, None),
    ("model", "expertsPerToken"): (2, None),
    ("model", "capacityFactor"): (1.25, None),
    ("model", "groupTokens"): (64, None),
    ("model", "keyValueHeads"): (2, None),
    ("objective", "name"): ("Classification", "MaskedToken"),
    ("data", "format"): ("Tokens", "JSONLines"),
    ("data", "sources", LIST, "format"): ("Pairs", "Text"),
    ("data", "tokenizer", "name"): ("SentencePiece", "BPE"),
    ("optimizer", "name"): ("LAMB", "SGD"),
    ("optimizer", "learningRateSchedule", "name"): ("Exponential", "Linear"),
    ("precision",): ("FP8", "BF16"),
    ("parallelism", "mode"): ("Auto", "Manual"),
    ("parallelism", "pipeline"): (2, 1),
    ("parallelism", "context"): (2, 1),
    ("parallelism", "tensor"): (2, 1),
    ("parallelism", "expert"): (2, 1),
    ("parallelism", "virtualStages"): (2, 1),
    ("parallelism", "pipelineSchedule"): ("GPipe", None),
    ("update", "mode"): ("PipeDream", "Synchronous"),
    ("update", "consistency"): ("StaleSynchronous", None),
    ("update", "slack"): (3, None),
    ("update", "fetchEvery"): (3, None),
    ("update", "pushEvery"): (3, None),
    ("memory", "recompute"): ("Selective", "Full"),
    ("memory", "activationCodec"): ("Gist", None),
    ("memory", "offload"): (["OptimizerState"], None),
    ("memory", "tiers"): ([{"name": "Host"}], None),
    ("logging", "wandb"): ({"project": "x"}, None),
}
"""For each field of the trainer that this version does not have in full: a value that it refuses, one that it takes."""


def _later_in_the_trainer() -> tuple[Case, ...]:
    found = []
    for later in TRAINER_LATER:
        path = later.path[1:]
        bad, good = LATER_VALUES[path]
        shown = (str(bad),) if later.words else ()
        says = (f"spec.trainer.{path[0]}", *shown, *map(str, later.works))
        found.append(Case(f"later-{'.'.join(later.path)}", _setting(path, bad), _setting(path, good), says))
    return tuple(found)


def _without(key: str) -> Json:
    job = a_trained_job()
    del job["spec"]["trainer"][key]
    return job


def _kept(path: str, *mounts: str, **checkpoint: str) -> Json:
    """A job that keeps its checkpoints there, with volumes mounted at these paths."""
    job = a_trained_job(checkpoint={"path": path, **checkpoint})
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    job["spec"]["volumes"] = [{"name": f"v{i}", "mountPath": mount, **claim} for i, mount in enumerate(mounts)]
    return job


def _kept_in_a_role(container: str) -> Json:
    """A job that keeps its checkpoints in a volume of the template, mounted in that container."""
    mounts = [{"name": "v", "mountPath": "/mine"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    role = a_role(pod={"containers": [a_container(name=container, volumeMounts=mounts)], "volumes": volumes})
    return a_trained_job(role, checkpoint={"path": "/mine"})


TRAINER = (
    *_later_in_the_trainer(),
    Case("trainer-steps", _without("steps"), a_trained_job(), ("spec.trainer.steps", "steps: 1000")),
    Case("trainer-model", _without("model"), a_trained_job(), ("spec.trainer.model", "preset: tiny")),
    Case(
        "trainer-model",
        a_trained_job(model={"name": "gpt3", "factory": "a:b"}),
        a_trained_job(model={"factory": "a:b"}),
        ("either a name or a factory",),
    ),
    Case("trainer-data", _without("data"), a_trained_job(), ("spec.trainer.data", "/data/corpus")),
    Case(
        "trainer-data",
        a_trained_job(data={"sources": []}),
        a_trained_job(data={"sources": [{"source": "/a"}, {"source": "/b", "weight": 2}]}),
        ("spec.trainer.data",),
    ),
    Case(
        "trainer-data",
        a_trained_job(data={"source": "/a", "factory": "a:b"}),
        a_trained_job(data={"factory": "a:b", "arguments": {"x": 1}}),
        ("either a source",),
    ),
    Case("trainer-code", a_trained_job(code={}), a_trained_job(code={"path": "/code"}), ("spec.trainer.code",)),
    Case(
        "trainer-code",
        a_trained_job(code={"configMap": "x", "path": "/code"}),
        a_trained_job(code={"configMap": "x"}),
        ("configMap: my-model",),
    ),
    Case(
        "trainer-resume-from",
        _kept("/c", "/c", resume="From"),
        _kept("/c", "/c", resume="From", resumeFrom="/c/step-00000001.a1"),
        ("spec.trainer.checkpoint.resumeFrom",),
    ),
    Case(
        "trainer-init-path",
        a_trained_job(model={"name": "gpt3", "init": {"from": "job/other@5"}}),
        a_trained_job(model={"name": "gpt3", "init": {"from": "/c/step-00000005.a1"}}),
        ("job/other@5", "give the path"),
    ),
    Case(
        "trainer-in-one-role",
        a_job(trainer=a_trainer(), roles=[{"name": "worker"}, {"name": "server"}]),
        a_job(trainer=a_trainer(), roles=[{"name": "worker"}]),
        ("spec.roles", "one role"),
    ),
    # Neither a role nor a container nor an image has to be given.
    Case("trainer-steps", _without("steps"), {**a_job(), "spec": {"trainer": a_trainer()}}),
    Case(
        "noImage",
        a_trained_job(a_role(pod={"containers": [{"name": "logs"}]})),
        a_trained_job(a_role(pod={"containers": [{"name": "trainer"}, a_container(name="logs")]})),
        ("logs",),
    ),
    Case(
        "checkpointVolume",
        _kept("/checkpoints/run", "/checkpoint"),
        _kept("/checkpoints/run", "/checkpoints"),
        ("/checkpoints/run", "spec.trainer.checkpoint.path", "lies under no volume", "claimName: NAME"),
    ),
    Case("checkpointVolume", _kept("/a"), _kept("file:///a", "/a/"), ("/a",)),
    Case("checkpointVolume", _kept("/a", "/b"), _kept("/a", "/"), ("/a",)),
    Case(
        "checkpointVolume",
        _kept_in_a_role("logs"),
        _kept_in_a_role("trainer"),
        ("/mine",),
    ),
    Case(
        "trainerCommand",
        a_trained_job(a_role(pod={"containers": [a_container(command=["python", "train.py"])]})),
        a_trained_job(a_role(pod={"containers": [a_container()]})),
        ("trainer", "leave spec.trainer out"),
    ),
    Case(
        "trainerCommand",
        a_trained_job(a_role(pod={"containers": [{"name": "trainer", "args": ["x"]}]})),
        a_trained_job(a_role(pod={"containers": [a_container(name="logs", command=["tail"])]})),
        ("args",),
    ),
)


def _kept_together(axis: str, within: str = "leaf", **fields: Any) -> Json:
    return {"constraints": [{"axis": axis, "within": within, **fields}]}


def _placed(*wishes: Json) -> Json:
    """A job with the built-in trainer and these wishes for where it sits."""
    job = a_trained_job()
    job["spec"]["placement"] = {key: value for wish in wishes for key, value in wish.items()}
    return job


def _twice(first: str, second: str) -> Json:
    wishes = [*_kept_together("pods", first)["constraints"], *_kept_together("pods", second)["constraints"]]
    return a_job(placement={"constraints": wishes})


PLACEMENT = (
    Case(
        "placement-axis-of-known-mesh",
        a_job(placement=_kept_together("tensor", required=True)),
        a_job(placement=_kept_together("pods", required=True)),
        ("spec.placement.constraints", "axis: pods"),
    ),
    Case(
        SCHEMA,
        _placed(_kept_together("model")),
        _placed(_kept_together("tensor", "topology.kubernetes.io/zone"), {"exclusive": "leaf", "spread": "leaf"}),
        ("spec.placement.constraints[0].axis", "model", "tensor"),
    ),
    Case(
        SCHEMA, _placed(_kept_together("data", "")), _placed({"balanced": True}), ("placement.constraints[0].within",)
    ),
    Case(SCHEMA, _twice("leaf", "leaf"), _twice("leaf", "spine"), ("spec.placement.constraints",)),
    Case(
        "near-another-role",
        a_job(roles=[a_role(), a_role("server", near="workers")]),
        a_job(roles=[a_role(), a_role("server", near="worker")]),
        ("near", "no other role workers"),
    ),
    Case(
        "near-another-role",
        a_job(roles=[a_role(near="worker")]),
        a_job(roles=[a_role(near="server"), a_role("server", spread="leaf")]),
        ("near", "no other role worker"),
    ),
    Case(
        "spread-of-own-image",
        a_trained_job({"name": "worker", "spread": "leaf"}),
        a_job(roles=[a_role(spread="leaf")]),
        ("spec.placement.spread",),
    ),
)

CASES: tuple[Case, ...] = (*NAMES, *SIZES, *POLICY_FIELDS, *VOLUMES, *PLACEMENT, *TEMPLATES, *LATER, *TRAINER)
