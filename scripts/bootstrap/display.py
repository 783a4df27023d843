"""Shows how far several jobs are: bars that move on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from jobs import Job

BAR = 24
_TERMINAL_PAUSE, _PLAIN_PAUSE = 0.2, 10.0


class Display:
    """Draws on standard error, so that standard output stays the task's own."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._shown_at = float("-inf")
        self._drawn = 0

    @property
    def pause(self) -> float:
        """Seconds between two looks at the jobs."""
        return _TERMINAL_PAUSE

    def say(self, text: str) -> None:
        """Prints a line of its own."""
        print(text, file=self._stream, flush=True)

    def show(self, jobs: Sequence[Job], *, last: bool = False) -> None:
        """Shows the jobs as they are now, if it is time to."""
        now = time.monotonic()
        if now - self._shown_at < (_TERMINAL_PAUSE if self._terminal else _PLAIN_PAUSE) and not last:
            return
        self._shown_at = now
        if self._terminal:
            back = f"\x1b[{self._drawn}A" if self._drawn else ""
            self._stream.write(back + "".join(f"\r\x1b[K{line(job)}\n" for job in jobs))
            self._stream.flush()
            self._drawn = len(jobs)
        else:
            self.say("; ".join(brief(job) for job in jobs))


def line(job: Job) -> str:
    """One job with its bar, within 100 columns."""
    filled = int(BAR * (job.share or 0.0))
    share = f"{100 * job.share:3.0f}%" if job.share is not None else "    "
    return f"  {job.name:<16} [{'#' * filled:<{BAR}}] {share} {_clock(job.seconds)}  {job.text[:40]}"


def brief(job: Job) -> str:
    """One job in a few words, for logs."""
    share = f" {100 * job.share:.0f}%" if job.share is not None else ""
    return f"{job.name}:{share} {job.text} ({_clock(job.seconds)})"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
