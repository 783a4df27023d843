"""The mutants are up to date, and the runner tells red from broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import runner
from tests.mutants.registry import MUTANTS
from tests.mutants.runner import Edit, Mutant, Stale, goes_red, mutated

WANTED = {f"K{n:02}" for n in (1, 2, 3, 4, 5, 6, 8, 12, 43, 48, 50, 51, 52, 54, 81)}


def test_every_row_that_needs_a_mutant_has_one() -> None:
    assert {mutant.row for mutant in MUTANTS} >= WANTED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.row)
def test_no_mutant_is_stale(mutant: Mutant, tmp_path: Path) -> None:
    folder = mutated(mutant, tmp_path)
    assert all((folder / edit.file).is_file() for edit in mutant.edits)
    assert all((runner.ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_a_guard_that_was_moved_takes_its_mutant_along(tmp_path: Path) -> None:
    stale = Mutant("K00", "", (Edit("meshwright_api/names.py", "this text is not there", ""),), ())
    with pytest.raises(Stale, match=r"names\.py"):
        mutated(stale, tmp_path)


def test_sources_that_can_not_be_imported_have_noticed_nothing() -> None:
    edit = Edit("meshwright_api/names.py", "from __future__ import annotations", "raise RuntimeError")
    red, seen = goes_red(Mutant("K00", "", (edit,), ("tests/controller/test_status_patch.py",)))
    assert not red, seen


def test_a_fault_that_tests_notice_is_red() -> None:
    edit = Edit("meshwright/status_patch.py", "elif key not in old or before != value:", "elif key not in old:")
    red, seen = goes_red(Mutant("K00", "", (edit,), ("tests/controller/test_status_patch.py",)))
    assert red, seen
