"""`python -m devcluster.node`."""

from __future__ import annotations

import asyncio
import logging
import sys

from devcluster.node.errors import NodeError
from devcluster.node.program import run
from devcluster.node.settings import parse_arguments


def main() -> int:
    """Runs the node program; its exit status."""
    settings = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run(settings))
    except NodeError as error:
        print(f"devcluster.node: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
