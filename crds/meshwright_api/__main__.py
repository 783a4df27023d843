"""`python -m meshwright_api generate [--check]`: writes, or compares, what is generated from the types."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from meshwright_api.crd.generate import outputs

REPOSITORY = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all is written or, with --check, if nothing is stale."""
    parser = argparse.ArgumentParser(prog="python -m meshwright_api", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="write the CRD and its policies to crds/ and the chart")
    generate.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    generate.add_argument("--root", type=Path, default=REPOSITORY, help="root of the repository (default: this one)")
    chosen = parser.parse_args(arguments)
    stale = [path for path, text in outputs() if _read(chosen.root / path) != text]
    if chosen.check:
        for path in stale:
            print(f"{path} is stale; run: python -m meshwright_api generate", file=sys.stderr)
        return 1 if stale else 0
    for path, text in outputs():
        (chosen.root / path).parent.mkdir(parents=True, exist_ok=True)
        (chosen.root / path).write_text(text)
    print(f"{len(stale)} of {len(outputs())} files changed")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    raise SystemExit(main())
