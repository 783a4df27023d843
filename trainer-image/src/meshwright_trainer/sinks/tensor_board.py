"""TensorBoard event files."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from meshwright_trainer.sinks.base import Record


class TensorBoard:
    """One run in a folder; a resumed run goes on in the same one, and `purge_step` hides what it trains again."""

    def __init__(self, folder: Path, *, resumed_from_step: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=resumed_from_step + 1)

    def write(self, record: Record) -> None:
        """Writes every number of the record as a scalar."""
        for name, value in record.figures().items():
            self._writer.add_scalar(f"{record.event}/{name}", value, record.step)

    def close(self) -> None:
        """Flushes and closes the file."""
        self._writer.close()
