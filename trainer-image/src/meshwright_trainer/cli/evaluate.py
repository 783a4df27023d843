"""`evaluate CHECKPOINT`: the loss of a kept model on held-out data."""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch

from meshwright_trainer.plan import Place
from meshwright_trainer.session import process_group
from meshwright_trainer.trained import open_trained


def add_to(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("evaluate", help="the loss of a checkpoint on held-out data, as JSON")
    parser.add_argument("checkpoint", help="a checkpoint, or a folder of them: then the newest that counts")
    parser.add_argument("--source", help="path of the data to judge on (default: what the job says)")
    parser.add_argument("--batches", type=int, help="micro-batches (default: what the job says)")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    trained = open_trained(arguments.checkpoint, source=arguments.source, batches=arguments.batches)
    with process_group(Place(), torch.device("cpu")):
        engine, batches = trained.engine()
        found = engine.evaluate(batches)
    report = {"checkpoint": trained.checkpoint, "step": trained.step, "loss": found.loss, "weight": found.weight}
    print(json.dumps({**report, **found.sums}), flush=True)
    return 0
