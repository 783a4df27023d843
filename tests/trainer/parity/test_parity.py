"""A covering subset of `make parity`: every pair of options that occurs in any cell."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.parallel.refusals import refusals
from tests.trainer.parity.cells import Cell, all_cells, covering, drawn
from tests.trainer.parity.compare import compare
from tests.trainer.pool import Pool


@pytest.mark.parametrize("cell", covering(all_cells()), ids=str)
def test_a_mesh_computes_what_one_process_computes(pool: Pool, cell: Cell) -> None:
    report = compare(pool, cell)
    assert not report.problems(), str(report)


def test_there_are_enough_cells_and_they_print_what_they_are() -> None:
    cells = all_cells() + drawn(seed=3, count=50)
    assert len(all_cells()) >= 60
    assert [Cell.parse(str(cell)) for cell in cells] == cells


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("tensor=2", "TENSOR-LATER"),
        ("pipeline=2", "PIPELINE-LATER"),
        ("context=2", "CONTEXT-LATER"),
        ("data=2,expert=2", "EXPERT-LATER"),
        ("precision=FP16", "FP16-LATER"),
        ("precision=FP8", "FP8-LATER"),
    ],
)
def test_what_is_not_there_yet_is_refused_by_name(change: str, rule: str) -> None:
    cell = Cell.parse(f"model=gpt3,{change}")
    assert [found.id for found in refusals(trainer_config(cell.section(), cell.ranks))] == [rule]


def test_the_reference_knows_nothing_that_spreads() -> None:
    code = (
        "import sys, tests.trainer.parity.reference\n"
        "hidden = ('parallel', 'engines', 'collectives', 'optim', 'mesh')\n"
        "bad = [m for m in sys.modules if any(m.startswith(f'meshwright_trainer.{h}') for h in hidden)]\n"
        "sys.exit(f'the reference imports {bad}' if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
