"""The order of things: venv, then the Go build beside the packages, then the stamp that says all of it is there."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import needs
from display import Display
from jobs import Job
from needs import SetupError, Todo

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "meshwright-setup"
LOGS = ROOT / "build" / "setup"
CONSTRAINTS, REQUIREMENTS = ROOT / "constraints.txt", ROOT / "requirements-dev.txt"
TOOLCHAIN = ROOT / "devcluster" / "src" / "devcluster" / "toolchain.py"
INPUTS = [CONSTRAINTS, REQUIREMENTS, *sorted(ROOT.glob("*/pyproject.toml"))]
UNPACKED_BYTES = 5_600_000_000
"""What uv writes when it has nothing in its cache: measured, and only used to draw a bar."""


def main() -> int:
    """Makes the checkout ready. Returns the exit code."""
    display = Display()
    os.chdir(ROOT)  # the requirements name our packages relative to it
    try:
        with _alone(display):
            return _set_up(display)
    except SetupError as error:
        display.say(f"setup: {error}")
        return 1
    except KeyboardInterrupt:
        display.say("\nsetup: interrupted; what was downloaded and built so far is kept")
        return 130


def _set_up(display: Display) -> int:
    wanted = needs.digest(INPUTS, sys.version)
    todo = needs.decide(
        stamp=STAMP.read_text() if STAMP.exists() else "",
        wanted=wanted,
        venv_works=_venv_works(),
        kubernetes_there=_kubernetes_there(),
    )
    if todo.nothing:
        return 0
    uv_cache, programs_cache = needs.cache_folder("UV_CACHE_DIR", "uv"), needs.cache_folder("GOCACHE", "meshwright")
    needs.check_machine(todo, needs.places(todo, VENV, uv_cache, programs_cache))
    began = time.monotonic()
    display.say("Setting up: " + ", ".join(_words(todo)))
    _make(todo, display)
    STAMP.write_text(wanted)
    display.say(f"Set up in {time.monotonic() - began:.0f} s.")
    return 0


def _words(todo: Todo) -> Iterator[str]:
    if todo.packages:
        yield "Python packages into .venv"
    if todo.kubernetes:
        yield "a Kubernetes control plane, built from source once (about 5 minutes on 2 cores)"


def _make(todo: Todo, display: Display) -> None:
    if todo.venv:
        _run_quietly([sys.executable, "-m", "venv", "--clear", str(VENV)], "making .venv failed")
    jobs: list[Job] = []
    try:
        if todo.kubernetes:
            build = [str(PYTHON), str(TOOLCHAIN), "build", "--json"]
            jobs.append(Job("kubernetes", build, LOGS / "kubernetes.log").start())
        if todo.packages:
            STAMP.unlink(missing_ok=True)
            _install_uv()
            jobs.append(Job("python packages", _install_command(), LOGS / "packages.log", UNPACKED_BYTES).start())
        while [job for job in jobs if job.running()]:
            display.show(jobs)
            time.sleep(display.pause)
        display.show(jobs, last=True)
    finally:
        for job in jobs:
            job.stop()


def _install_uv() -> None:
    pinned = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("uv==")]
    _run_quietly([str(PYTHON), "-m", "pip", "install", "--quiet", *pinned], "installing uv failed")


def _install_command() -> list[str]:
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON), "--no-progress"]
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        # Else Python does it by itself, as it goes. Here each start of the operator would compile for seconds again.
        uv.append("--compile-bytecode")
    return [*uv, "--constraint", str(CONSTRAINTS), "--requirement", str(REQUIREMENTS)]


def _venv_works() -> bool:
    """A venv may be there and broken: its Python was removed, or was another version's, or its making broke off."""
    with suppress(OSError):
        question = "import sys, pip; print(sys.version)"
        answer = subprocess.run([PYTHON, "-c", question], capture_output=True, text=True, check=False)
        return answer.returncode == 0 and answer.stdout.strip() == sys.version
    return False


def _kubernetes_there() -> bool:
    answer = subprocess.run([sys.executable, TOOLCHAIN, "where"], capture_output=True, check=False)
    return answer.returncode == 0


def _run_quietly(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SetupError(f"{failure}: {' '.join(command)}\n{(done.stdout + done.stderr).strip()[-2000:]}")


@contextmanager
def _alone(display: Display) -> Iterator[None]:
    """Two tasks started at once must not write one venv; the second waits and finds nothing to do."""
    LOGS.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(LOGS / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            display.say("setup: another one is running in this checkout; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
