"""`tokenizer --source PATH --size N --output FILE`: trains a byte-level BPE tokenizer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from meshwright_trainer.data.documents import form_of, read_documents, split
from meshwright_trainer.data.tokenizer import BPE, train_bpe
from meshwright_trainer.errors import InvalidLaunch


def add_to(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("tokenizer", help="train a BPE tokenizer; data.tokenizer.path takes its file")
    parser.add_argument("--source", required=True, help="text to train on: a file, a folder, or builtin:stdlib")
    parser.add_argument("--size", type=int, default=32768, help="entries of the vocabulary (default: 32768)")
    parser.add_argument("--output", type=Path, required=True, help="file that is made")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.output.exists():
        raise InvalidLaunch(f"{arguments.output} exists; checkpoints may depend on it, so name a new file")
    # Held-out documents are none of the training's business, nor of its tokenizer's.
    documents, _ = split(read_documents(arguments.source, form_of(arguments.source)))
    content = train_bpe((document.content for document in documents), arguments.size)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_bytes(content)
    tokenizer = BPE(content, name=str(arguments.output))
    size = tokenizer.vocabulary_size
    print(json.dumps({"output": str(arguments.output), "vocabulary_size": size, "sha256": tokenizer.identity}))
    return 0
