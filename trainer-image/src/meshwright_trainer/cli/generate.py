"""`generate CHECKPOINT`: lets a kept model continue a text."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.generation import generate
from meshwright_trainer.trained import open_trained


def add_to(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("generate", help="continue a text")
    parser.add_argument("checkpoint", help="a checkpoint, or a folder of them: then the newest that counts")
    parser.add_argument("--prompt", default="", help="text to continue (default: the beginning of a document)")
    parser.add_argument("--count", type=int, default=200, help="tokens to draw (default: 200)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the likeliest token (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal texts (default: 0)")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    trained = open_trained(arguments.checkpoint)
    tokenizer = trained.tokenizer
    if not trained.continues_text:
        raise InvalidLaunch(
            f"{trained.checkpoint} does not continue text: generate is for models that predict the next token of the "
            "job's tokenizer"
        )
    # Documents begin with the end of the one before.
    prompt = [tokenizer.end_of_document, *map(int, tokenizer.encode(arguments.prompt.encode()))]
    module = trained.module()
    window = trained.config.batch.sequence_length
    tokens = generate(
        module,
        prompt,
        count=arguments.count,
        window=window,
        temperature=arguments.temperature,
        seed=arguments.seed,
    )
    drawn: list[int] = []
    for token in tokens:
        if token == tokenizer.end_of_document:
            break
        drawn.append(token)
    sys.stdout.write(arguments.prompt + tokenizer.decode(drawn).decode(errors="replace") + "\n")
    sys.stdout.flush()
    return 0
