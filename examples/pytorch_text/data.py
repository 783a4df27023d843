"""Real text that every machine with Python has: the documentation and the source of its standard library.

The text is split by document, never inside one, into a training part and a held-out part. Which document goes where
is a function of its name alone, so two processes (and two runs) agree without talking to each other.
"""

from __future__ import annotations

import hashlib
import importlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

VOCABULARY = 256
"""A token is a byte."""

HELDOUT_PERCENT = 10
"""Share of the documents (not of the bytes) that is never trained on."""


@dataclass(frozen=True)
class Corpus:
    """Text as two sequences of bytes (uint8 tensors): one to learn from, one to be judged on."""

    train: torch.Tensor
    heldout: torch.Tensor


def load_corpus() -> Corpus:
    """Reads the documentation topics (what `help("assert")` shows) and the top-level modules of the standard library.

    Raises:
        FileNotFoundError: this Python came without the source of its standard library.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    documents = {path.name: path.read_bytes() for path in sorted(folder.glob("*.py"))}
    if not documents:
        raise FileNotFoundError(f"no Python source in {folder}: this example trains on the standard library's text")
    return split({**documents, **_documentation_topics()})


def split(documents: dict[str, bytes]) -> Corpus:
    """Puts each document wholly into the training or into the held-out part, decided by its name."""
    names = sorted(documents)
    return Corpus(
        train=_as_tensor(b"\n".join(documents[name] for name in names if not is_heldout(name))),
        heldout=_as_tensor(b"\n".join(documents[name] for name in names if is_heldout(name))),
    )


def is_heldout(name: str) -> bool:
    """Says whether the document of this name is kept from training."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 100 < HELDOUT_PERCENT


def sample_batch(
    text: torch.Tensor, *, seed: int, step: int, sequences: int, length: int, rank: int, world_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cuts this rank's share of the global batch of a step.

    The batch is a function of (seed, step) alone: a job that restarts from step 70 sees at step 71 what it would have
    seen without the restart, and its checkpoint needs no state of a loader.

    Returns:
        Inputs and targets, int64, each of shape (sequences / world_size, length).
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(0, len(text) - length, (sequences,), generator=generator)
    windows = torch.stack([text[start : start + length + 1] for start in starts[rank::world_size].tolist()]).long()
    return windows[:, :-1], windows[:, 1:]


def heldout_windows(text: torch.Tensor, *, length: int, limit: int) -> torch.Tensor:
    """Spreads at most `limit` windows of `length` + 1 bytes evenly over the text, without overlap (int64)."""
    fitting = len(text) // (length + 1)
    count = min(limit, fitting)
    starts = [(index * fitting // count) * (length + 1) for index in range(count)]
    return torch.stack([text[start : start + length + 1] for start in starts]).long()


def unigram_entropy(train: torch.Tensor, windows: torch.Tensor, *, smoothing: float) -> float:
    """Cross-entropy, in nats per byte, of all but each window's first byte under the frequencies of `train`."""
    counts = torch.bincount(train.long(), minlength=VOCABULARY).double() + smoothing
    return _mean_surprise(counts / counts.sum(), windows[:, 1:])


def bigram_entropy(train: torch.Tensor, windows: torch.Tensor, *, smoothing: float) -> float:
    """Cross-entropy, in nats per byte, of the same bytes when the one before is known, counted on `train`.

    Both entropies add `smoothing` to every count, so that a pair never seen in training costs much, not everything.
    """
    pairs = train[:-1].long() * VOCABULARY + train[1:].long()
    counts = torch.bincount(pairs, minlength=VOCABULARY**2).double().view(VOCABULARY, VOCABULARY) + smoothing
    table = counts / counts.sum(dim=1, keepdim=True)
    return _mean_surprise(table.flatten(), windows[:, :-1] * VOCABULARY + windows[:, 1:])


def _documentation_topics() -> dict[str, bytes]:
    """Some distributions of Python leave the topics out; then the source alone is the text."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError:
        return {}
    return {f"topic {name}": text.encode() for name, text in topics.items()}


def _as_tensor(text: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def _mean_surprise(probabilities: torch.Tensor, outcomes: torch.Tensor) -> float:
    return float(-probabilities[outcomes.flatten()].log().mean())
