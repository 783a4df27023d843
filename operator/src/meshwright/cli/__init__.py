"""`meshwright`: run the operator; say where jobs are and would be; decide a logged observation again.

The same program is `kubectl meshwright`, by the name `kubectl-meshwright`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from meshwright import logs, settings
from meshwright.cli import placement
from meshwright.cli.replay import replay
from meshwright.metrics import operator_version

logger = logging.getLogger(__name__)

COMMANDS: Final = ("run", *placement.COMMANDS, "replay", "version")

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the process's exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "version":
        print(operator_version())
        return OK
    if arguments.command == "replay":
        return replay(arguments.file, sys.stdout, sys.stderr)
    if arguments.command in placement.COMMANDS:
        return placement.run(arguments, sys.stdout, sys.stderr)
    return _run(arguments)


def _parser() -> argparse.ArgumentParser:
    program = "kubectl meshwright" if Path(sys.argv[0]).name.startswith("kubectl") else "meshwright"
    parser = argparse.ArgumentParser(prog=program, description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar=f"{{{','.join(COMMANDS)}}}")
    settings.add_flags(commands.add_parser("run", help="run the operator until a signal ends it"))
    placement.add_commands(commands)
    again = commands.add_parser("replay", help="decide logged observations again and print the decisions as JSON")
    again.add_argument("file", help="file of observations, one JSON document per line; - for standard input")
    commands.add_parser("version", help="print the version")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    try:
        chosen = settings.from_flags(arguments)
        found = chosen.profiles.names
    except settings.InvalidSettings as error:
        print(f"meshwright: {error}", file=sys.stderr)
        return USAGE
    logs.configure("json" if chosen.log_format == "json" else "text", chosen.log_level)
    logger.info("meshwright %s starts as %s", operator_version(), chosen.identity)
    if found:
        logger.info("fabric profiles: %s", ", ".join(found))

    # Kopf and the client take seconds to import; the other commands do not need them.
    from meshwright.cluster.errors import ConfigError
    from meshwright.kopf_app import serve

    try:
        asyncio.run(serve(chosen))
    except ConfigError as error:
        print(f"meshwright: {error}", file=sys.stderr)
        return USAGE
    logger.info("meshwright ends")
    return OK
