"""`export CHECKPOINT --output FOLDER`: weights alone, whole, for other programs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.models.reference import to_reference
from meshwright_trainer.trained import open_trained


def add_to(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("export", help="write the weights of a checkpoint as one safetensors file")
    parser.add_argument("checkpoint", help="a checkpoint, or a folder of them: then the newest that counts")
    parser.add_argument("--output", type=Path, required=True, help="folder that is made")
    parser.add_argument(
        "--names",
        choices=("transformers", "meshwright"),
        default="transformers",
        help="names and layout of the weights (default: those of Hugging Face transformers)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.output
    if folder.exists() and any(folder.iterdir()):
        raise InvalidLaunch(f"{folder} is not empty; name a new folder")
    trained = open_trained(arguments.checkpoint)
    weights = trained.weights()
    if arguments.names == "transformers":
        weights = to_reference(trained.model, weights)
    folder.mkdir(parents=True, exist_ok=True)
    # Tied weights are two names of one tensor, which the file format does not know.
    save_file({name: value.clone() for name, value in weights.items()}, folder / "model.safetensors")
    about = {"checkpoint": trained.checkpoint, "step": trained.step, "model": dict(trained.model.identity)}
    (folder / "meshwright.json").write_text(json.dumps(about, indent=2) + "\n")
    print(json.dumps({"output": str(folder), "tensors": len(weights)}), flush=True)
    return 0
