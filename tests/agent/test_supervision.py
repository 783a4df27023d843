"""The agent as a real process with real children: what they end with, what signals reach them, what is left behind."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable

import pytest

from tests.agent.conftest import Run, a_plan, alive, soon

Start = Callable[..., Run]

TWO = a_plan(processes=2)
CHECKPOINTS = """
    trap 'echo told; sleep 0.3; echo saved; exit {code}' TERM
    echo ready
    while :; do sleep 0.05; done
"""


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", textwrap.dedent(text))


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 76", 76), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)],
)
def test_the_agents_exit_code_is_its_processs(start: Start, script: str, code: int) -> None:
    run = start("sh", "-c", script)
    assert run.wait() == code
    assert run.last_words["exitCode"] == code


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run_is_named(start: Start, command: str, code: int) -> None:
    run = start(command)
    assert run.wait() == code
    assert command in run.err


def test_output_passes_through_untouched(start: Start) -> None:
    run = start("sh", "-c", "echo out; echo err >&2")
    assert run.wait() == 0
    assert run.out == "out\n"
    assert run.err.splitlines()[0] == "err"


def test_the_last_line_says_which_rank_failed_and_how(start: Start) -> None:
    script = 'if [ "$LOCAL_RANK" = 1 ]; then kill -KILL $$; fi; sleep 30'
    run = start("sh", "-c", script, plan=a_plan(replicas=2, processes=2), index=1)
    assert run.wait() == 137
    words = run.last_words
    assert (words["rank"], words["localRank"], words["signal"]) == (3, 1, "SIGKILL")
    assert len(run.err.splitlines()[-1]) < 300


def test_the_first_failure_decides_and_ends_its_peers(start: Start) -> None:
    """The peer ends with a code of its own, later, which is a consequence and no cause."""
    script = """
        if [ "$LOCAL_RANK" = 0 ]; then trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done; fi
        sleep 0.4; exit 5
    """
    run = start("sh", "-c", script, plan=TWO)
    began = time.monotonic()
    assert run.wait() == 5
    assert time.monotonic() - began < 5
    assert run.last_words["localRank"] == 1


def test_it_waits_until_every_process_has_ended_well(start: Start) -> None:
    run = start("sh", "-c", "sleep 0.$LOCAL_RANK; echo done $LOCAL_RANK", plan=a_plan(processes=3))
    assert run.wait() == 0
    assert sorted(run.out.splitlines()) == ["done 0", "done 1", "done 2"]


@pytest.mark.parametrize(("code", "expected"), [("0", 0), ("143", 143)])
def test_sigterm_lets_a_process_write_its_checkpoint(start: Start, code: str, expected: int) -> None:
    run = start("sh", "-c", CHECKPOINTS.format(code=code))
    run.until_it_says("ready")
    run.signal(signal.SIGTERM)
    run.until_it_says("told")
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGINT)
    assert run.wait() == expected
    assert run.out.split() == ["ready", "told", "saved"]


def test_a_process_that_dies_of_sigterm_is_143(start: Start) -> None:
    run = start("sh", "-c", "echo ready; exec sleep 30")
    run.until_it_says("ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert "told to stop" in run.last_words["message"]


def test_sigterm_does_not_reach_a_data_loader_before_its_trainer_wants(start: Start) -> None:
    """A loader that dies first takes the trainer with it, and the checkpoint."""
    script = """
        import os, signal, time
        loader = os.fork()
        if loader == 0:
            time.sleep(60)
        def save(*_):
            time.sleep(0.3)
            assert os.waitpid(loader, os.WNOHANG) == (0, 0), "the loader is dead"
            os.write(1, b"saved\\n")
            os.kill(loader, signal.SIGKILL)
            os._exit(0)
        signal.signal(signal.SIGTERM, save)
        os.write(1, b"ready\\n")
        while True: time.sleep(0.05)
    """
    run = start(*python(script))
    run.until_it_says("ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == 0, run.err
    assert "saved" in run.out


def test_a_shell_that_dies_of_sigterm_does_not_take_its_trainers_time(start: Start) -> None:
    """`bash -c "python train.py; ..."`: the shell ends at once, the trainer behind it writes its checkpoint."""
    trainer = """
        import os, signal, sys, time
        def save(*_):
            time.sleep(0.4)
            os.write(1, b"saved\\n")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        os.write(1, b"ready\\n")
        while True: time.sleep(0.05)
    """
    run = start("sh", "-c", f"{sys.executable} -I -S -c '{textwrap.dedent(trainer)}'; true")
    run.until_it_says("ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert "saved" in run.out


def test_other_signals_are_passed_on(start: Start) -> None:
    run = start("sh", "-c", "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.05; done")
    run.until_it_says("ready")
    run.signal(signal.SIGUSR1)
    assert run.wait() == 0
    assert "usr1" in run.out


def test_processes_find_signals_as_a_shell_leaves_them(start: Start) -> None:
    """Nothing blocked, SIGPIPE not ignored: else `yes | head` in a script would run for ever."""
    run = start("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    assert run.wait() == 0
    blocked, ignored = (int(line.split()[1], 16) for line in run.out.splitlines())
    assert blocked == 0
    assert not ignored >> (signal.SIGPIPE - 1) & 1


def test_zombies_do_not_pile_up(start: Start) -> None:
    """Orphans that end while the trainer goes on are reaped, as PID 1 must do."""
    script = """
        import os, time
        for _ in range(20):
            if os.fork() == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
            os.wait()
        def zombies():
            stats = []
            for pid in filter(str.isdecimal, os.listdir("/proc")):
                try:
                    stats.append(open(f"/proc/{pid}/stat").read())
                except OSError:
                    pass
            return sum(stat.rpartition(")")[2].split()[:2] == ["Z", str(os.getppid())] for stat in stats)
        deadline = time.monotonic() + 10
        while zombies() and time.monotonic() < deadline:
            time.sleep(0.05)
        print(zombies())
    """
    run = start(*python(script))
    assert run.wait() == 0, run.err
    assert run.out.split() == ["0"]


def test_a_killed_agent_takes_its_processes_with_it(start: Start) -> None:
    run = start("sh", "-c", "echo $$; exec sleep 60", plan=TWO)
    assert run.popen.stdout is not None
    pids = [int(run.popen.stdout.readline()) for _ in range(2)]
    assert all(map(alive, pids))
    os.kill(run.popen.pid, signal.SIGKILL)
    run.wait()
    assert soon(lambda: not any(map(alive, pids)))
