"""Whether all ranks run the same parts of a model in the same order, which sharded parameters need.

A part's weights are gathered and its gradients are summed by all ranks together, and a collective does not know what it
is for. Where one rank runs `heads.0` and another `heads.1`, weights and gradients of both are mixed without a word. So
each rank notes what its collectives are for, and the notes are compared before they have done any harm to the weights.
Collectives that differ in size or number are not so quiet: the backend ends or hangs, which it may do before that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

import torch
import torch.distributed as dist

from meshwright_trainer.errors import InvalidLaunch


class Lockstep:
    """One rank's notes since they were last compared. Every rank makes one at the same time.

    They are compared over the CPU, by a process group of their own, so that the comparison does not queue behind
    collectives of an accelerator that wait for each other.
    """

    def __init__(self) -> None:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)  # every rank is in it
        self._group = group
        self._notes: list[str] = []

    def note(self, purpose: str) -> None:
        """Before a collective: what it is for, such as `gathers heads.0`."""
        self._notes.append(purpose)

    def check(self) -> None:
        """Compares the notes and begins anew. Every rank calls this at the same time; it costs 8 bytes from each.

        Raises:
            InvalidLaunch: on every rank, if they differ on any.
        """
        notes, self._notes = self._notes, []
        mine = torch.tensor([_digest(notes)])
        everyone = mine.new_empty(self._group.size())
        dist.all_gather_into_tensor(everyone, mine, group=self._group)
        if len(set(everyone.tolist())) > 1:
            raise InvalidLaunch(
                "spec.trainer.parallelism.shardStage: with 2 and 3 every rank must run the same parts of the model in "
                f"the same order, but {_difference(self._gathered(notes))}; use shardStage 0 or 1, which let each "
                "rank run what it likes"
            )

    def _gathered(self, notes: list[str]) -> list[list[str]]:
        """The notes of all ranks."""
        everyone: list[list[str]] = [[] for _ in range(self._group.size())]
        dist.all_gather_object(everyone, notes, group=self._group)
        return everyone


def _digest(notes: Sequence[str]) -> int:
    """48 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b("\n".join(notes).encode(), digest_size=6).digest())


def _difference(everyone: Sequence[Sequence[str]]) -> str:
    """The first place where a rank does something else than the first rank, in words."""
    for rank, notes in enumerate(everyone):
        for first, other in zip_longest(everyone[0], notes, fillvalue="is done"):
            if first != other:
                return f"rank 0 {first} where rank {rank} {other}"
    return "they do not"
