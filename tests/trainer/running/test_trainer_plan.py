"""What a process is told: launch plans, job files, overrides, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from meshwright_api.errors import InvalidTrainer
from meshwright_api.launch_plan import Fence, JobRef, LaunchPlan, Rendezvous, RolePlan
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.plan import Place, from_file, from_plan, from_section

SECTION = {"model": {"name": "gpt3", "preset": "tiny"}, "data": {"source": "/data"}, "steps": 10}


def write(path: Path, *documents: object) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


def a_plan(**changes: object) -> LaunchPlan:
    role = RolePlan(
        name="worker", replicas=2, processes_per_pod=1, first_rank=0, host_pattern="h-{index}-{incarnation}"
    )
    plan = LaunchPlan(
        job=JobRef(name="gpt", namespace="default", uid="u"),
        attempt=3,
        incarnation=1,
        roles=(role,),
        world_size=2,
        rendezvous=Rendezvous(id="r", host="h", port=1),
        trainer=SECTION,
        fence=Fence(attempt=3, base="step-00000040.a2"),
    )
    return plan.model_copy(update=changes)


def in_a_pod(tmp_path: Path, plan: LaunchPlan, **environment: str) -> dict[str, str]:
    (tmp_path / "plan.json").write_text(plan.to_json())
    return {"MESHWRIGHT_PLAN": str(tmp_path / "plan.json"), "RANK": "1", "WORLD_SIZE": "2"} | environment


def test_a_pod_reads_its_plan(tmp_path: Path) -> None:
    launch = from_plan(in_a_pod(tmp_path, a_plan()))
    assert (launch.name, launch.attempt, launch.run) == ("gpt", 3, "u")
    assert launch.place == Place(rank=1, world_size=2)
    assert launch.config.parallelism.data == 2


def test_what_a_plan_froze_is_not_filled_again(tmp_path: Path) -> None:
    """An image with other defaults must not change a job in the middle of its life."""
    frozen = dict(from_plan(in_a_pod(tmp_path, a_plan())).section)
    frozen["optimizer"] = {**frozen["optimizer"], "learningRate": 0.5}
    assert from_plan(in_a_pod(tmp_path, a_plan(trainer=frozen))).section == frozen


@pytest.mark.parametrize(
    ("changes", "environment", "says"),
    [
        ({}, {"WORLD_SIZE": "3"}, "the plan has 2 processes"),
        ({"trainer": None}, {}, "brings its own program"),
        ({}, {"RANK": "2"}, "RANK 2 is not below WORLD_SIZE 2"),
        ({}, {"RANK": "one"}, "whole numbers"),
        ({}, {"MESHWRIGHT_PLAN": ""}, "meshwright-trainer train"),
        ({}, {"MESHWRIGHT_PLAN": "/nowhere/plan.json"}, "cannot be read"),
    ],
)
def test_a_pod_says_what_is_wrong_with_its_plan(
    tmp_path: Path, changes: dict[str, object], environment: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidLaunch, match=says):
        from_plan(in_a_pod(tmp_path, a_plan(**changes), **environment))


def test_a_manifest_among_others_and_a_section_alone_are_the_same_job(tmp_path: Path) -> None:
    job = {"kind": "TrainingJob", "metadata": {"name": "gpt"}, "spec": {"trainer": SECTION}}
    manifest = from_file(write(tmp_path / "job.yaml", {"kind": "PersistentVolumeClaim"}, job), environment={})
    alone = from_file(write(tmp_path / "alone.yaml", SECTION), environment={})
    assert manifest.section == alone.section
    assert (manifest.name, alone.name, manifest.attempt) == ("gpt", "alone", None)


def test_overrides_are_laid_over_the_section(tmp_path: Path) -> None:
    path = write(tmp_path / "job.yaml", SECTION)
    launch = from_file(
        path, ("steps=3", "model.dropout=0.5", "data.sources=[{source: /other}]", "data.source=null"), {}
    )
    assert (launch.config.steps, launch.config.model.dropout) == (3, 0.5)
    assert [source.source for source in launch.config.data.sources] == ["/other"]


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        ("steps: [", (), "cannot be read"),
        ("kind: Pod", (), "neither a TrainingJob"),
        ("kind: TrainingJob\nspec: {roles: []}", (), "no spec.trainer"),
        ("steps: 1", ("steps",), "no override"),
        ("steps: 1", ("steps.more=1",), "goes below steps"),
    ],
)
def test_a_file_that_is_no_job_says_why(tmp_path: Path, text: str, overrides: tuple[str, ...], says: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InvalidLaunch, match=says):
        from_file(tmp_path / "job.yaml", overrides, {})


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidLaunch, match="No such file"):
        from_file(tmp_path / "job.yaml", (), {})


def test_a_section_that_cannot_be_run_names_its_fields() -> None:
    with pytest.raises(InvalidTrainer, match=r"spec\.trainer\.steps"):
        from_section({"model": {"name": "gpt3"}}, {})
    with pytest.raises(InvalidTrainer, match=r"batch\.global: 3 is no multiple"):
        from_section({**SECTION, "batch": {"global": 3, "micro": 2}}, {})
