"""Continuing a text, token by token.

Shapes: T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.random import Key


def generate(
    module: Any, prompt: Sequence[int], *, count: int, window: int, temperature: float = 1.0, seed: int = 0
) -> Iterator[int]:
    """Yields `count` tokens after the prompt.

    Args:
        module: a next-token model on the CPU or another device, in evaluation mode.
        prompt: at least one token.
        count: tokens to draw.
        window: most tokens that the model sees: its longest sequence.
        temperature: what logits are divided by; 0 takes the likeliest token.
        seed: equal seeds give equal texts.
    """
    if not prompt:
        raise ValueError("the prompt has no tokens; begin with the tokenizer's end of document")
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            batch = _batch(tokens[-window:])
            key = Key(seed, 0, batch.sample_id, batch.position_id)
            tokens.append(_chosen(module(batch, key)[0, -1].float().cpu(), temperature, generator))
            yield tokens[-1]


def _batch(tokens: Sequence[int]) -> Batch:
    tokens_1T = torch.tensor([tokens])
    return Batch(
        tokens=tokens_1T,
        labels=tokens_1T,
        weights=torch.ones(tokens_1T.shape),
        sample_id=torch.zeros(1, dtype=torch.int64),
        position_id=torch.arange(len(tokens))[None],
        document_id=torch.zeros_like(tokens_1T),
    )


def _chosen(logits_V: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits_V.argmax())
    return int(torch.multinomial((logits_V / temperature).softmax(dim=0), 1, generator=generator))
