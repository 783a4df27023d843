"""The GPT-2 and GPT-3 family: a decoder with learned positions and norms before each half of a block.

Sources: Radford et al. 2019 (GPT-2), Brown et al. 2020 (GPT-3), table 2.1. Two sizes of that table contradict
themselves: XL has 24 heads of 128 in 2048 features, here 16 heads; 13B has 40 heads of 128 in 5140 features, here 5120.
GPT-3 alternates dense layers with locally banded sparse ones; `arguments: {band: n}` bands every second layer to n
positions, and it is off by default, since the paper does not say how wide the band is. Neither paper names a dropout:
the presets have none, and with `attentionDropout` long sequences need the memory of all attention weights.

Shapes: B samples, T positions, C features of the residual stream, V entries of the vocabulary.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

from meshwright_trainer.attention import MaskSpec
from meshwright_trainer.batch import Batch
from meshwright_trainer.models.base import Init, Model, ModelPlan
from meshwright_trainer.models.config import Preset, TransformerConfig
from meshwright_trainer.models.layers import FeedForward, SelfAttention, matmul_flops_per_token
from meshwright_trainer.random import Key, KeyedDropout

PRESETS: Final[Mapping[str, Preset]] = {
    "tiny": Preset(4, 128, 4, 256),
    "125m": Preset(12, 768, 12, 2048),
    "350m": Preset(24, 1024, 16, 2048),
    "760m": Preset(24, 1536, 16, 2048),
    "1.3b": Preset(24, 2048, 16, 2048),
    "2.7b": Preset(32, 2560, 32, 2048),
    "6.7b": Preset(32, 4096, 32, 2048),
    "13b": Preset(40, 5120, 40, 2048),
    "175b": Preset(96, 12288, 96, 2048),
    "gpt2": Preset(12, 768, 12, 1024),
    "gpt2-medium": Preset(24, 1024, 16, 1024),
    "gpt2-large": Preset(36, 1280, 20, 1024),
    "gpt2-xl": Preset(48, 1600, 25, 1024),
}
"""Sizes by name: GPT-3's by the paper's parameter counts, GPT-2's by the names of its checkpoints."""

_REFERENCE: Final = {
    "attention_norm": "ln_1",
    "attention.query": "attn.c_attn",
    "attention.key": "attn.c_attn",
    "attention.value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}


@dataclass(frozen=True)
class GPT3Config(TransformerConfig):
    """The sizes, and what the family has beside them."""

    band: int | None = None
    """Positions that every second layer is banded to; None: all layers are dense."""


class Block(nn.Module):
    """One layer: attention, then feed-forward, each on a normed copy and added to the stream."""

    def __init__(self, config: TransformerConfig, site: str, mask: MaskSpec) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.attention = SelfAttention(config, f"{site}.attention", mask)
        self.attention_dropout = KeyedDropout(f"{site}.attention.output", config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config, approximate="tanh")
        self.feed_forward_dropout = KeyedDropout(f"{site}.feed_forward", config.dropout)

    def forward(self, x_BTC: Tensor, visible: Tensor | None, key: Key) -> Tensor:
        """The stream after this layer, (B, T, C)."""
        x_BTC = x_BTC + self.attention_dropout(self.attention(self.attention_norm(x_BTC), visible, key), key)
        y_BTC: Tensor = self.feed_forward_dropout(self.feed_forward(self.feed_forward_norm(x_BTC)), key)
        return x_BTC + y_BTC


class GPT3(nn.Module):
    """Next-token logits, (B, T, V)."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        dense = MaskSpec(causal=True, documents=True)
        self.masks = (dense, replace(dense, window=config.band))
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_positions, config.hidden_size)
        self.dropout = KeyedDropout("embedding", config.dropout)
        self.blocks = nn.ModuleList(Block(config, f"blocks.{i}", self.masks[i % 2]) for i in range(config.layers))
        self.final_norm = nn.LayerNorm(config.hidden_size)
        self.head = None if config.tie_embeddings else nn.Linear(config.hidden_size, config.vocabulary_size, bias=False)

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits of the token after each position."""
        x_BTC = self.token_embedding(batch.tokens) + self.position_embedding(batch.position_id)
        x_BTC = self.dropout(x_BTC, key)
        visible = {mask: mask.visible(batch.document_id) for mask in dict.fromkeys(self.masks)}
        for i, block in enumerate(self.blocks):
            x_BTC = block(x_BTC, visible[self.masks[i % 2]], key)
        x_BTC = self.final_norm(x_BTC)
        # The tied weight is used where it is registered, so that whatever shards it sees one parameter of one unit.
        return F.linear(x_BTC, self.token_embedding.weight) if self.head is None else self.head(x_BTC)


def build(config: GPT3Config) -> Model:
    """The model and its plan. Parameters are on the device of the surrounding `torch.device` context."""
    return Model(module=GPT3(config), objective="NextToken", plan=plan(config), identity=config.identity("gpt3"))


def plan(config: GPT3Config) -> ModelPlan:
    """What the rest of the trainer knows of the model."""
    return ModelPlan(
        units=("blocks.*",),
        init={
            "*norm.weight": Init(mean=1.0),
            "*.bias": Init(),
            # Both halves of every layer add to the stream; scaled so that its variance stays (GPT-2, section 2.3).
            "blocks.*.attention.output.weight": Init(std=0.02 / math.sqrt(2 * config.layers)),
            "blocks.*.feed_forward.down.weight": Init(std=0.02 / math.sqrt(2 * config.layers)),
            "*.weight": Init(std=0.02),
        },
        no_decay=("*norm.weight", "*.bias"),
        tied=(("token_embedding.weight", "head.weight"),) if config.tie_embeddings else (),
        flops_per_token=functools.partial(matmul_flops_per_token, config),
        reference_names=_reference_names(config),
    )


def _reference_names(config: GPT3Config) -> dict[str, str]:
    names = {
        "token_embedding.weight": "transformer.wte.weight",
        "position_embedding.weight": "transformer.wpe.weight",
    }
    for i in range(config.layers):
        for ours, theirs in _REFERENCE.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{i}.{ours}.{kind}"] = f"transformer.h.{i}.{theirs}.{kind}"
    names |= {f"final_norm.{kind}": f"transformer.ln_f.{kind}" for kind in ("weight", "bias")}
    return {**names, "head.weight": "lm_head.weight"}
