"""GPT-3 and BERT against `transformers`, with the same random weights in float64."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from meshwright_api.trainer import Model as ModelSpec
from meshwright_trainer.batch import Batch
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.errors import ReferenceMismatch
from meshwright_trainer.models.initialise import initialised
from meshwright_trainer.models.reference import from_reference, to_reference
from meshwright_trainer.models.registry import build_model
from meshwright_trainer.random import Key

VOCABULARY, POSITIONS = 67, 24
SIZES: dict[str, Any] = {
    "layers": 3,
    "hidden_size": 32,
    "heads": 4,
    "feed_forward_size": 48,
    "vocabulary_size": VOCABULARY,
}
TOLERANCE = 1e-10


def a_model(family: str, **fields: Any) -> Model:
    spec = ModelSpec(name=family, **{**SIZES, "max_positions": POSITIONS, **fields})
    return build_model(spec, vocabulary_size=VOCABULARY, sequence_length=POSITIONS)


def random_weights(model: Model) -> dict[str, Tensor]:
    """Weights that leave nothing at a value that hides a fault, such as biases of zero."""
    generator = torch.Generator().manual_seed(11)
    return {
        name: torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3
        for name, parameter in model.module.named_parameters()
    }


def loaded(model: Model, weights: dict[str, Tensor]) -> nn.Module:
    module = initialised(model, seed=0, dtype=torch.float64)
    module.load_state_dict(weights)
    return module.eval()


def reference_gpt(tied: bool) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_inner=48,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    return transformers.GPT2LMHeadModel(config).double().eval()


def reference_bert(tied: bool) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    return transformers.BertForMaskedLM(config).double().eval()


REFERENCES = {"gpt3": reference_gpt, "bert": reference_bert}


def a_batch(lengths: tuple[int, ...]) -> Batch:
    """Samples of one document each, followed by padding."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(VOCABULARY, (len(lengths), POSITIONS), generator=generator)
    place = torch.arange(POSITIONS).expand(len(lengths), POSITIONS)
    valid = place < torch.tensor(lengths)[:, None]
    return Batch(
        tokens=tokens,
        labels=tokens,
        weights=valid.float(),
        sample_id=torch.arange(len(lengths)),
        position_id=place,
        document_id=torch.where(valid, 0, -1),
    )


def a_key(batch: Batch) -> Key:
    return Key(0, 1, batch.sample_id, torch.arange(batch.tokens.shape[1]))


@pytest.mark.parametrize("family", REFERENCES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("lengths", [(POSITIONS, POSITIONS), (POSITIONS, 9, 1)], ids=["full", "padded"])
def test_logits_equal_those_of_transformers(family: str, tied: bool, lengths: tuple[int, ...]) -> None:
    model = a_model(family, tie_embeddings=tied)
    weights = random_weights(model)
    reference = REFERENCES[family](tied)
    reference.load_state_dict(to_reference(model, weights))
    batch = a_batch(lengths)
    with torch.no_grad():
        ours = loaded(model, weights)(batch, a_key(batch))
        theirs = reference(input_ids=batch.tokens, attention_mask=batch.weights.long()).logits
    valid = batch.document_id >= 0
    torch.testing.assert_close(ours[valid], theirs[valid], rtol=TOLERANCE, atol=TOLERANCE)
    assert ours.isfinite().all()


@pytest.mark.parametrize("family", REFERENCES)
def test_packed_documents_are_computed_as_if_each_were_alone(family: str) -> None:
    model = a_model(family)
    weights = random_weights(model)
    reference = REFERENCES[family](True)
    reference.load_state_dict(to_reference(model, weights))
    spans = list(itertools.pairwise((0, 7, 8, 19, POSITIONS)))
    whole = a_batch((POSITIONS,))
    packed = Batch(
        tokens=whole.tokens,
        labels=whole.labels,
        weights=whole.weights,
        sample_id=whole.sample_id,
        position_id=torch.cat([torch.arange(b - a) for a, b in spans])[None],
        document_id=torch.cat([torch.full((b - a,), i) for i, (a, b) in enumerate(spans)])[None],
    )
    with torch.no_grad():
        ours = loaded(model, weights)(packed, a_key(packed))
        for a, b in spans:
            alone = reference(input_ids=whole.tokens[:, a:b]).logits
            torch.testing.assert_close(ours[:, a:b], alone, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("family", REFERENCES)
@pytest.mark.parametrize("tied", [True, False])
def test_weights_go_to_transformers_and_back(family: str, tied: bool) -> None:
    model = a_model(family, tie_embeddings=tied)
    weights = random_weights(model)
    reference = REFERENCES[family](tied)
    theirs = to_reference(model, weights)
    assert theirs.keys() == reference.state_dict().keys() - {"bert.embeddings.position_ids"}
    back = from_reference(model, theirs)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)


@pytest.mark.parametrize("family", REFERENCES)
def test_gradients_equal_those_of_transformers(family: str) -> None:
    model = a_model(family)
    weights = random_weights(model)
    module = loaded(model, weights)
    reference = REFERENCES[family](True)
    reference.load_state_dict(to_reference(model, weights))
    batch = a_batch((POSITIONS, 13))
    probe = torch.randn(2, POSITIONS, VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    probe = probe * (batch.document_id >= 0)[..., None]
    (module(batch, a_key(batch)) * probe).sum().backward()
    (reference(input_ids=batch.tokens, attention_mask=batch.weights.long()).logits * probe).sum().backward()
    ours = to_reference(model, {name: parameter.grad for name, parameter in module.named_parameters()})
    theirs = {name: parameter.grad for name, parameter in reference.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=0, atol=TOLERANCE * largest, msg=name)


def test_a_tied_weight_may_be_given_once_but_not_twice_with_different_values() -> None:
    model = a_model("gpt3")
    theirs = to_reference(model, random_weights(model))
    without = {name: tensor for name, tensor in theirs.items() if name != "lm_head.weight"}
    assert from_reference(model, without).keys() == random_weights(model).keys()
    with pytest.raises(ReferenceMismatch, match=r"lm_head\.weight differs"):
        from_reference(model, {**theirs, "lm_head.weight": theirs["lm_head.weight"] + 1})


def test_missing_unexpected_and_misshapen_weights_are_named() -> None:
    model = a_model("gpt3")
    theirs = to_reference(model, random_weights(model))
    wpe = theirs.pop("transformer.wpe.weight")
    with pytest.raises(ReferenceMismatch, match=r"missing: transformer\.wpe\.weight; unexpected: extra"):
        from_reference(model, {**theirs, "extra": wpe})
    with pytest.raises(ReferenceMismatch, match=r"position_embedding\.weight \(23, 32\), not \(24, 32\)"):
        from_reference(model, {**theirs, "transformer.wpe.weight": wpe[1:]})
    with pytest.raises(ReferenceMismatch, match=r"parameters are missing: final_norm\.bias"):
        to_reference(model, {k: v for k, v in random_weights(model).items() if k != "final_norm.bias"})


NEO_NAMES = {
    "token_embedding": "wte",
    "position_embedding": "wpe",
    "final_norm": "ln_f",
    "blocks": "h",
    "attention_norm": "ln_1",
    "attention.query": "attn.attention.q_proj",
    "attention.key": "attn.attention.k_proj",
    "attention.value": "attn.attention.v_proj",
    "attention.output": "attn.attention.out_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}


def neo_name(name: str) -> str:
    for ours, theirs in NEO_NAMES.items():
        name = re.sub(rf"(^|\.){re.escape(ours)}\.", rf"\1{theirs}.", name)
    return f"transformer.{name}"


def test_every_second_layer_may_be_banded_as_in_gpt_neo() -> None:
    """GPT-Neo bands every second layer too. It has no biases in its projections and does not scale its scores."""
    band = 5
    model = a_model("gpt3", layers=4, arguments={"band": band})
    weights = random_weights(model)
    for name in weights:
        if re.search(r"attention\.(query|key|value)\.bias", name):
            weights[name].zero_()
    config = transformers.GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        intermediate_size=48,
        attention_types=[[["global", "local"], 2]],
        window_size=band,
        attn_implementation="eager",
    )
    reference = transformers.GPTNeoForCausalLM(config).double().eval()
    theirs = {
        neo_name(name): tensor for name, tensor in weights.items() if not name.endswith(("query.bias", "key.bias"))
    }
    theirs = {
        name: tensor / math.sqrt(32 // 4) if "q_proj" in name else tensor
        for name, tensor in theirs.items()
        if not name.endswith("v_proj.bias")
    }
    reference.load_state_dict({**theirs, "lm_head.weight": theirs["transformer.wte.weight"]})
    batch = a_batch((POSITIONS, POSITIONS))
    with torch.no_grad():
        ours = loaded(model, weights)(batch, a_key(batch))
        theirs_BTV = reference(input_ids=batch.tokens).logits
        torch.testing.assert_close(ours, theirs_BTV, rtol=0, atol=1e-6)  # GPT-Neo computes its scores in float32
    dense = a_model("gpt3", layers=4)
    with torch.no_grad():
        assert not torch.allclose(loaded(dense, weights)(batch, a_key(batch)), ours, rtol=1e-3)
