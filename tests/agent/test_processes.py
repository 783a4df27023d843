"""Which processes a pod runs and what they find; launchers are called as their own documentation calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright_agent.errors import Misplaced
from meshwright_agent.plan import Place, Plan
from meshwright_agent.processes import SOCKET, is_launcher, launches
from meshwright_api import launch_plan as api
from tests.agent.conftest import Json, a_plan

POD = {"MESHWRIGHT_ROLE": "worker", "MESHWRIGHT_INDEX": "1", "MESHWRIGHT_INCARNATION": "2", "HOME": "/root"}


def load(folder: Path, document: Json) -> Plan:
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return Plan.load(str(path))


def two_roles() -> Json:
    plan = a_plan(replicas=4, processes=8)
    plan["roles"].insert(
        0, {"name": "master", "replicas": 1, "processesPerPod": 2, "firstRank": 0, "hostPattern": "m-{index}"}
    )
    plan["roles"][1]["firstRank"] = 2
    return plan | {"worldSize": 34}


def test_every_process_knows_where_it_stands(tmp_path: Path) -> None:
    plan = load(tmp_path, two_roles())
    place = Place.of(plan, POD)
    found = launches(plan, place, ("python", "train.py"), POD, "/tmp/s")
    assert [launch.rank for launch in found] == list(range(10, 18))
    last = found[-1].environment
    assert {name: last[name] for name in last if name not in POD} == {
        "RANK": "17",
        "LOCAL_RANK": "7",
        "WORLD_SIZE": "34",
        "LOCAL_WORLD_SIZE": "8",
        "NODE_RANK": "2",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "5",
        "ROLE_NAME": "worker",
        "ROLE_RANK": "15",
        "ROLE_WORLD_SIZE": "32",
        "MASTER_ADDR": "gpt-abcde-worker-0-2.gpt-abcde",
        "MASTER_PORT": "29400",
        "TORCHELASTIC_RUN_ID": "0f66-7faf-2",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "OMP_NUM_THREADS": "1",
        SOCKET: "/tmp/s",
    }
    assert last["HOME"] == "/root"
    assert place.pod == "gpt-abcde-worker-1-2"
    assert not place.leads


def test_ranks_of_all_pods_are_each_once(tmp_path: Path) -> None:
    plan = load(tmp_path, two_roles())
    ranks = []
    for role, pods in (("master", 1), ("worker", 4)):
        for index in range(pods):
            place = Place.of(plan, {**POD, "MESHWRIGHT_ROLE": role, "MESHWRIGHT_INDEX": str(index)})
            ranks += [launch.rank for launch in launches(plan, place, ("a",), {}, "")]
    assert ranks == list(range(34))


def test_a_users_own_number_of_threads_stays(tmp_path: Path) -> None:
    plan = load(tmp_path, a_plan(replicas=2, processes=2))
    found = launches(plan, Place.of(plan, POD), ("a",), {"OMP_NUM_THREADS": "6"}, "")
    assert {launch.environment["OMP_NUM_THREADS"] for launch in found} == {"6"}


def test_a_launcher_is_started_once_and_finds_no_rank(tmp_path: Path) -> None:
    plan = load(tmp_path, two_roles())
    base = {"RANK": "0", "LOCAL_RANK": "0", "PET_NNODES": "5"}
    (found,) = launches(plan, Place.of(plan, POD), ("torchrun", "train.py"), base, "/tmp/s")
    assert dict(found.environment) == {"PET_NNODES": "5", SOCKET: "/tmp/s"}
    assert found.rank == 10


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "/opt/conda/bin/torchrun --nnodes 2 train.py",
        "python -m torch.distributed.run train.py",
        "python3.11 -u -m torch.distributed.launch train.py",
        "python /opt/venv/bin/torchrun train.py",
        "accelerate launch train.py",
        "python -m accelerate.commands.launch train.py",
        "deepspeed train.py",
        "env A=b torchrun train.py",
        "numactl --cpunodebind 0 torchrun train.py",
        ["bash", "-c", "cd /app && torchrun train.py"],
        ["/bin/sh", "-ec", "pip install x; exec accelerate launch train.py"],
        ["bash", "-lc", "torchrun \\\n  --nnodes 2 train.py"],
    ],
)
def test_launchers(command: str | list[str]) -> None:
    assert is_launcher(command.split() if isinstance(command, str) else command)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python train.py --launcher torchrun",
        "python -m mypackage.train torchrun",
        "python -u -W ignore train.py deepspeed",
        "python -c print(1)",
        "accelerate config",
        "./train.sh",
        "./run.sh torchrun",
        ["bash", "-c", "python train.py # not torchrun"],
        ["bash", "-c", "python train.py --note 'no torchrun; here'"],
        ["bash", "-c"],
        "bash run.sh",
        "python -m",
    ],
)
def test_no_launchers(command: str | list[str]) -> None:
    assert not is_launcher(command.split() if isinstance(command, str) else command)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"MESHWRIGHT_ROLE": ""}, "MESHWRIGHT_ROLE"),
        ({"MESHWRIGHT_ROLE": "driver"}, "driver"),
        ({"MESHWRIGHT_INDEX": "one"}, "MESHWRIGHT_INDEX"),
        ({"MESHWRIGHT_INDEX": "2"}, "2 pods"),
        ({"MESHWRIGHT_INCARNATION": ""}, "MESHWRIGHT_INCARNATION"),
    ],
)
def test_a_pod_without_a_place_is_told_why(tmp_path: Path, variables: dict[str, str], named: str) -> None:
    plan = load(tmp_path, a_plan(replicas=2))
    with pytest.raises(Misplaced, match=named):
        Place.of(plan, {**POD, **variables})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"minReader": 2}, "version 2"),
        ({"roles": None}, "TypeError"),
        ({"worldSize": "many"}, "ValueError"),
        ({"heartbeat": {"url": "http://x", "intervalSeconds": 0}}, "intervalSeconds"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(tmp_path: Path, change: Json, named: str) -> None:
    with pytest.raises(Misplaced, match=named):
        load(tmp_path, a_plan(**change))


def test_a_plan_of_a_later_writer_is_read(tmp_path: Path) -> None:
    plan = load(tmp_path, a_plan(version=7, surprise={"a": 1}, heartbeat={"url": "http://x", "intervalSeconds": 5}))
    assert plan.heartbeat is not None
    assert plan.heartbeat.aggregate_port == 29401


def test_the_operators_own_plans_are_read(tmp_path: Path) -> None:
    """The type that the operator writes, with everything in it."""
    written = api.LaunchPlan(
        job=api.JobRef(name="gpt", namespace="team", uid="u"),
        attempt=4,
        incarnation=3,
        roles=(api.RolePlan(name="w", replicas=2, processes_per_pod=4, first_rank=0, host_pattern="g-{index}"),),
        world_size=8,
        rendezvous=api.Rendezvous(id="u-3", host="g-0.g", port=21000),
        heartbeat=api.Heartbeat(url="http://o:8082", interval_seconds=10, timeout_seconds=120),
    )
    path = tmp_path / "plan.json"
    path.write_text(written.to_json())
    plan = Plan.load(str(path))
    assert (plan.attempt, plan.world_size, plan.pods, plan.job_uid) == (4, 8, 2, "u")
    assert plan.heartbeat is not None
    assert plan.heartbeat.interval_seconds == 10
