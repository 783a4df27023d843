"""Puts one fault at a time into a copy of the sources and runs the tests that must notice.

A mutant is a change of source text. If the text is not there any more, the mutant is stale and counts as survived: a
guard that was moved must take its mutant along.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "meshwright": "operator/src",
    "meshwright_api": "crds",
    "devcluster": "devcluster/src",
    "meshwright_trainer": "trainer-image/src",
}
"""Where each package is found."""


@dataclass(frozen=True)
class Edit:
    """One change of a source file."""

    file: str
    """From the package's name on: `meshwright/lifecycle/budget.py`."""
    old: str
    """Stands in the file exactly once."""
    new: str


@dataclass(frozen=True)
class Mutant:
    """A fault and the tests that must go red with it."""

    row: str
    """Row of `docs/robustness.md`: `K01`; the trainer's begin with T."""
    fault: str
    """The fault, in a few words."""
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    @property
    def packages(self) -> set[str]:
        """The packages that are changed."""
        return {edit.file.partition("/")[0] for edit in self.edits}


class Stale(Exception):
    """The source does not have the text that the mutant changes exactly once."""


def mutated(mutant: Mutant, folder: Path) -> Path:
    """Copies the mutant's packages to `folder` and changes them; returns what goes in front of the import path.

    Raises:
        Stale: the text to change is not there, or more than once.
    """
    for package in mutant.packages:
        shutil.copytree(ROOT / SOURCES[package] / package, folder / package)
    for edit in mutant.edits:
        file = folder / edit.file
        text = file.read_text()
        if text.count(edit.old) != 1:
            raise Stale(f"{edit.file} has the text {text.count(edit.old)} times, not once: {edit.old!r}")
        file.write_text(text.replace(edit.old, edit.new))
    return folder


def goes_red(mutant: Mutant) -> tuple[bool, str]:
    """Whether the tests notice the fault, and what was seen.

    A run that finds no test, or cannot even import the sources, has noticed nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = mutated(mutant, Path(folder))
        except Stale as error:
            return False, str(error)
        env = os.environ | {"PYTHONPATH": os.pathsep.join((str(path), str(ROOT)))}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    closing = (done.stdout.strip().splitlines() or ["no output"])[-1]
    noticed = done.returncode == 1 and " failed" in closing and " error" not in closing
    return noticed, closing


def run(mutants: Sequence[Mutant]) -> int:
    """Tries every mutant, says what came of each, and returns how many survived."""
    survived = 0
    for mutant in mutants:
        red, seen = goes_red(mutant)
        survived += not red
        print(f"{'red     ' if red else 'SURVIVED'} {mutant.row:<5} {mutant.fault}: {seen}", flush=True)
    print(f"{len(mutants) - survived} of {len(mutants)} mutants were noticed")
    return survived
