"""The jobs that the demo can show: a manifest as users apply it, and who judges what came of it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from demo import manifest
from demo.errors import DemoError

ROOT = manifest.EXAMPLES.parent


@dataclass(frozen=True)
class Example:
    """One job."""

    name: str
    """Of the job, its claim and its volume."""
    manifest: Path
    judge: Path
    """Program that reads the final checkpoint and prints losses and a sample as JSON."""
    checkpoint: re.Pattern[str]
    """Matches the path of a finished checkpoint below the checkpoint folder; group 1 is its step."""
    needs_mounts: bool
    """Whether its paths must be those that the manifest says."""

    def newest_checkpoint(self, folder: Path) -> int | None:
        """The newest step that lies finished in the folder; None if there is none."""
        names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return max((int(match[1]) for name in names if (match := self.checkpoint.fullmatch(name))), default=None)

    def judging(self, folder: Path) -> list[str]:
        """Command line of the judge."""
        return [sys.executable, str(self.judge), "--checkpoints", str(folder)]


BUILT_IN = Example(
    name="gpt-text",
    manifest=manifest.EXAMPLES / "gpt-text.yaml",
    judge=ROOT / "demo" / "judge.py",
    checkpoint=re.compile(r"step-(\d+)\.a\d+/manifest\.json"),
    needs_mounts=True,
)
"""The built-in trainer."""
OWN_SCRIPT = Example(
    name=manifest.NAME,
    manifest=manifest.MANIFEST,
    judge=manifest.SOURCES / "evaluate.py",
    checkpoint=re.compile(r"step-(\d+)\.pt"),
    needs_mounts=False,
)
"""A plain PyTorch script in a stock image."""
EXAMPLES = {example.name: example for example in (BUILT_IN, OWN_SCRIPT)}


def chosen(name: str) -> Example:
    """The example of this name.

    Raises:
        DemoError: there is none.
    """
    if name not in EXAMPLES:
        raise DemoError(f"there is no example {name!r}; use one of {', '.join(EXAMPLES)}")
    return EXAMPLES[name]
