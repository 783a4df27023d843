from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meshwright.cli import COMMANDS, main
from meshwright.lifecycle.codec import decision_to_json, observation_to_json
from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.model import Job, Observation, Offer, Policy, RoleSize
from meshwright_api import names
from meshwright_api.status import TrainingJobStatus


def an_observation(*, suspend: bool = False) -> Observation:
    policy = Policy(roles=(RoleSize("worker", 2),), suspend=suspend)
    job = Job(name="gpt", namespace="team", uid="u", generation=1, resource_version="1", policy=policy)
    offer = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="2 nodes are missing")
    return Observation(now=datetime(2026, 11, 29, tzinfo=UTC), job=job, status=TrainingJobStatus(), offer=offer)


def test_replay_decides_again_what_was_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    observations = [an_observation(), an_observation(suspend=True)]
    log = tmp_path / "decisions.jsonl"
    log.write_text("\n".join(map(observation_to_json, observations)) + "\n\n")

    assert main(["replay", str(log)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [decision_to_json(decide(observation)) for observation in observations]
    assert json.loads(printed[0])["status"]["phase"] == "Pending"


def test_replay_names_the_line_that_it_cannot_read_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "decisions.jsonl"
    log.write_text('{"now": 1}\nno JSON\n' + observation_to_json(an_observation()))

    assert main(["replay", str(log)]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert f"{log}:1: no observation: job" in err
    assert f"{log}:2: no observation" in err


def test_replay_of_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip()[0].isdigit()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run", "--workers", "none"], "workers cannot be 'none'"),
        (["run", "--kubeconfig", "/does/not/exist"], "/does/not/exist"),
    ],
)
def test_what_cannot_run_says_why_and_how_it_ended(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "shown"), [(["version"], ""), (["--help"], "replay"), (["--workers", "x"], "workers")]
)
def test_the_module_runs_the_operator_unless_it_is_told_a_command(argv: list[str], shown: str) -> None:
    command = [sys.executable, "-P", "-m", "meshwright", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert shown in done.stdout + done.stderr
    assert done.returncode == (2 if "--workers" in argv else 0)
    assert "run" in COMMANDS
