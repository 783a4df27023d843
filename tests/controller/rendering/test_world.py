"""Ranks, sizes and the meeting point, as plain scripts and torchrun read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from meshwright.rendering.gang import pod_manifest
from meshwright_api import names
from tests.controller.rendering.jobs import PLAIN, TORCHRUN, UID, a_job, a_role, env_of, frozen

RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE",
         "PET_NODE_RANK")  # fmt: skip
MODULE = ("python", "-m", "torch.distributed.run", "train.py")
IN_A_SHELL = ("bash", "-c", "exec torchrun --log-dir /tmp train.py")


@dataclass(frozen=True)
class Case:
    roles: tuple[dict[str, Any], ...]
    pod: tuple[str, int]
    expected: tuple[str, ...]
    """In the order of RANKS; `-` where the variable must not be set."""


def case(*roles: dict[str, Any], pod: tuple[str, int], expected: str) -> Case:
    return Case(roles, pod, tuple(expected.split()))


MASTER, WORKERS = a_role(1, name="master"), a_role(3)
CASES = {
    "one plain process": case(a_role(1), pod=("worker", 0), expected="0 0 1 1 0 1 1 0"),
    "plain, first of 2": case(a_role(2), pod=("worker", 0), expected="0 0 2 1 0 2 1 0"),
    "plain, second of 2": case(a_role(2), pod=("worker", 1), expected="1 0 2 1 1 2 1 1"),
    "plain with 1 GPU": case(a_role(4, gpus_per_pod=1), pod=("worker", 3), expected="3 0 4 1 3 4 1 3"),
    "plain with 8 GPUs is one process": case(a_role(4, gpus_per_pod=8), pod=("worker", 3), expected="3 0 4 1 3 4 1 3"),
    "torchrun with 1 GPU": case(a_role(2, *TORCHRUN, gpus_per_pod=1), pod=("worker", 1), expected="1 0 2 1 1 2 1 1"),
    "torchrun with 8 GPUs": case(a_role(2, *TORCHRUN, gpus_per_pod=8), pod=("worker", 1), expected="- - 16 8 1 2 8 1"),
    "torchrun as a module": case(a_role(2, *MODULE, gpus_per_pod=8), pod=("worker", 0), expected="- - 16 8 0 2 8 0"),
    "torchrun in a shell": case(a_role(2, *IN_A_SHELL, gpus_per_pod=8), pod=("worker", 1), expected="- - 16 8 1 2 8 1"),
    "torchrun on CPUs": case(a_role(2, *TORCHRUN), pod=("worker", 1), expected="1 0 2 1 1 2 1 1"),
    "GPUs from the template's limit": case(
        a_role(2, *TORCHRUN, container={"gpus": 4}), pod=("worker", 1), expected="- - 8 4 1 2 4 1"
    ),
    "processes as the user says": case(
        a_role(2, *PLAIN, processes_per_pod=3), pod=("worker", 1), expected="- - 6 3 1 2 3 1"
    ),
    "fewer processes than GPUs": case(
        a_role(2, *TORCHRUN, gpus_per_pod=8, processes_per_pod=1), pod=("worker", 1), expected="1 0 2 1 1 2 1 1"
    ),
    "a master before its workers is rank 0": case(MASTER, WORKERS, pod=("master", 0), expected="0 0 4 1 0 4 1 0"),
    "workers follow the master": case(MASTER, WORKERS, pod=("worker", 2), expected="3 0 4 1 3 4 1 3"),
    "roles are numbered as they are listed": case(WORKERS, MASTER, pod=("master", 0), expected="3 0 4 1 3 4 1 3"),
    "processes of an earlier role all count": case(
        a_role(2, *TORCHRUN, gpus_per_pod=8), a_role(2, name="ps"), pod=("ps", 1), expected="17 0 18 1 3 4 1 3"
    ),
    "a role without pods counts nothing": case(
        a_role(0, name="master"), a_role(2), pod=("worker", 1), expected="1 0 2 1 1 2 1 1"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_where_a_process_stands(name: str) -> None:
    """K81: WORLD_SIZE counts processes, and no RANK is given where it could only be wrong."""
    env = env_of(pod_manifest(frozen(a_job(*CASES[name].roles)), *CASES[name].pod))
    assert {key: env.get(key, "-") for key in RANKS} == dict(zip(RANKS, CASES[name].expected, strict=True))


def test_ranks_over_all_pods_are_all_numbers_from_0() -> None:
    plan = frozen(a_job(MASTER, a_role(12), a_role(3, name="ps")))
    envs = [env_of(pod_manifest(plan, *member)) for member in plan.members]
    assert [int(env["RANK"]) for env in envs] == list(range(16)) == [int(env["NODE_RANK"]) for env in envs]


def test_all_meet_at_the_pod_of_rank_0_by_a_name_that_the_service_gives_it() -> None:
    plan = frozen(a_job(MASTER, WORKERS), incarnation=7)
    first = pod_manifest(plan, "master", 0)["spec"]
    for member in plan.members:
        env = env_of(pod_manifest(plan, *member))
        assert env["MASTER_ADDR"] == env["PET_MASTER_ADDR"] == f"{first['hostname']}.{first['subdomain']}"
        assert env["MASTER_PORT"] == env["PET_MASTER_PORT"]
        assert env["PET_RDZV_ENDPOINT"] == f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    assert plan.launch_plan.rendezvous.host == env["MASTER_ADDR"]
    assert str(plan.launch_plan.rendezvous.port) == env["MASTER_PORT"]


def test_torchrun_keeps_our_numbering_and_never_restarts_by_itself() -> None:
    env = env_of(pod_manifest(frozen(a_job()), "worker", 0))
    assert (env["PET_RDZV_BACKEND"], env["PET_MAX_RESTARTS"]) == ("static", "0")


def test_another_incarnation_meets_elsewhere() -> None:
    """K14: what is left of the last incarnation cannot enter the next one's rendezvous."""
    meetings = [frozen(a_job(), incarnation=i).launch_plan.rendezvous for i in range(1, 20)]
    assert len({m.id for m in meetings}) == len({m.host for m in meetings}) == len(meetings)
    assert len({m.port for m in meetings}) > 15
    assert all(20_000 <= m.port < 30_000 for m in meetings)
    env = env_of(pod_manifest(frozen(a_job(), incarnation=3), "worker", 0))
    assert env["PET_RDZV_ID"] == f"{UID}-3"


def test_a_port_that_the_template_declares_is_used() -> None:
    ports = [{"name": "metrics", "containerPort": 9000}, {"name": "rendezvous", "containerPort": 29500}]
    env = env_of(pod_manifest(frozen(a_job(a_role(2, container={"ports": ports}))), "worker", 1))
    assert (env["MASTER_PORT"], env["PET_MASTER_PORT"]) == ("29500", "29500")


def test_the_launch_plan_says_the_same_as_the_pods() -> None:
    plan = frozen(a_job(a_role(2, *TORCHRUN, gpus_per_pod=8), a_role(3, name="ps")), attempt=5, incarnation=2)
    launch = plan.launch_plan
    assert (launch.attempt, launch.incarnation, launch.fence.attempt, launch.world_size) == (5, 2, 5, 19)
    assert [(r.name, r.first_rank, r.processes_per_pod, r.replicas) for r in launch.roles] == [
        ("worker", 0, 8, 2),
        ("ps", 16, 1, 3),
    ]
    for role, index in plan.members:
        assert launch.host(role, index) == pod_manifest(plan, role, index)["spec"]["hostname"]
        assert launch.host(role, index) == names.pod_name("demo", UID, role, index, 2)
