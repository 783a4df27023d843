"""`python -m tests.mutants [ROW ...]`: exit status 1 if a mutant survives."""

from __future__ import annotations

import sys

from tests.mutants.registry import MUTANTS
from tests.mutants.runner import run

rows = set(sys.argv[1:])
chosen = [mutant for mutant in MUTANTS if not rows or mutant.row in rows]
if rows - {mutant.row for mutant in MUTANTS}:
    sys.exit(f"no mutant for {', '.join(sorted(rows - {m.row for m in MUTANTS}))}")
sys.exit(1 if run(chosen) else 0)
