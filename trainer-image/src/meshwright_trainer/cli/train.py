"""`train JOB` on this machine or under torchrun, and `pod`, which is what a pod of a TrainingJob runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from meshwright_trainer.loop import Ending
from meshwright_trainer.loop import train as train_loop
from meshwright_trainer.plan import Launch, from_file, from_plan
from meshwright_trainer.processes import run_processes, train_words
from meshwright_trainer.session import session
from meshwright_trainer.stopping import EXIT_TERMINATED, StopRequest


def add_to(commands: Any) -> None:
    """Adds both commands."""
    parser = commands.add_parser("train", help="train what a job file says, here")
    parser.add_argument("job", type=Path, help="a TrainingJob, or its trainer section alone")
    parser.add_argument("--processes", type=int, default=1, help="processes to start on this machine (default: 1)")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="FIELD=VALUE", help="steps=10, model.dropout=0"
    )
    parser.set_defaults(run=_train)
    commands.add_parser("pod", help="train what the launch plan of this pod says").set_defaults(run=_pod)


def run(launch: Launch) -> int:
    """Trains one process's part. Returns the exit code."""
    with StopRequest() as stop, session(launch, stop) as ready:
        ending = train_loop(ready)
    return 0 if ending is Ending.FINISHED else EXIT_TERMINATED


def _train(arguments: argparse.Namespace) -> int:
    overrides = tuple(arguments.overrides)
    if arguments.processes > 1 and "RANK" not in os.environ:
        # What is wrong with the job is said once, before there are processes to say it.
        from_file(arguments.job, overrides, {"RANK": "0", "WORLD_SIZE": str(arguments.processes)})
        return run_processes(train_words(str(arguments.job), overrides), arguments.processes)
    return run(from_file(arguments.job, overrides))


def _pod(_arguments: argparse.Namespace) -> int:
    return run(from_plan())
