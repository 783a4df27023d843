"""`meshwright-trainer`: train, evaluate, generate, export, with or without Kubernetes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from meshwright_api.errors import ApiError
from meshwright_trainer.checkpoint.errors import CheckpointError, Fenced, SaveError
from meshwright_trainer.cli import evaluate, export, generate, tokenizer, train
from meshwright_trainer.data.errors import DataError
from meshwright_trainer.errors import TrainerError

EXIT_FENCED = 76
"""A newer attempt of the job has taken over; never a fault of the job."""
EXIT_FAILED = 1
"""Something around the process failed, such as a disk that is full; the same again may succeed."""
EXIT_UNUSABLE = 2
"""What the process was told cannot be; the message says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="meshwright-trainer", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (train, evaluate, generate, export, tokenizer):
        command.add_to(commands)
    arguments = parser.parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except Fenced as error:
        return _said(error, EXIT_FENCED)
    except SaveError as error:
        return _said(error, EXIT_FAILED)
    except (TrainerError, ApiError, DataError, CheckpointError) as error:
        return _said(error, EXIT_UNUSABLE)
    return code


def _said(error: Exception, code: int) -> int:
    print(f"meshwright-trainer: {error}", file=sys.stderr, flush=True)
    return code
