"""The samples of a cell's steps: the reference takes them at once, the ranks share them."""

from __future__ import annotations

import torch

from meshwright_trainer.batch import Batch, Window
from tests.trainer.parity.cells import Cell


def whole_step(cell: Cell, step: int) -> Batch:
    """All samples of a step, numbered from 1, as one batch."""
    chance = torch.Generator().manual_seed(cell.seed * 1000 + step)
    shape = (cell.samples, cell.length)
    stream = torch.randint(0, cell.vocabulary, (cell.samples, cell.length + 1), generator=chance)
    sample_id = torch.arange((step - 1) * cell.samples, step * cell.samples)
    document_id = (torch.arange(cell.length) > cell.length // 2).long().expand(shape).clone()
    position_id = torch.arange(cell.length).expand(shape).clone()
    weights = (torch.rand(shape, generator=chance) < 0.8).float()
    batch = Batch(stream[:, :-1], stream[:, 1:], weights, sample_id, position_id, document_id)
    for sample in _without_targets(cell):
        batch.weights[sample] = 0.0
        batch.document_id[sample] = -1
        batch.sample_id[sample] = -1
    return batch


def windows(cell: Cell, batch: Batch, step: int) -> list[Window]:
    """A step as the ranks see it: rank r of n has the micro-batches r, n + r, ..."""
    micro = [part(batch, i, i + cell.micro) for i in range(0, cell.samples, cell.micro)]
    ranks = cell.data * cell.shard
    return [Window(step, tuple(micro[rank::ranks])) for rank in range(ranks)]


def part(batch: Batch, start: int, stop: int) -> Batch:
    """Some of a batch's samples."""
    names = ("tokens", "labels", "weights", "sample_id", "position_id", "document_id")
    return Batch(**{name: getattr(batch, name)[start:stop] for name in names})


def _without_targets(cell: Cell) -> list[int]:
    if cell.oddity == "short" and cell.samples > 1:
        return [cell.samples - 1]
    number = {"masked": lambda i: i // cell.micro == 0, "tokenless": lambda i: i // cell.micro % cell.ranks == 0}
    chosen = number.get(cell.oddity)
    found = [i for i in range(cell.samples) if chosen is not None and chosen(i)]
    return found if len(found) < cell.samples else []
