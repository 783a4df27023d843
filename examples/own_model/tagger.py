"""A model and a dataset of one's own for the built-in trainer: which kind of Python token does each byte belong to?

The text is the source of Python's standard library, the answers are those of Python's own `tokenize`. Nothing here
knows of ranks, shards, checkpoints or Kubernetes: the trainer brings them.
"""

from __future__ import annotations

import sysconfig
import token
import tokenize
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

KINDS = (token.NAME, token.OP, token.STRING, token.NUMBER, token.COMMENT)
"""The classes; 0 is everything between tokens."""


class Tagger(nn.Module):
    """A recurrent network that reads in both directions. Logits of the kind of each byte, (B, T, K)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, hidden)
        self.reader = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.kinds = nn.Linear(2 * hidden, 1 + len(KINDS))

    def forward(self, batch, key):  # type: ignore[no-untyped-def]
        """`batch` has tokens, labels, weights and what else the dataset gave; `key` is for keyed dropout."""
        read, _ = self.reader(self.bytes(batch.tokens))
        return self.kinds(read)


def tagger(hidden: int = 64) -> nn.Module:
    """What `model.factory` names. It may return a plain module, or a `Model` with a plan for more parallel axes."""
    torch.manual_seed(0)  # the trainer keeps the values of rank 0
    return Tagger(hidden)


class Windows:
    """Windows of source text as samples. `dataset[i]` must depend on i alone: it is read again after a restart."""

    vocabulary_size = 1 + len(KINDS)
    """Labels are below it."""

    def __init__(self, text: bytes, kinds: bytes, length: int) -> None:
        self._text, self._kinds, self._length = text, kinds, length

    def __len__(self) -> int:
        return len(self._text) // self._length

    def __getitem__(self, index: int) -> Mapping[str, Tensor]:
        part = slice(index * self._length, (index + 1) * self._length)
        return {
            "tokens": torch.tensor(list(self._text[part])),
            "labels": torch.tensor(list(self._kinds[part])),
        }


def python_source(length: int = 128, files: int = 30) -> Windows:
    """What `data.factory` names: every fifth file is held out, and found by the trainer as `heldout`."""
    paths = [p for p in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) if p.read_bytes().isascii()][:files]
    dataset = _windows([path for i, path in enumerate(paths) if i % 5], length)
    dataset.heldout = _windows(paths[::5], length)  # type: ignore[attr-defined]
    return dataset


def _windows(paths: list[Path], length: int) -> Windows:
    texts = [path.read_bytes() for path in paths]
    return Windows(b"".join(texts), b"".join(_kinds(path) for path in paths), length)


def _kinds(path: Path) -> bytes:
    """The kind of every byte of a file."""
    text = path.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kinds = bytearray(len(text))
    with path.open("rb") as file:
        for found in tokenize.tokenize(file.readline):
            if found.type in KINDS:
                begin, end = (starts[row - 1] + column for row, column in (found.start, found.end))
                kinds[begin:end] = bytes([1 + KINDS.index(found.type)]) * (end - begin)
    return bytes(kinds)
