"""Parameter counts on the meta device: the closed form, `transformers`, and the papers' figures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from meshwright_api.trainer import Model as ModelSpec
from meshwright_trainer.models import bert, gpt3
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.registry import build_model

GPT_VOCABULARY, BERT_VOCABULARY = 50257, 30522

PAPER = {
    "125m": (125e6, 0.5e6),
    "760m": (760e6, 5e6),
    "1.3b": (1.3e9, 0.05e9),
    "2.7b": (2.7e9, 0.05e9),
    "6.7b": (6.7e9, 0.05e9),
    "13b": (13e9, 0.5e9),
    "175b": (175e9, 0.5e9),
}
"""Brown et al. 2020, table 2.1: the size in a model's name and half a unit of its last digit.

Left out: 350M, which is 355.9M with embeddings and 302M without, so that the paper's is rounded otherwise. XL (1.3B) is
here although its shape contradicts itself in the paper (24 heads of 128 are not 2048 features; we have 16), and 13B
although its width there (5140) is not 40 heads of 128: with 5120 it has 12.85B, which rounds to 13B but not to 13.0B.
"""

RELEASED = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}
"""Parameters of the checkpoints that were released as GPT-2."""


def counted(model: Model) -> int:
    assert all(parameter.is_meta for parameter in model.module.parameters())
    return sum(parameter.numel() for parameter in model.module.parameters())


def a_gpt(preset: str, **fields: Any) -> Model:
    return build_model(
        ModelSpec(name="gpt3", preset=preset, **fields), vocabulary_size=GPT_VOCABULARY, sequence_length=8
    )


def a_bert(preset: str, **fields: Any) -> Model:
    return build_model(
        ModelSpec(name="bert", preset=preset, **fields), vocabulary_size=BERT_VOCABULARY, sequence_length=8
    )


def in_a_block(c: int, inner: int) -> int:
    """Four projections, two maps, two norms, each with biases."""
    return 4 * (c * c + c) + (c * inner + inner) + (inner * c + c) + 2 * 2 * c


@pytest.mark.parametrize("preset", gpt3.PRESETS)
@pytest.mark.parametrize("tied", [True, False])
def test_gpt_has_as_many_parameters_as_the_closed_form_says(preset: str, tied: bool) -> None:
    size = gpt3.PRESETS[preset]
    c = size.hidden_size
    expected = (GPT_VOCABULARY * (1 if tied else 2) + size.max_positions) * c
    expected += size.layers * in_a_block(c, 4 * c) + 2 * c
    assert counted(a_gpt(preset, tie_embeddings=tied)) == expected


@pytest.mark.parametrize("preset", bert.PRESETS)
@pytest.mark.parametrize("tied", [True, False])
def test_bert_has_as_many_parameters_as_the_closed_form_says(preset: str, tied: bool) -> None:
    size = bert.PRESETS[preset]
    c = size.hidden_size
    expected = (BERT_VOCABULARY * (1 if tied else 2) + size.max_positions + 2) * c + 2 * c
    expected += size.layers * in_a_block(c, 4 * c) + (c * c + c) + 2 * c + BERT_VOCABULARY
    assert counted(a_bert(preset, tie_embeddings=tied)) == expected


@pytest.mark.parametrize("preset", gpt3.PRESETS)
def test_gpt_has_as_many_parameters_as_in_transformers(preset: str) -> None:
    size = gpt3.PRESETS[preset]
    config = transformers.GPT2Config(
        n_positions=size.max_positions, n_embd=size.hidden_size, n_layer=size.layers, n_head=size.heads
    )
    with torch.device("meta"):
        reference = transformers.GPT2LMHeadModel(config)
    assert counted(a_gpt(preset)) == sum(parameter.numel() for parameter in reference.parameters())


@pytest.mark.parametrize("preset", bert.PRESETS)
def test_bert_has_as_many_parameters_as_in_transformers(preset: str) -> None:
    size = bert.PRESETS[preset]
    config = transformers.BertConfig(
        hidden_size=size.hidden_size,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden_size,
        max_position_embeddings=size.max_positions,
    )
    with torch.device("meta"):
        reference = transformers.BertForMaskedLM(config)
    assert counted(a_bert(preset)) == sum(parameter.numel() for parameter in reference.parameters())


@pytest.mark.parametrize("preset", PAPER)
def test_gpt_counts_round_to_the_papers_figures(preset: str) -> None:
    figure, half_a_digit = PAPER[preset]
    assert abs(counted(a_gpt(preset)) - figure) <= half_a_digit


@pytest.mark.parametrize("preset", RELEASED)
def test_gpt2_counts_are_those_of_the_released_checkpoints(preset: str) -> None:
    assert counted(a_gpt(preset)) == RELEASED[preset]


@pytest.mark.parametrize(("preset", "figure", "half_a_digit"), [("base", 110e6, 5e6), ("large", 340e6, 5e6)])
def test_bert_counts_round_to_the_papers_figures(preset: str, figure: float, half_a_digit: float) -> None:
    assert abs(counted(a_bert(preset)) - figure) <= half_a_digit
