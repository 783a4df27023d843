"""Masked-token prediction: some tokens are hidden, and the model guesses them (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.objectives.base import Loss
from meshwright_trainer.objectives.losses import CrossEntropy
from meshwright_trainer.random import Key


@dataclass(frozen=True)
class MaskedToken:
    """Cross-entropy of the hidden tokens.

    Of the chosen tokens 80 % become the mask token, 10 % a random token, and 10 % stay as they are. The key decides, so
    every step hides others, and a sample's are the same wherever it is computed.
    """

    vocabulary_size: int
    """Random tokens are drawn from all of the tokenizer's."""
    mask_token: int
    probability: float = 0.15
    """Share of the tokens that are chosen."""
    cross_entropy: CrossEntropy = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability is in (0, 1], not {self.probability}")

    def prepare(self, batch: Batch, key: Key) -> Batch:
        """Hides tokens; labels are the tokens as they were, weights 1 where one was chosen. Padding stays."""
        real_BT = (batch.document_id >= 0) & (batch.sample_id >= 0)[:, None]
        chosen_BT = real_BT & (key.uniform_scalar("masked_token.chosen") < self.probability)
        how_BT = key.uniform_scalar("masked_token.how")
        random_BT = key.integers("masked_token.random", self.vocabulary_size)
        shown_BT = torch.where(how_BT < 0.8, self.mask_token, torch.where(how_BT < 0.9, random_BT, batch.tokens))
        return replace(
            batch,
            tokens=torch.where(chosen_BT, shown_BT, batch.tokens),
            labels=batch.tokens,
            weights=chosen_BT.to(torch.float32),
        )

    def weight(self, batch: Batch) -> Tensor:
        """Number of hidden tokens, a float64 scalar."""
        return batch.weights.sum(dtype=torch.float64)

    def __call__(self, output: Tensor, batch: Batch) -> Loss:
        """The loss of logits (B, T, V)."""
        return self.cross_entropy(output, batch)
