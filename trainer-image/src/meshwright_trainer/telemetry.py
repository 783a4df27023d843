"""Speed, utilisation, memory and where the seconds go."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16 peak of a device, FLOP/s, by a part of its name (the makers' data sheets)."""


def peak_flops(device: torch.device) -> float | None:
    """Peak of the device this process has, FLOP/s; None where it is not known, as for CPUs."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory this process has had: allocated on its device, or resident on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass
class Meter:
    """Counts between two log lines."""

    world_size: int
    flops_per_token: float | None = None
    peak: float | None = None
    clock: Callable[[], float] = time.monotonic
    bytes_per_step: dict[str, int] = field(default_factory=dict)
    """What this rank sends in a step, by axis; empty while it is not known."""
    _tokens: float = 0.0
    _steps: int = 0
    _seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._since = self.clock()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the block's seconds under a name."""
        begun = self.clock()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self.clock() - begun

    def count(self, tokens: float) -> None:
        """Counts one step of so many tokens over all ranks."""
        self._tokens += tokens
        self._steps += 1

    def read(self, steps_left: int) -> dict[str, object]:
        """Figures since the last reading, and starts anew."""
        now = self.clock()
        elapsed = max(now - self._since, 1e-9)
        speed = self._tokens / elapsed
        figures: dict[str, object] = {
            "tokens_per_second": round(speed, 1),
            "eta_seconds": round(steps_left * elapsed / max(self._steps, 1)),
            "seconds": {name: round(value, 6) for name, value in self._seconds.items()},
        }
        if self.bytes_per_step:
            figures["bytes"] = {axis: sent * self._steps for axis, sent in self.bytes_per_step.items()}
        if self.flops_per_token and self.peak:
            figures["mfu"] = speed * self.flops_per_token / (self.peak * self.world_size)
        self._tokens, self._steps, self._seconds, self._since = 0.0, 0, {}, now
        return figures
