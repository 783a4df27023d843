"""Judges the newest checkpoint of the built-in trainer on text that was never trained on.

The text, its split and the yardsticks are those of `examples/pytorch_text`, which knows nothing of the trainer: two
models that only count bytes (unigram) and pairs of bytes (bigram). All three predict the same bytes. Prints one JSON
document; losses and entropies are in nats per byte.

    python demo/judge.py --checkpoints build/demo/checkpoints
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from meshwright_trainer.batch import Batch
from meshwright_trainer.checkpoint.digest import digest
from meshwright_trainer.checkpoint.reader import Checkpoint
from meshwright_trainer.generation import generate
from meshwright_trainer.random import Key
from meshwright_trainer.trained import Trained, open_trained

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "pytorch_text"))
from data import bigram_entropy, heldout_windows, load_corpus, unigram_entropy

SMOOTHING = 1.0
WINDOWS_AT_ONCE = 25


def main() -> int:
    """Judges the newest checkpoint of a folder. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=300, help="windows of held-out text to predict")
    parser.add_argument("--sample-bytes", type=int, default=300)
    parser.add_argument("--prompt", default='    """Return the ')
    options = parser.parse_args()
    trained = open_trained(str(options.checkpoints))
    module = trained.module()
    corpus = load_corpus()
    windows = heldout_windows(corpus.heldout, length=trained.config.batch.sequence_length, limit=options.windows)
    print(
        json.dumps(
            {
                "step": trained.step,
                "heldout_loss": heldout_loss(module, windows),
                "bigram_entropy": bigram_entropy(corpus.train, windows, smoothing=SMOOTHING),
                "unigram_entropy": unigram_entropy(corpus.train, windows, smoothing=SMOOTHING),
                "unit": "nats/byte",
                "heldout_bytes": windows[:, 1:].numel(),
                "sample": options.prompt + sample(trained, module, options.prompt, options.sample_bytes),
                "sha256": digest(Checkpoint.open(trained.checkpoint)),
            }
        )
    )
    return 0


@torch.no_grad()
def heldout_loss(module: Any, windows: torch.Tensor) -> float:
    """Mean cross-entropy, in nats per byte, of all but each window's first byte. A token is a byte."""
    total = 0.0
    for start in range(0, len(windows), WINDOWS_AT_ONCE):
        part = windows[start : start + WINDOWS_AT_ONCE]
        tokens, labels = part[:, :-1], part[:, 1:]
        batch = Batch(
            tokens=tokens,
            labels=labels,
            weights=torch.ones(tokens.shape),
            sample_id=torch.arange(len(part)),
            position_id=torch.arange(tokens.shape[1]).expand_as(tokens),
            document_id=torch.zeros_like(tokens),
        )
        logits = module(batch, Key(0, 0, batch.sample_id, batch.position_id))
        total += float(cross_entropy(logits.flatten(0, 1), labels.flatten())) * len(part)
    return total / len(windows)


def sample(trained: Trained, module: Any, prompt: str, count: int) -> str:
    """What the model writes after the prompt."""
    length = trained.config.batch.sequence_length
    tokens = generate(module, list(prompt.encode()), count=count, window=length, temperature=0.6, seed=1)
    return trained.tokenizer.decode(list(tokens)).decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
