"""A small byte-level transformer: the usual parts (RMSNorm, rotary positions, causal attention, MLP), nothing else.

Shapes: B sequences, T positions, C channels, H heads, D channels of a head, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the model. The default has 0.6 million parameters and learns in a minute or two on two CPU cores."""

    vocabulary: int = 256
    length: int = 128
    layers: int = 3
    heads: int = 4
    channels: int = 128


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.to_qkv = nn.Linear(config.channels, 3 * config.channels, bias=False)
        self.to_out = nn.Linear(config.channels, config.channels, bias=False)

    def forward(self, x_BTC: torch.Tensor, cos_TD: torch.Tensor, sin_TD: torch.Tensor) -> torch.Tensor:
        """Mixes each position with those before it."""
        batch, length, channels = x_BTC.shape
        qkv = self.to_qkv(x_BTC).view(batch, length, 3, self.heads, channels // self.heads)
        q_BHTD, k_BHTD, v_BHTD = qkv.permute(2, 0, 3, 1, 4)
        q_BHTD, k_BHTD = rotate(q_BHTD, cos_TD, sin_TD), rotate(k_BHTD, cos_TD, sin_TD)
        y_BHTD = functional.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        out: torch.Tensor = self.to_out(y_BHTD.transpose(1, 2).reshape(batch, length, channels))
        return out


class Block(nn.Module):
    """Attention, then an MLP, each added to what came in."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.channels)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.channels)
        self.widen = nn.Linear(config.channels, 4 * config.channels, bias=False)
        self.narrow = nn.Linear(4 * config.channels, config.channels, bias=False)

    def forward(self, x_BTC: torch.Tensor, cos_TD: torch.Tensor, sin_TD: torch.Tensor) -> torch.Tensor:
        """One layer."""
        x_BTC = x_BTC + self.attention(self.attention_norm(x_BTC), cos_TD, sin_TD)
        hidden = functional.gelu(self.widen(self.mlp_norm(x_BTC)), approximate="tanh")
        out: torch.Tensor = x_BTC + self.narrow(hidden)
        return out


class ByteTransformer(nn.Module):
    """Predicts the next byte at every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.channels)
        blocks = [Block(config) for _ in range(config.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.RMSNorm(config.channels)
        self.head = nn.Linear(config.channels, config.vocabulary, bias=False)
        # Constants, and no buffers: DDP sends those from rank 0 to all in every step.
        self.cos_TD, self.sin_TD = rotary_tables(config.length, config.channels // config.heads)
        self.apply(_initialise)
        for block in blocks:  # so that each layer begins by adding nothing
            nn.init.zeros_(block.attention.to_out.weight)
            nn.init.zeros_(block.narrow.weight)

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """Returns logits of shape (B, T, V) for tokens of shape (B, T), T at most the configured length."""
        length = tokens_BT.shape[1]
        x_BTC = self.embedding(tokens_BT)
        for block in self.blocks:
            x_BTC = block(x_BTC, self.cos_TD[:length], self.sin_TD[:length])
        logits_BTV: torch.Tensor = self.head(self.norm(x_BTC))
        return logits_BTV

    @torch.no_grad()
    def sample(self, prompt: bytes, *, count: int, temperature: float, seed: int) -> bytes:
        """Continues the prompt by `count` bytes. The same seed gives the same text."""
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.tensor([list(prompt)], dtype=torch.long)
        for _ in range(count):
            logits_V = self(tokens[:, -self.config.length :])[0, -1] / temperature
            chosen = torch.multinomial(logits_V.softmax(dim=0), 1, generator=generator)
            tokens = torch.cat([tokens, chosen[None]], dim=1)
        return bytes(tokens[0, len(prompt) :].tolist())


def next_byte_loss(model: nn.Module, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats per byte."""
    return functional.cross_entropy(model(inputs_BT).flatten(0, 1), targets_BT.flatten())


def rotary_tables(length: int, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the angle by which each position turns each pair of channels."""
    frequencies = 1000.0 ** (-torch.arange(0, dimensions, 2) / dimensions)
    angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x_BHTD: torch.Tensor, cos_TD: torch.Tensor, sin_TD: torch.Tensor) -> torch.Tensor:
    """Turns channel pairs (i, i + D/2) by the angle of their position."""
    first, second = x_BHTD.chunk(2, dim=-1)
    return x_BHTD * cos_TD + torch.cat([-second, first], dim=-1) * sin_TD


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5 / 2)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.5)
