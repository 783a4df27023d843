"""`python -m demo` (which `make demo` runs).

KEEP=1 in the environment, or --keep, leaves the cluster up; VERIFY=1, or --verify, trains the job once more without the
kill and compares the bits; EXAMPLE=pytorch-text, or --example, shows a script of one's own in place of the trainer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from demo.errors import DemoError
from demo.examples import BUILT_IN, chosen
from demo.ground import Places, shown
from demo.screen import Screen
from demo.story import run
from devcluster.errors import DevClusterError

INTERRUPTED = 130


def main() -> int:
    """Returns the exit code: 0 only if all that the demo claims was seen."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", default=os.environ.get("KEEP", "") not in ("", "0"))
    parser.add_argument("--verify", action="store_true", default=os.environ.get("VERIFY", "") not in ("", "0"))
    parser.add_argument("--example", default=os.environ.get("EXAMPLE") or BUILT_IN.name)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _as_interrupt)
    screen = Screen()
    try:
        places = Places()
        wanted = chosen(options.example)
        example = shown(wanted, places)
        if example is not wanted:
            screen.plain(f"this machine gives no user namespaces, so {example.name} is shown in place of {wanted.name}")
        return run(places, screen, example, keep=options.keep, verify=options.verify and bool(example.needs_mounts))
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
