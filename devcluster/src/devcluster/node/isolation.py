"""Finds out how much of a container this machine lets us make, by making one."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from devcluster.node.errors import IsolationError
from devcluster.node.keeper import KEEPER
from devcluster.node.sandbox.launch import NONE, ROOT, USER
from devcluster.node.settings import IsolationChoice


def choose(choice: IsolationChoice, state_dir: Path) -> str:
    """The isolation to use.

    Raises:
        IsolationError: What was asked for does not work here.
    """
    if choice is IsolationChoice.NONE:
        return NONE
    candidates = [USER]
    if choice is not IsolationChoice.USER_NAMESPACES and os.geteuid() == 0:
        candidates.insert(0, ROOT)
    problems = []
    for isolation in candidates:
        problem = _trial(isolation, state_dir)
        if not problem:
            return isolation
        problems.append(f"{isolation}: {problem}")
    if choice is IsolationChoice.AUTO:
        return NONE
    raise IsolationError("this machine gives no namespaces: " + "; ".join(problems))


def _trial(isolation: str, state_dir: Path) -> str:
    """Runs `true` with a volume at a path that does not exist; what went wrong, if anything."""
    with tempfile.TemporaryDirectory(dir=state_dir, prefix="trial-") as folder:
        for name in ("root", "volume"):
            Path(folder, name).mkdir()
        mount = {"source": f"{folder}/volume", "target": "/etc/devcluster-trial/volume", "read_only": True}
        order = {
            "isolation": isolation, "argv": ["true"], "env": {"PATH": os.defpath}, "working_dir": "/",
            "hostname": "trial", "root": f"{folder}/root", "log": f"{folder}/log", "mounts": [mount],
        }  # fmt: skip
        with subprocess.Popen(KEEPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.write(json.dumps(order) + "\n")
            keeper.stdin.flush()
            answers = [json.loads(line) for line in keeper.stdout]
    if answers and answers[-1].get("ended") == 0:
        return ""
    return str(answers[-1].get("error", answers[-1]) if answers else "no answer")
