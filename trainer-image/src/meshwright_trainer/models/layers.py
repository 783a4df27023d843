"""The two halves of a transformer block, shared by the families.

Query, key and value are parameters of their own, never fused: optimizers that look at whole matrices and tensor
parallelism want them apart.

Shapes: B samples, T positions, C features of the residual stream, H heads, D features of a head.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright_trainer.attention import MaskSpec, attention
from meshwright_trainer.models.config import TransformerConfig
from meshwright_trainer.random import Key, KeyedAttentionDropout


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: TransformerConfig, site: str, mask: MaskSpec) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.mask = mask
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.weight_dropout = KeyedAttentionDropout(f"{site}.weights", config.attention_dropout)

    def forward(self, x_BTC: Tensor, visible: Tensor | None, key: Key) -> Tensor:
        """What each position gathers from those that it sees, (B, T, C)."""
        q_BHTD, k_BHTD, v_BHTD = (self._heads(project(x_BTC)) for project in (self.query, self.key, self.value))
        drops = self.training and self.weight_dropout.p > 0
        dropout = functools.partial(self.weight_dropout, key=key) if drops else None
        y_BHTD = attention(q_BHTD, k_BHTD, v_BHTD, self.mask, visible, dropout)
        y_BTC: Tensor = self.output(y_BHTD.transpose(1, 2).flatten(2))
        return y_BTC

    def _heads(self, x_BTC: Tensor) -> Tensor:
        # The number of heads follows from the width, so that a rank may hold some of them.
        return torch.unflatten(x_BTC, -1, (-1, self.head_size)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them (Hendrycks and Gimpel 2016)."""

    def __init__(self, config: TransformerConfig, approximate: str) -> None:
        super().__init__()
        self.approximate = approximate
        """`tanh` for the approximation that the GPT family was trained with, `none` for the exact function."""
        self.up = nn.Linear(config.hidden_size, config.feed_forward_size)
        self.down = nn.Linear(config.feed_forward_size, config.hidden_size)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """The same map of every position, (B, T, C)."""
        y_BTC: Tensor = self.down(F.gelu(self.up(x_BTC), approximate=self.approximate))
        return y_BTC


def matmul_flops_per_token(config: TransformerConfig, sequence_length: int) -> float:
    """Forward and backward operations of the matrix products in the blocks and the head, for one token.

    6 for each weight of a matrix (2 forward, 4 backward) and 12 T C for each layer's attention, which is counted in
    full even where the mask is causal: Narayanan et al. 2021 (PTD-P), equation 3 without recomputation.
    """
    c, inner = config.hidden_size, config.feed_forward_size
    weights = config.layers * (4 * c * c + 2 * c * inner) + config.vocabulary_size * c
    return 6.0 * weights + 12.0 * config.layers * sequence_length * c
