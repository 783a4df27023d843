"""Judges the newest checkpoint on text that was never trained on, and lets the model write a few lines.

The yardsticks are two models that only count: bytes (unigram) and pairs of bytes (bigram), with one added to each
count, which is about the best smoothing for this text. All three predict the same bytes. Prints one JSON document;
losses and entropies are in nats per byte (divide by 0.693 for bits).

    python evaluate.py --checkpoints /tmp/text
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import checkpoints
import torch
from data import bigram_entropy, heldout_windows, load_corpus, unigram_entropy
from model import ByteTransformer, ModelConfig, next_byte_loss

SMOOTHING = 1.0
WINDOWS_AT_ONCE = 25


def main() -> int:
    """Evaluates the newest checkpoint of a folder. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=300, help="windows of held-out text to predict")
    parser.add_argument("--sample-bytes", type=int, default=300)
    parser.add_argument("--prompt", default='    """Return the ')
    parser.add_argument("--seed", type=int, default=1, help="of the sampled text")
    options = parser.parse_args()

    steps = checkpoints.steps_in(options.checkpoints)
    if not steps:
        print(f"no checkpoint in {options.checkpoints}", file=sys.stderr)
        return 1
    step = steps[-1]
    model = load_model(options.checkpoints, step)
    corpus = load_corpus()
    windows = heldout_windows(corpus.heldout, length=model.config.length, limit=options.windows)
    sample = model.sample(options.prompt.encode(), count=options.sample_bytes, temperature=0.6, seed=options.seed)
    print(
        json.dumps(
            {
                "step": step,
                "heldout_loss": heldout_loss(model, windows),
                "bigram_entropy": bigram_entropy(corpus.train, windows, smoothing=SMOOTHING),
                "unigram_entropy": unigram_entropy(corpus.train, windows, smoothing=SMOOTHING),
                "unit": "nats/byte",
                "heldout_bytes": windows[:, 1:].numel(),
                "sample": options.prompt + sample.decode(errors="replace"),
            }
        )
    )
    return 0


def load_model(folder: Path, step: int) -> ByteTransformer:
    """Builds the model that a checkpoint describes."""
    state = checkpoints.load(folder, step)
    model = ByteTransformer(ModelConfig(**state["config"]))
    model.load_state_dict(state["model"])
    return model


@torch.no_grad()
def heldout_loss(model: ByteTransformer, windows: torch.Tensor) -> float:
    """Mean cross-entropy, in nats per byte, of all but each window's first byte."""
    total = 0.0
    for start in range(0, len(windows), WINDOWS_AT_ONCE):
        part = windows[start : start + WINDOWS_AT_ONCE]
        total += float(next_byte_loss(model, part[:, :-1], part[:, 1:])) * len(part)
    return total / len(windows)


if __name__ == "__main__":
    sys.exit(main())
