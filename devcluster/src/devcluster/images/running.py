"""Programs that make images: watched, logged, and ended when we end."""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

from devcluster.errors import ImageError
from devcluster.gobuild import Progress, Report

_STEP: Final = re.compile(r"^(?:\[\d+/\d+\] )?STEP (\d+)/(\d+): ")
_NETWORK: Final = re.compile(
    r"name resolution|Could not resolve|ConnectTimeout|Connection (refused|reset)|Max retries|SSLError"
)
_PR_SET_PDEATHSIG: Final = 1


def start(
    argv: Sequence[str], output: int | IO[Any], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts a program that is told to end when we end, however we end."""
    libc = ctypes.CDLL(None)
    return subprocess.Popen(
        argv, cwd="/", env=environment, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
    )  # fmt: skip


def run(argv: Sequence[str], what: str, log: Path, report: Report, environment: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end and returns what it said.

    Args:
        argv: the program and its arguments.
        what: is being done, for progress and errors.
        log: a file that what it says is added to.
        report: is told which step of a Dockerfile is done.
        environment: of the program; ours by default.

    Raises:
        ImageError: it failed.
    """
    said: list[str] = []
    with ExitStack() as stack:
        record = stack.enter_context(open(log, "a"))
        process = stack.enter_context(start(argv, subprocess.PIPE, environment))
        assert process.stdout
        try:
            for line in process.stdout:
                record.write(line)
                said.append(line)
                if step := _STEP.match(line):
                    report(Progress(what, int(step[1]), int(step[2])))
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise ImageError(_explain(what, argv[0], process.returncode, "".join(said), log))
    return "".join(said).strip()


def _explain(what: str, program: str, code: int, said: str, log: Path) -> str:
    end = "\n".join(said.splitlines()[-8:])
    if "no space left on device" in said.lower():
        advice = "The disk is full."
    elif "overlay" in said and "not supported" in said:
        advice = "Layers cannot be mounted where the cache is: set XDG_CACHE_HOME to a folder on a disk (ext4, xfs)."
    elif _NETWORK.search(said):
        advice = "A package could not be downloaded: check the network, and what `pip config list` says."
    else:
        advice = f"{program} ended with {code}."
    return f"{what} failed. {advice} The whole log: {log}\n{end}"
