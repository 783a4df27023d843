"""`make parity`: every mode against one process. CELL=... runs one cell, FUZZ=n SEED=s random ones."""

from __future__ import annotations

import os
import sys
import time

from meshwright_api.errors import InvalidTrainer
from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.parallel.refusals import refusals
from tests.trainer.parity.cells import Cell, all_cells, drawn
from tests.trainer.parity.compare import compare
from tests.trainer.pool import Pool, RankFailed


def main() -> int:
    """Runs the cells and returns how many went wrong."""
    cells = _chosen()
    pool = Pool(max([4, *(cell.ranks for cell in cells if _refusal(cell) is None)]))
    started, wrong, worst = time.monotonic(), 0, 0.0
    for number, cell in enumerate(cells, 1):
        rule = _refusal(cell)
        if rule is not None:
            print(f"[{number}/{len(cells)}] {cell}: refused: {rule}", flush=True)
            continue
        try:
            found = compare(pool, cell)
        except (RankFailed, AssertionError) as error:
            wrong += 1
            print(f"[{number}/{len(cells)}] {cell}: FAILED {error}", flush=True)
            continue
        problems = found.problems()
        wrong += bool(problems)
        worst = max(worst, found.d)
        print(f"[{number}/{len(cells)}] {cell}: {found}{''.join(f' WRONG: {p}' for p in problems)}", flush=True)
    pool.close()
    print(f"{len(cells) - wrong} of {len(cells)} cells, largest d {worst:.1e}, {time.monotonic() - started:.0f} s")
    return wrong


def _chosen() -> list[Cell]:
    if text := os.environ.get("CELL"):
        return [Cell.parse(text)]
    if count := os.environ.get("FUZZ"):
        return drawn(int(os.environ.get("SEED") or "0"), int(count))
    return all_cells()


def _refusal(cell: Cell) -> str | None:
    """The rule that a cell runs into. What the table does not know must run."""
    try:
        config = trainer_config(cell.section(), cell.ranks)
    except InvalidTrainer as error:
        sys.exit(f"{cell} is no job: {error}")
    return next((rule.id for rule in refusals(config)), None)


sys.exit(min(1, main()))
