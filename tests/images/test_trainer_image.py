"""The trainer's image, run as Pod Security `restricted` and a root that cannot be written have it; no cluster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from devcluster.images.sources import REPOSITORY
from meshwright.rendering.builtin import COMMAND
from meshwright_agent.archive import install
from tests.charts.rendering import of_kind, render
from tests.images import sandbox
from tests.images.pins import installed, pinned
from tests.images.sandbox import Image

pytestmark = pytest.mark.slow


def test_it_is_the_image_that_the_chart_asks_for(trainer_image: Image) -> None:
    [deployment] = of_kind(render(), "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    [wanted] = [word.partition("=")[2] for word in arguments if word.startswith("--trainer-image=")]
    assert sandbox.names(trainer_image.archive) == [trainer_image.reference] == [f"docker.io/{wanted}"]
    assert trainer_image.config["User"] == "65532:65532"
    labels = trainer_image.config["Labels"]
    assert labels["org.opencontainers.image.version"] == trainer_image.reference.rpartition(":")[2]


def test_the_command_works(trainer_image: Image, tmp_path: Path) -> None:
    done = sandbox.run(trainer_image, tmp_path / "bundle", ["--help"])
    assert done.returncode == 0, done.stderr
    assert "usage: meshwright-trainer" in done.stdout


def test_a_pod_without_a_plan_is_told_so(trainer_image: Image, tmp_path: Path) -> None:
    done = sandbox.run(trainer_image, tmp_path / "bundle", command=COMMAND)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "meshwright-trainer: " in done.stderr
    assert "Traceback" not in done.stderr


def test_it_trains(trainer_image: Image, tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    shutil.copy(REPOSITORY / "examples" / "gpt-text.yaml", folder)
    shutil.chown(folder, 65532, 65532)
    fields = ("steps=3", "checkpoint.path=/volume/checkpoints", "optimizer.learningRateSchedule.warmupSteps=1")
    words = ["train", "/volume/gpt-text.yaml", *(word for field in fields for word in ("--set", field))]
    done = sandbox.run(trainer_image, tmp_path / "bundle", words, volumes={"/volume": folder})
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.glob("checkpoints/step-00000003.a1/manifest.json"))


def test_the_agent_runs_in_it(trainer_image: Image, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    install(str(volume / "agent.pyz"))
    command = ["python3", "/volume/agent.pyz", "run", "--", *COMMAND]
    done = sandbox.run(trainer_image, tmp_path / "bundle", command=command, volumes={"/volume": volume})
    assert done.returncode == 78, done.stdout + done.stderr
    assert "MESHWRIGHT_PLAN" in json.loads(done.stderr.splitlines()[-1])["message"]


def test_it_is_pinned(trainer_image: Image) -> None:
    found = installed(trainer_image.root)
    assert {name for name in found if name.startswith("meshwright")} == {"meshwright-api", "meshwright-trainer"}
    others = {(name, version) for name, version in found.items() if not name.startswith("meshwright")}
    assert "torch" in dict(others)
    assert {(name, version.partition("+")[0]) for name, version in others} <= pinned()
