"""`python -m demo` (which `make demo` runs). KEEP=1 in the environment, or --keep, leaves the cluster up."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from demo.errors import DemoError
from demo.ground import Places
from demo.screen import Screen
from demo.story import run
from devcluster.errors import DevClusterError

INTERRUPTED = 130


def main() -> int:
    """Returns the exit code: 0 only if all that the demo claims was seen."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", default=os.environ.get("KEEP", "") not in ("", "0"))
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, _as_interrupt)
    screen = Screen()
    try:
        return run(Places(), screen, keep=keep)
    except (DemoError, DevClusterError) as error:
        screen.plain(f"demo: {error}")
        return 1
    except KeyboardInterrupt:
        screen.plain("demo: interrupted; nothing of it runs any more")
        return INTERRUPTED


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
