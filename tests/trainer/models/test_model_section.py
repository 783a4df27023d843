"""From `spec.trainer.model` to a model: presets, overrides, refusals that name the field, factories."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from meshwright_api.errors import InvalidTrainer
from meshwright_api.trainer import Model as ModelSpec
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.registry import build_model

HERE = __name__
"""These tests' own module: pytest has imported it already, under this name."""


def built(sequence_length: int = 64, **fields: Any) -> Model:
    return build_model(ModelSpec(**fields), vocabulary_size=300, sequence_length=sequence_length)


def refused(**fields: Any) -> str:
    with pytest.raises(InvalidTrainer) as caught:
        built(**fields)
    return str(caught.value)


class Bigram(nn.Module):
    """A user's model: nothing but torch."""

    def __init__(self, vocabulary_size: int, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.head = nn.Linear(width, vocabulary_size)

    def forward(self, batch: Any, key: Any) -> Tensor:
        out: Tensor = self.head(self.embedding(batch.tokens))
        return out


def a_whole_model(arguments_go: str = "here") -> Model:
    return Model(module=Bigram(4), objective="MaskedToken", identity={"made": arguments_go})


def of_tensors() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4))


def a_number() -> int:
    return 3


def positional(only: int, /) -> nn.Module:
    return Bigram(only)


NOT_CALLABLE = 5


def test_a_preset_is_resolved_and_any_field_of_it_overridden() -> None:
    model = built(name="gpt3", preset="125m", layers=2, dropout=0.2)
    assert model.identity == {
        "family": "gpt3",
        "layers": 2,
        "hidden_size": 768,
        "feed_forward_size": 3072,
        "heads": 12,
        "vocabulary_size": 300,
        "max_positions": 2048,
        "tie_embeddings": True,
        "band": None,
    }
    assert len(model.module.blocks) == 2
    assert model.module.dropout.p == 0.2


def test_the_inner_width_follows_the_width_unless_it_is_given() -> None:
    assert built(name="bert", preset="tiny", hidden_size=64).identity["feed_forward_size"] == 256
    assert built(name="bert", preset="tiny", feed_forward_size=100).identity["feed_forward_size"] == 100


@pytest.mark.parametrize(("asked", "sequence", "got"), [(None, 64, 256), (None, 500, 500), (300, 64, 300)])
def test_positions_reach_over_the_sequence(asked: int | None, sequence: int, got: int) -> None:
    model = built(name="gpt3", preset="tiny", max_positions=asked, sequence_length=sequence)
    assert model.identity["max_positions"] == got
    assert model.module.position_embedding.num_embeddings == got


def test_sizes_without_a_preset_suffice() -> None:
    assert built(name="gpt3", layers=1, hidden_size=8, heads=2).identity["max_positions"] == 64


def test_a_model_may_have_more_entries_than_its_tokenizer() -> None:
    assert built(name="gpt3", preset="tiny", vocabulary_size=320).identity["vocabulary_size"] == 320


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"spec.trainer.model: give either a name (gpt3, bert) or a factory"),
        ({"name": "gpt3", "factory": "a:b"}, "spec.trainer.model: give either"),
        ({"name": "gpt5"}, "spec.trainer.model.name: no model 'gpt5'; use one of gpt3, bert"),
        ({"name": "gpt3", "preset": "3b"}, "spec.trainer.model.preset: gpt3 has no preset '3b'; use one of tiny, 125m"),
        ({"name": "bert"}, "spec.trainer.model.preset: without one layers, hiddenSize, heads must be given"),
        (
            {"name": "gpt3", "preset": "tiny", "heads": 5},
            "heads: hiddenSize 128 is no multiple of 5 heads; use for example 4",
        ),
        (
            {"name": "gpt3", "preset": "tiny", "vocabulary_size": 299},
            "vocabularySize: 299 is less than the tokenizer's 300",
        ),
        (
            {"name": "gpt3", "preset": "tiny", "max_positions": 63},
            "maxPositions: 63 is less than batch.sequenceLength 64",
        ),
        ({"name": "gpt3", "preset": "tiny", "experts": 8}, "spec.trainer.model.experts: gpt3 has no such field"),
        (
            {"name": "bert", "preset": "tiny", "key_value_heads": 2},
            "spec.trainer.model.keyValueHeads: bert has no such",
        ),
        ({"name": "bert", "preset": "tiny", "dropout": 1.0}, "spec.trainer.model.dropout: 1 would drop everything"),
        ({"name": "bert", "preset": "tiny", "attention_dropout": 1.0}, "spec.trainer.model.attentionDropout: 1 would"),
        (
            {"name": "bert", "preset": "tiny", "arguments": {"band": 2}},
            "model.arguments: bert knows no band; its arguments: none",
        ),
        (
            {"name": "gpt3", "preset": "tiny", "arguments": {"x": 2}},
            "model.arguments: gpt3 knows no x; its arguments: band",
        ),
        (
            {"name": "gpt3", "preset": "tiny", "arguments": {"band": 0}},
            "model.arguments.band: a number of positions from 1",
        ),
        (
            {"factory": "no_such_module:f"},
            "spec.trainer.model.factory: module 'no_such_module' cannot be imported: ModuleNotFound",
        ),
        ({"factory": f"{HERE}:missing"}, "has no 'missing'"),
        ({"factory": f"{HERE}:NOT_CALLABLE"}, "is a int and cannot be called"),
        ({"factory": f"{HERE}:a_number"}, "returned a int; return a torch.nn.Module or a Model"),
        ({"factory": f"{HERE}:Bigram", "arguments": {"depth": 3}}, "spec.trainer.model.arguments:"),
        ({"factory": f"{HERE}:of_tensors"}, "forward(input) cannot be called as forward(batch, key)"),
        ({"factory": f"{HERE}:positional", "arguments": {"only": 3}}, "positional only"),
    ],
)
def test_what_cannot_be_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    assert message in refused(**fields)


def test_all_problems_are_told_at_once() -> None:
    told = refused(name="gpt3", preset="tiny", heads=5, experts=2, vocabulary_size=1)
    assert [line.partition(":")[0].rpartition(".")[2] for line in told.splitlines()] == [
        "experts",
        "heads",
        "vocabularySize",
    ]


def test_a_factory_may_return_a_plain_module() -> None:
    model = built(factory=f"{HERE}:Bigram", arguments={"width": 3})
    assert model.plan is None
    assert model.objective == "NextToken"
    assert model.module.embedding.weight.shape == (300, 3), "the vocabulary is offered by name"
    assert model.identity == {"factory": f"{HERE}:Bigram", "arguments": {"width": 3}}
    assert built(factory=f"{HERE}:Bigram", arguments={"vocabulary_size": 9}).module.head.out_features == 9


def test_a_factory_may_return_a_model_with_its_own_identity() -> None:
    model = built(factory=f"{HERE}:a_whole_model", arguments={"arguments_go": "there"})
    assert (model.objective, model.identity) == ("MaskedToken", {"made": "there"})


def test_what_a_factory_raises_comes_through() -> None:
    with pytest.raises(RuntimeError, match="negative dimension"):
        built(factory=f"{HERE}:Bigram", arguments={"width": -1})


def test_a_model_is_built_where_it_is_asked_to_be() -> None:
    spec = ModelSpec(name="gpt3", preset="tiny")
    real = build_model(spec, vocabulary_size=10, sequence_length=8, device="cpu").module
    assert {parameter.device for parameter in real.parameters()} == {torch.device("cpu")}
    assert all(parameter.is_meta for parameter in built(name="bert", preset="tiny").module.parameters())
