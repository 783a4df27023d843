"""BERT: an encoder with norms after each half of a block, trained to guess hidden tokens.

Source: Devlin et al. 2019. There is no pooler and no next-sentence head, since only hidden tokens are guessed: the
paper's 110M and 340M count a pooler too (0.6M and 1.0M), which changes neither when rounded. All tokens are of
segment 0.

Shapes: B samples, T positions, C features of the residual stream, V entries of the vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright_trainer.attention import MaskSpec
from meshwright_trainer.batch import Batch
from meshwright_trainer.models.base import Init, Model, ModelPlan
from meshwright_trainer.models.config import Preset, TransformerConfig
from meshwright_trainer.models.layers import FeedForward, SelfAttention, matmul_flops_per_token
from meshwright_trainer.random import Key, KeyedDropout

PRESETS: Final[Mapping[str, Preset]] = {
    "tiny": Preset(4, 128, 4, 256, dropout=0.1, attention_dropout=0.1),
    "base": Preset(12, 768, 12, 512, dropout=0.1, attention_dropout=0.1),
    "large": Preset(24, 1024, 16, 512, dropout=0.1, attention_dropout=0.1),
}
"""Sizes by name. Sequences are short enough to hold all attention weights, which the dropout on them needs."""

NORM_EPSILON: Final = 1e-12

_REFERENCE_TOP: Final = {
    "token_embedding.weight": "bert.embeddings.word_embeddings.weight",
    "position_embedding.weight": "bert.embeddings.position_embeddings.weight",
    "segment_embedding.weight": "bert.embeddings.token_type_embeddings.weight",
    "embedding_norm.weight": "bert.embeddings.LayerNorm.weight",
    "embedding_norm.bias": "bert.embeddings.LayerNorm.bias",
    "head.transform.weight": "cls.predictions.transform.dense.weight",
    "head.transform.bias": "cls.predictions.transform.dense.bias",
    "head.norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "head.norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "head.bias": "cls.predictions.bias",
    "head.decoder.weight": "cls.predictions.decoder.weight",
    "head.decoder.bias": "cls.predictions.decoder.bias",
}
_REFERENCE_BLOCK: Final = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


class Block(nn.Module):
    """One layer: attention, then feed-forward, each added to its input and normed."""

    def __init__(self, config: TransformerConfig, site: str, mask: MaskSpec) -> None:
        super().__init__()
        self.attention = SelfAttention(config, f"{site}.attention", mask)
        self.attention_dropout = KeyedDropout(f"{site}.attention.output", config.dropout)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(config, approximate="none")
        self.feed_forward_dropout = KeyedDropout(f"{site}.feed_forward", config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=NORM_EPSILON)

    def forward(self, x_BTC: Tensor, visible: Tensor | None, key: Key) -> Tensor:
        """The stream after this layer, (B, T, C)."""
        attended_BTC = self.attention_dropout(self.attention(x_BTC, visible, key), key)
        x_BTC = self.attention_norm(x_BTC + attended_BTC)
        y_BTC: Tensor = self.feed_forward_norm(x_BTC + self.feed_forward_dropout(self.feed_forward(x_BTC), key))
        return y_BTC


class Head(nn.Module):
    """From the stream to logits: a transform, a norm, and the token embedding turned around with a bias of its own."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=NORM_EPSILON)
        tied = config.tie_embeddings
        self.decoder = None if tied else nn.Linear(config.hidden_size, config.vocabulary_size, bias=False)
        self.bias = nn.Parameter(torch.empty(config.vocabulary_size))

    def forward(self, x_BTC: Tensor, embedding_VC: Tensor) -> Tensor:
        """Logits, (B, T, V)."""
        x_BTC = self.norm(F.gelu(self.transform(x_BTC)))
        return F.linear(x_BTC, embedding_VC if self.decoder is None else self.decoder.weight, self.bias)


class BERT(nn.Module):
    """Logits of each position's token, (B, T, V)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        mask = MaskSpec(documents=True)
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_positions, config.hidden_size)
        self.segment_embedding = nn.Embedding(2, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=NORM_EPSILON)
        self.dropout = KeyedDropout("embedding", config.dropout)
        self.mask = mask
        self.blocks = nn.ModuleList(Block(config, f"blocks.{i}", mask) for i in range(config.layers))
        self.head = Head(config)

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits of the token at each position."""
        x_BTC = self.token_embedding(batch.tokens) + self.position_embedding(batch.position_id)
        x_BTC = self.dropout(self.embedding_norm(x_BTC + self.segment_embedding.weight[0]), key)
        visible = self.mask.visible(batch.document_id)
        for block in self.blocks:
            x_BTC = block(x_BTC, visible, key)
        logits_BTV: Tensor = self.head(x_BTC, self.token_embedding.weight)
        return logits_BTV


def build(config: TransformerConfig) -> Model:
    """The model and its plan. Parameters are on the device of the surrounding `torch.device` context."""
    return Model(module=BERT(config), objective="MaskedToken", plan=plan(config), identity=config.identity("bert"))


def plan(config: TransformerConfig) -> ModelPlan:
    """What the rest of the trainer knows of the model."""
    decoder = (("token_embedding.weight", "head.decoder.weight"),) if config.tie_embeddings else ()
    return ModelPlan(
        units=("blocks.*",),
        init={"*norm.weight": Init(mean=1.0), "*.bias": Init(), "*.weight": Init(std=0.02)},
        no_decay=("*norm.weight", "*.bias"),
        tied=(*decoder, ("head.bias", "head.decoder.bias")),
        flops_per_token=functools.partial(_flops_per_token, config),
        reference_names=_reference_names(config),
    )


def _flops_per_token(config: TransformerConfig, sequence_length: int) -> float:
    return matmul_flops_per_token(config, sequence_length) + 6.0 * config.hidden_size**2  # the head's transform


def _reference_names(config: TransformerConfig) -> dict[str, str]:
    names = dict(_REFERENCE_TOP)
    for i in range(config.layers):
        for ours, theirs in _REFERENCE_BLOCK.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{i}.{ours}.{kind}"] = f"bert.encoder.layer.{i}.{theirs}.{kind}"
    return names
