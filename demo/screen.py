"""What the person sees: lines with the time, and on a terminal one moving line for the step."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from demo.script_log import Step

BAR = 30
PLAIN_STEPS = 20
"""Where there is no terminal, a line this often."""


class Screen:
    """Writes to standard output. Lines of a plain log and of a terminal differ only in how steps are shown."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._began = time.monotonic()
        self._moving = False

    def say(self, text: str) -> None:
        """A line of its own, with the seconds since the start."""
        self._write(f"[{time.monotonic() - self._began:5.0f} s] {text}\n")

    def plain(self, text: str = "") -> None:
        """Text as it is."""
        self._write(text + "\n")

    def step(self, step: Step) -> None:
        """Shows how far the training is."""
        if self._terminal:
            self._stream.write(f"\r\x1b[K[{time.monotonic() - self._began:5.0f} s] {describe(step, bar=True)}")
            self._stream.flush()
            self._moving = True
        elif step.step % PLAIN_STEPS == 0:
            self.say(describe(step))

    def _write(self, text: str) -> None:
        if self._moving:
            text = "\n" + text
            self._moving = False
        self._stream.write(text)
        self._stream.flush()


def describe(step: Step, *, bar: bool = False) -> str:
    """One step in words: number, loss, speed."""
    filled = BAR * step.step // step.steps
    drawn = f" [{'#' * filled:<{BAR}}]" if bar else ""
    speed = f"{step.tokens_per_second:,.0f} bytes/s"
    return f"step {step.step:>3}/{step.steps}{drawn} loss {step.loss:.3f} nats/byte, {speed}"
