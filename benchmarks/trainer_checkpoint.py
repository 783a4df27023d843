"""What a save costs the training: the time `save` takes, to the time of copying the same tensors into kept buffers.

The two take turns, so that whatever else the machine does hits both. The files are written while nothing is timed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.figures import figure
from meshwright_trainer.checkpoint.fingerprint import Fingerprint
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.resume import Start
from meshwright_trainer.checkpoint.storage import open_storage
from meshwright_trainer.checkpoint.writer import Writer

TENSORS = 64


def main() -> None:
    """Prints the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="saves, each beside a copy")
    parser.add_argument("--mebibytes", type=int, default=256, help="size of the state")
    given = parser.parse_args()
    elements = given.mebibytes * 2**20 // 4 // TENSORS
    state = {f"model/{i}": torch.randn(elements) for i in range(TENSORS)}
    kept = {name: tensor.clone() for name, tensor in state.items()}
    pieces = {name: Piece((elements,), (0,), tensor) for name, tensor in state.items()}
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(
            open_storage(str(Path(folder))),
            Start(1),
            rank=0,
            world_size=1,
            keep=1,
            fingerprint=Fingerprint({}, "", {}),
        )
        writer.save(0, 0, pieces, {})  # the first allocates the buffers
        writer.wait()
        ratios = []
        for step in range(1, given.pairs + 1):
            copied = _timed(lambda: [kept[name].copy_(tensor) for name, tensor in state.items()])
            saved = _timed(lambda step=step: writer.save(step, step, pieces, {}))  # type: ignore[misc]
            writer.wait()
            ratios.append(saved / copied)
    quartiles = [round(q, 4) for q in statistics.quantiles(ratios, n=4)]
    context = {"quartiles": quartiles, "pairs": given.pairs, "mebibytes": given.mebibytes}
    print(figure("checkpoint_stall_vs_copy", statistics.median(ratios), goal=1.5, **context), flush=True)


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
