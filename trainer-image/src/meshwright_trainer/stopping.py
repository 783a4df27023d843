"""SIGTERM and SIGINT as a wish that the loop looks at between two steps."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

EXIT_TERMINATED = 128 + signal.SIGTERM
"""What a process that stops on SIGTERM reports; 0 would claim that the training is complete."""


class StopRequest:
    """Remembers that the process was asked to stop, within a `with` block. Outside the main thread it hears nothing."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._on_signal)
            except ValueError:  # a notebook's or a test's thread: whoever owns the main thread decides
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # A second interrupt is a person who does not want to wait for the checkpoint.
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
