"""Randomness as a function of what is drawn for, never of who draws it.

A key is (seed, step, global sample id, position); the site's name and the feature's index complete it. So the mask of a
token is the same whatever rank, micro-batch or accumulation it falls into, and a resumed or resized run draws it again.

Every (seed, step, site, sample, position) has a SplitMix64 stream of its own (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014); the draw of feature f is the stream's output f, computed directly. All of
it is int64 arithmetic that wraps around, so it has the same bits on every device.

Shapes: B samples, T positions, F features, H heads, S positions that are attended to.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

BITS: Final = 24
"""Bits of a uniform number: as many as float32 holds in [0, 1) without rounding."""

_WORD: Final = 1 << 64
_GAMMA: Final = 0x9E3779B97F4A7C15
_STAGES: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_CHUNK: Final = 1 << 16
"""Elements mixed at once: twice 512 KiB stay in a core's cache, which halves the time of large draws."""


@dataclass(frozen=True)
class Key:
    """What the draws of one micro-batch are keyed by."""

    seed: int
    step: int
    sample_id: Tensor
    """(B,) int64."""
    position: Tensor
    """Place in the sample (not in the document), (B, T) or (T,) int64."""

    def uniform(self, site: str, features: int) -> Tensor:
        """Uniform numbers in [0, 1) with 24 bits, (B, T, features) float32."""
        return _unit(self._features(site, features))

    def uniform_scalar(self, site: str) -> Tensor:
        """One uniform number in [0, 1) for each position, (B, T) float32."""
        return self.uniform(site, 1).squeeze(-1)

    def integers(self, site: str, high: int) -> Tensor:
        """One integer in [0, high) for each position, (B, T) int64; high at most 2**31."""
        return (_high_bits(self._features(site, 1).squeeze(-1), 31) * high) >> 31

    def keep(self, site: str, p: float, features: int) -> Tensor:
        """What a dropout with probability p keeps, (B, T, features) bool: `uniform(site, features) >= p`."""
        return self._features(site, features) >= _threshold(p)

    def keep_pairs(self, site: str, p: float, heads: int, keys: Tensor) -> Tensor:
        """What a dropout of attention weights keeps, (B, H, T, S) bool.

        Args:
            site: name of the place in the model.
            p: probability of dropping, below 1.
            heads: H.
            keys: places in the sample of what is attended to, (S,) int64.
        """
        head_H11 = torch.arange(heads, device=keys.device)[:, None, None]
        # Apart by more than any sequence is long, so that a longer sequence begins with the shorter one's mask.
        pair_H1S = (head_H11 << 32) + keys
        streams_B1T1 = self._streams(site)[:, None, :, None]
        return mix_(streams_B1T1 + pair_H1S * _signed(_GAMMA) + _signed(_GAMMA)) >= _threshold(p)

    def _features(self, site: str, features: int) -> Tensor:
        index_F = torch.arange(1, features + 1, device=self.sample_id.device)
        return mix_(self._streams(site)[..., None] + index_F * _signed(_GAMMA))

    def _streams(self, site: str) -> Tensor:
        """Where the stream of each (sample, position) begins, (B, T) int64."""
        begin = _scalar_mix(_scalar_mix(self.seed) + _scalar_mix(self.step ^ _name_hash(site)))
        sample_B1 = mix_(self.sample_id * _signed(_GAMMA) + _signed(begin))[:, None]
        return mix_(sample_B1 + (self.position + 1) * _signed(_GAMMA))


class KeyedDropout(nn.Module):
    """Dropout whose mask is keyed: the identity when p is 0 or the module does not train."""

    def __init__(self, site: str, p: float) -> None:
        super().__init__()
        self.site = site
        self.p = probability(p)

    def forward(self, x_BTF: Tensor, key: Key) -> Tensor:
        """Zeroes each feature with probability p and scales the others by 1 / (1 - p); shape (B, T, F) stays."""
        if not self.training or self.p == 0:
            return x_BTF
        return torch.where(key.keep(self.site, self.p, x_BTF.shape[-1]), x_BTF, 0.0) * (1 / (1 - self.p))

    def extra_repr(self) -> str:
        """Shown when the module is printed."""
        return f"site={self.site}, p={self.p}"


class KeyedAttentionDropout(KeyedDropout):
    """Dropout of attention weights, keyed by query's and key's place and the head."""

    def forward(self, weights_BHTS: Tensor, key: Key) -> Tensor:
        """Zeroes each weight with probability p and scales the others; keys are the sample's positions from 0 on."""
        if not self.training or self.p == 0:
            return weights_BHTS
        places_S = torch.arange(weights_BHTS.shape[-1], device=weights_BHTS.device)
        keep_BHTS = key.keep_pairs(self.site, self.p, weights_BHTS.shape[1], places_S)
        return torch.where(keep_BHTS, weights_BHTS, 0.0) * (1 / (1 - self.p))


def probability(p: float) -> float:
    """The probability of a dropout, checked.

    Raises:
        ValueError: it is not in [0, 1): nothing would be left to scale up.
    """
    if not 0 <= p < 1:
        raise ValueError(f"a dropout probability is in [0, 1), not {p}")
    return p


def normal_box(
    seed: int,
    name: str,
    shape: Sequence[int],
    offsets: Sequence[int],
    sizes: Sequence[int],
    device: torch.device | str = "cpu",
) -> Tensor:
    """A box of the standard normal tensor that belongs to a name, float32.

    Element i of the tensor, counted in row-major order, depends on (seed, name, i) alone, so every rank draws just
    its own part. Box-Muller in float64 on two halves of one 64-bit draw: at most 6.66 standard deviations.

    Args:
        seed: the run's seed.
        name: the parameter's logical name.
        shape: shape of the whole tensor.
        offsets: where the box begins in each dim.
        sizes: shape of the box; may be empty in a dim.
        device: where it is drawn.
    """
    box = torch.empty(tuple(sizes), dtype=torch.float32, device=device)
    flat = box.view(-1)
    begin = _scalar_mix(_scalar_mix(seed) + _name_hash(name))
    runs = _runs(shape, offsets, sizes)
    for start in range(0, flat.numel(), _CHUNK):
        stop = min(start + _CHUNK, flat.numel())
        index = _global_index(torch.arange(start, stop, device=device), runs)
        flat[start:stop] = _box_muller(mix_(index.add_(1).mul_(_signed(_GAMMA)).add_(_signed(begin))))
    return box


def mix_(state: Tensor) -> Tensor:
    """SplitMix64's finaliser of each element, int64 read as unsigned; may overwrite its argument."""
    flat = state.reshape(-1)
    # On an accelerator a launch costs more than a pass through memory.
    chunk = _CHUNK if flat.device.type == "cpu" else max(1, flat.numel())
    scratch = torch.empty(min(chunk, flat.numel()), dtype=torch.int64, device=flat.device)
    for part in torch.split(flat, chunk):
        shifted = scratch[: part.numel()]
        for shift, multiplier in _STAGES:
            torch.bitwise_right_shift(part, shift, out=shifted)
            part.bitwise_xor_(shifted.bitwise_and_((1 << (64 - shift)) - 1))  # the shift copies the sign downwards
            if multiplier != 1:
                part.mul_(_signed(multiplier))
    return flat.view(state.shape)


def _runs(shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """The box's dims as (whole, offset, size), with dims that are whole merged into the one before: rows stay rows."""
    merged: list[tuple[int, int, int]] = []
    for whole, offset, size in zip(shape, offsets, sizes, strict=True):
        if merged and size == whole:
            merged[-1] = (merged[-1][0] * whole, merged[-1][1] * whole, merged[-1][2] * whole)
        else:
            merged.append((whole, offset, size))
    return merged


def _global_index(local: Tensor, runs: Sequence[tuple[int, int, int]]) -> Tensor:
    """Row-major index in the whole tensor of elements counted within the box."""
    index = torch.zeros_like(local)
    stride = 1
    for whole, offset, size in reversed(runs[1:]):
        index += (local % size + offset) * stride
        local = local // size
        stride *= whole
    return index.add_(local + runs[0][1], alpha=stride) if runs else index


def _box_muller(bits: Tensor) -> Tensor:
    radius = _high_bits(bits, 32).double().add_(1).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    angle = bits.bitwise_and_(0xFFFFFFFF).double().mul_(math.tau * 2.0**-32)
    return radius.mul_(angle.cos_()).float()


def _high_bits(bits: Tensor, count: int) -> Tensor:
    return (bits >> (64 - count)) & ((1 << count) - 1)


def _unit(bits: Tensor) -> Tensor:
    # The sign bit counts the other way round, so that signed order is the numbers' order and `keep` compares directly.
    return ((bits >> (64 - BITS)) + (1 << (BITS - 1))).to(torch.float32) * 2.0**-BITS


def _threshold(p: float) -> int:
    """The least int64 whose uniform number is at least p."""
    return min((math.ceil(probability(p) * (1 << BITS)) << (64 - BITS)) - (1 << 63), (1 << 63) - 1)


def _signed(word: int) -> int:
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _scalar_mix(word: int) -> int:
    """The finaliser of one unsigned word."""
    word %= _WORD
    for shift, multiplier in _STAGES:
        word = (word ^ (word >> shift)) * multiplier % _WORD
    return word


@functools.lru_cache(maxsize=1 << 16)
def _name_hash(name: str) -> int:
    """A name as a number: the same in every process, unlike Python's own hash."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
