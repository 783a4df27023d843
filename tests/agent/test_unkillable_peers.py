"""Peers that do not heed SIGTERM, under a short grace; in a process of its own, since its signals are blocked."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.agent.conftest import alive

SCRIPT = r"""
import sys, threading
from meshwright_agent.processes import Launch
from meshwright_agent.supervisor import Supervisor
saving = "trap 'sleep 1; echo saved; exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done"
stubborn = "trap '' TERM; echo ready; sleep 60 & wait; while :; do sleep 0.05; done"
scripts = {
    "failure": [stubborn, "sleep 0.3; exit 5"],
    "overtaken": [stubborn, "exec sleep 60"],
    "told": ["exec sleep 60", saving],
    "daemon": ['setsid sh -c "trap : TERM; echo left \$\$; while :; do sleep 0.05; done" & sleep 0.4; exit 4'],
}[sys.argv[1]]
env = {"PATH": "/bin:/usr/bin"}
launches = [Launch(i, i, ("sh", "-c", script), env) for i, script in enumerate(scripts)]
supervisor = Supervisor(launches, grace_seconds=0.3, overtaken_seconds=0.3)
overtake = threading.Timer(0.3, supervisor.overtake)
outcome = supervisor.run(overtake.start if sys.argv[1] == "overtaken" else lambda: None)
overtake.cancel()
print(outcome.exit_code, outcome.overtaken, flush=True)
"""


def run(case: str) -> list[str]:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", SCRIPT, case], capture_output=True, text=True, timeout=20, check=True)
    assert time.monotonic() - began < 5
    return done.stdout.splitlines()


def test_a_peer_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    assert run("failure")[-1] == "5 False"


def test_a_pod_that_is_told_to_stop_has_the_kubelets_time_and_not_ours() -> None:
    """One rank dies of SIGTERM at once; the other's checkpoint takes longer than our grace."""
    assert run("told")[-2:] == ["saved", "143 False"]


def test_nothing_is_left_behind() -> None:
    """A daemon in a session of its own, that outlives SIGTERM, whose parent has ended."""
    said = run("daemon")
    assert said[-1] == "4 False"
    (pid,) = (line.split()[1] for line in said if line.startswith("left"))
    assert not alive(int(pid))


def test_an_overtaken_attempt_ends_as_fenced() -> None:
    assert run("overtaken")[-1] == "76 True"
