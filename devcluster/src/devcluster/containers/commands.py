"""Running a command of the system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from devcluster.errors import CommandError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def python_environment() -> dict[str, str]:
    """For Python programs of this package: nothing of the caller's but where its packages are."""
    return {"PATH": PATH} | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def run(argv: Sequence[str]) -> str:
    """Runs it to its end; returns its output.

    Raises:
        CommandError: It failed.
    """
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise CommandError(argv, done.returncode, done.stdout, done.stderr)
    return done.stdout
