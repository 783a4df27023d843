"""The operator's image, run as Pod Security `restricted` and a root that cannot be written have it; no cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.rendering.agent import installer
from meshwright.rendering.settings import RenderSettings
from meshwright_agent.archive import archive
from tests.charts.rendering import of_kind, render
from tests.images import sandbox
from tests.images.pins import installed, pinned
from tests.images.sandbox import Image

pytestmark = pytest.mark.slow


def test_it_is_the_image_that_the_chart_asks_for(operator_image: Image) -> None:
    [deployment] = of_kind(render(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert sandbox.names(operator_image.archive) == [operator_image.reference]
    assert operator_image.reference == f"docker.io/{pod['containers'][0]['image']}"
    # A kubelet compares numbers; the chart's are those whose name the image knows.
    assert (
        operator_image.config["User"] == f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    )
    labels = operator_image.config["Labels"]
    assert labels["org.opencontainers.image.version"] == operator_image.reference.rpartition(":")[2]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_command_works(operator_image: Image, tmp_path: Path) -> None:
    done = sandbox.run(operator_image, tmp_path / "bundle", ["--help"])
    assert done.returncode == 0, done.stderr
    assert "usage: meshwright" in done.stdout


def test_the_chart_s_command_gets_as_far_as_the_cluster(operator_image: Image, tmp_path: Path) -> None:
    """Everything is imported and configured; what it then lacks is an API server."""
    [deployment] = of_kind(render(), "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    done = sandbox.run(operator_image, tmp_path / "bundle", container["args"], command=container["command"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "meshwright: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_agent_installs_itself(operator_image: Image, tmp_path: Path) -> None:
    command = installer(RenderSettings())["command"]
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)  # as an emptyDir is
    target = Path(command[-1])
    done = sandbox.run(
        operator_image,
        tmp_path / "bundle",
        command=command,
        volumes={str(target.parent): volume},
    )
    assert done.returncode == 0, done.stderr
    made = volume / target.name
    assert made.read_bytes() == archive()
    usage = subprocess.run([sys.executable, made], capture_output=True, text=True, check=False)
    assert (usage.returncode, "usage: meshwright-agent" in usage.stderr) == (2, True)


def test_it_is_small_and_pinned(operator_image: Image) -> None:
    found = installed(operator_image.root)
    assert {name for name in found if name.startswith("meshwright")} == {"meshwright-api", "meshwright-operator"}
    others = {(name, version) for name, version in found.items() if not name.startswith("meshwright")}
    assert others
    assert others <= pinned()
    assert operator_image.archive.stat().st_size < 500e6


def test_torch_is_not_there(operator_image: Image, tmp_path: Path) -> None:
    command = ["python", "-c", "import torch"]
    done = sandbox.run(operator_image, tmp_path / "bundle", command=command)
    assert "No module named 'torch'" in done.stderr


def test_nothing_can_be_written_but_tmp(operator_image: Image, tmp_path: Path) -> None:
    """The sandbox is what it claims to be."""
    words = "id -u; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; touch /tmp/a; touch /opt/meshwright/a"
    command = ["sh", "-c", words]
    done = sandbox.run(operator_image, tmp_path / "bundle", command=command)
    assert done.stdout.split() == ["65532", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    assert "Read-only file system" in done.stderr
    assert done.returncode == 1


def test_what_was_lent_to_the_build_is_gone(operator_image: Image) -> None:
    assert not list(operator_image.root.glob("run/secrets/*"))
    assert not list(operator_image.root.glob("etc/pip.conf"))
    assert not [variable for variable in operator_image.config["Env"] if variable.startswith("PIP_")]
