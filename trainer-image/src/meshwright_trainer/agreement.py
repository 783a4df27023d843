"""What all ranks must decide alike though each sees something else: to stop, to keep a checkpoint.

SIGTERM reaches the ranks at different moments, and clocks differ. Were each rank to act by itself, the others would
wait for it in the next collective; so every step carries one vote, and all act after the same step. The vote of a step
is counted while the next one is computed, on a process group of its own, so that it costs no waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Verdict:
    """What the ranks have agreed on."""

    stop: bool = False
    save: bool = False


class Agreement:
    """One vote per step, known one step later. Every rank votes in every step."""

    def __init__(self) -> None:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)  # every rank is in it
        self._group = group
        self._ballot = torch.zeros(2, dtype=torch.int32)
        self._pending: dist.Work | None = None

    def exchange(self, *, stop: bool, save: bool) -> Verdict:
        """Casts this step's vote and returns what the vote of the step before came to. One rank's yes is enough."""
        verdict = self.settle()
        self._ballot = torch.tensor([stop, save], dtype=torch.int32)
        self._pending = dist.all_reduce(self._ballot, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        return verdict

    def settle(self) -> Verdict:
        """What the last vote came to, without casting another."""
        if self._pending is None:
            return Verdict()
        self._pending.wait()
        self._pending = None
        stop, save = self._ballot.tolist()
        return Verdict(bool(stop), bool(save))
