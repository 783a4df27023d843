"""Several processes on one machine: what they are told, and how one's end becomes all's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshwright_trainer.processes import run_processes


def ranks(script: str) -> list[str]:
    return [sys.executable, "-S", "-c", script]


def test_each_process_is_told_its_place(tmp_path: Path) -> None:
    tell = "import os, pathlib; pathlib.Path(os.environ['OUT'], os.environ['RANK']).write_text(' '.join(os.environ[n] "
    tell += "for n in ('WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'OMP_NUM_THREADS')))"
    assert run_processes(ranks(tell), 3, {"OUT": str(tmp_path), "RANK": "7"}) == 0
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {str(r): f"3 {r} 3 127.0.0.1 1" for r in range(3)}


def test_threads_that_are_asked_for_stay(tmp_path: Path) -> None:
    check = "import os, sys; sys.exit(os.environ['OMP_NUM_THREADS'] != '4')"
    assert run_processes(ranks(check), 2, {"OMP_NUM_THREADS": "4"}) == 0


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(76)", 76), ("os.kill(os.getpid(), 9)", 137), ("sys.exit(0)", 0)],
)
def test_the_first_that_fails_ends_the_others(end: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright_trainer.processes._PATIENCE_SECONDS", 0.2)
    wait = "time.sleep(60)" if code else "0"
    script = f"import os, sys, time\n{end} if os.environ['RANK'] == '1' else {wait}"
    begin = time.monotonic()
    assert run_processes(ranks(script), 2, os.environ) == code
    assert time.monotonic() - begin < 30


def test_a_request_to_stop_reaches_every_process(tmp_path: Path) -> None:
    wait = "import os, pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "
    wait += f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK']).touch(); time.sleep(60)"
    launch = f"from meshwright_trainer.processes import run_processes; print(run_processes({ranks(wait)!r}, 2))"
    with subprocess.Popen([sys.executable, "-c", launch], stdout=subprocess.PIPE, text=True) as process:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.stdout
        assert process.stdout.read() == "143\n"
