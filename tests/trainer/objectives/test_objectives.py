"""Losses against closed forms in float64, masking against its definition, objectives by name and factory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from meshwright_api.errors import InvalidTrainer
from meshwright_api.trainer import Objective as ObjectiveSpec
from meshwright_trainer.batch import Batch
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.objectives.base import Loss, Objective
from meshwright_trainer.objectives.losses import CrossEntropy
from meshwright_trainer.objectives.masked_token import MaskedToken
from meshwright_trainer.objectives.next_token import NextToken
from meshwright_trainer.objectives.registry import build_objective
from meshwright_trainer.random import Key

VOCABULARY, MASK = 50, 49
HERE = __name__


def a_batch(samples: int = 4, length: int = 8, **fields: Any) -> Batch:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCABULARY - 1, (samples, length), generator=generator)
    place = torch.arange(length).expand(samples, length)
    batch = Batch(
        tokens=tokens,
        labels=tokens.roll(-1, dims=1),
        weights=torch.ones(samples, length),
        sample_id=torch.arange(samples),
        position_id=place,
        document_id=torch.zeros_like(tokens),
    )
    return replace(batch, **fields)


def a_key(batch: Batch, step: int = 1, seed: int = 0) -> Key:
    return Key(seed, step, batch.sample_id, torch.arange(batch.tokens.shape[1]))


def some_logits(batch: Batch) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(*batch.tokens.shape, VOCABULARY, generator=generator, dtype=torch.float64) * 3


def by_hand(logits: Tensor, batch: Batch, smoothing: float = 0.0, z: float = 0.0) -> float:
    total = 0.0
    for b, t in ((b, t) for b in range(batch.size) for t in range(batch.tokens.shape[1])):
        row = logits[b, t].tolist()
        log_z = math.log(sum(math.exp(x) for x in row))
        label = int(batch.labels[b, t])
        loss = (1 - smoothing) * (log_z - row[label]) + smoothing * sum(log_z - x for x in row) / len(row)
        total += float(batch.weights[b, t]) * (loss + z * log_z**2)
    return total


@pytest.mark.parametrize(("smoothing", "z"), [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-2), (0.2, 1e-2)])
def test_the_loss_is_the_weighted_sum_of_the_definition(smoothing: float, z: float) -> None:
    batch = a_batch(weights=torch.tensor([1.0, 0.0, 0.5, 2.0])[:, None].expand(4, 8))
    logits = some_logits(batch)
    loss = CrossEntropy(label_smoothing=smoothing, z_loss=z)(logits, batch)
    assert loss.sum.dtype == torch.float64
    assert loss.sum.item() == pytest.approx(by_hand(logits, batch, smoothing, z), rel=1e-12)
    assert NextToken().weight(batch).item() == 28.0


@pytest.mark.parametrize(("given", "counted"), [(torch.bfloat16, torch.float32), (torch.float32, torch.float32)])
def test_the_sum_is_in_float32_at_least(given: torch.dtype, counted: torch.dtype) -> None:
    batch = a_batch()
    logits = some_logits(batch).to(given)
    loss = NextToken()(logits, batch)
    assert loss.sum.dtype == counted
    assert loss.sum.item() == pytest.approx(by_hand(logits.double(), batch), rel=1e-5)


def test_labels_may_be_of_any_whole_type() -> None:
    batch = a_batch()
    narrow = replace(batch, labels=batch.labels.to(torch.int32))
    assert torch.equal(CrossEntropy()(some_logits(batch), narrow).sum, CrossEntropy()(some_logits(batch), batch).sum)


def test_what_a_model_or_dataset_of_ones_own_gives_is_looked_at() -> None:
    batch = a_batch()
    with pytest.raises(InvalidLaunch, match=r"the output is \(4, 7, 50\); .* labels' shape \(4, 8\)"):
        CrossEntropy()(some_logits(batch)[:, 1:], batch)
    with pytest.raises(InvalidLaunch, match="no tensor but a tuple"):
        CrossEntropy()((some_logits(batch), None), batch)  # type: ignore[arg-type]
    with pytest.raises(InvalidLaunch, match=r"whole numbers as labels, not torch.float32"):
        CrossEntropy()(some_logits(batch), replace(batch, labels=batch.labels.float()))


def test_a_sum_over_micro_batches_is_the_sum_over_the_batch() -> None:
    batch = a_batch()
    logits = some_logits(batch)
    parts = [
        replace(batch, **{name: value[i : i + 1] for name, value in vars(batch).items() if isinstance(value, Tensor)})
        for i in range(4)
    ]
    summed = sum(NextToken()(logits[i : i + 1], part).sum.item() for i, part in enumerate(parts))
    assert summed == pytest.approx(NextToken()(logits, batch).sum.item(), rel=1e-14)


@pytest.mark.parametrize("label", [-1, -100, VOCABULARY])
def test_targets_without_weight_are_not_looked_at(label: int) -> None:
    batch = a_batch()
    weights, labels = batch.weights.clone(), batch.labels.clone()
    weights[:, 5:], labels[:, 5:] = 0, label
    logits = some_logits(batch).requires_grad_()
    poisoned = torch.where(weights[..., None] == 0, math.nan, logits)
    objective = NextToken(CrossEntropy(z_loss=0.1, label_smoothing=0.1))
    loss = objective(poisoned, replace(batch, weights=weights, labels=labels)).sum
    clean = objective(logits, replace(batch, weights=weights)).sum
    assert loss.item() == clean.item()
    (gradient,) = torch.autograd.grad(clean, logits)
    assert (gradient[:, 5:] == 0).all()


@pytest.mark.parametrize("objective", [NextToken(), NextToken(CrossEntropy(0.1, 0.1)), MaskedToken(VOCABULARY, MASK)])
def test_a_batch_without_any_weight_has_loss_and_gradient_zero(objective: Objective) -> None:
    batch = a_batch(weights=torch.zeros(4, 8))
    logits = some_logits(batch).requires_grad_()
    loss = objective(logits, batch)
    (gradient,) = torch.autograd.grad(loss.sum, logits)
    assert loss.sum.item() == 0
    assert (gradient == 0).all()
    assert objective.weight(batch).item() == 0


def test_correct_targets_are_counted_in_evaluations_only() -> None:
    batch = a_batch(weights=torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None].expand(4, 8))
    logits = torch.nn.functional.one_hot(batch.labels, VOCABULARY).double()
    logits[0, 0] = 0.0
    logits[0, 0, (batch.labels[0, 0] + 1) % VOCABULARY] = 1.0
    assert NextToken()(logits, batch).sums["correct"].item() == 23
    assert NextToken()(logits.requires_grad_(), batch).sums == {}


@pytest.mark.parametrize("probability", [0.15, 0.4])
def test_masking_chooses_and_hides_in_the_shares_of_the_paper(probability: float) -> None:
    batch = a_batch(samples=200, length=500)
    objective = MaskedToken(VOCABULARY, MASK, probability)
    prepared = objective.prepare(batch, a_key(batch))
    chosen = prepared.weights == 1
    n, k = batch.tokens.numel(), int(chosen.sum())
    assert abs(k / n - probability) < 5 * math.sqrt(probability * (1 - probability) / n)
    assert torch.equal(prepared.weights == 0, ~chosen)
    assert torch.equal(prepared.labels, batch.tokens)
    assert torch.equal(prepared.tokens[~chosen], batch.tokens[~chosen])
    shown, before = prepared.tokens[chosen], batch.tokens[chosen]
    # A random token is the mask or the token itself one time in V each.
    expected = {"masked": 0.8 + 0.1 / VOCABULARY, "kept": 0.1 + 0.1 / VOCABULARY}
    for name, share in (("masked", (shown == MASK)), ("kept", shown == before)):
        p = expected[name]
        assert abs(share.double().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / k), name
    other = shown[(shown != MASK) & (shown != before)]
    counts = torch.bincount(other, minlength=VOCABULARY).double()
    assert counts[: VOCABULARY - 1].min() > counts.sum() / VOCABULARY * 0.5, (
        "random tokens come from the whole vocabulary"
    )
    assert objective.weight(prepared).item() == k


def test_padding_and_samples_that_fill_up_are_never_touched() -> None:
    document_id = torch.zeros(4, 8, dtype=torch.int64)
    document_id[:, 6:] = -1
    batch = a_batch(document_id=document_id, sample_id=torch.tensor([0, 1, -1, 3]))
    prepared = MaskedToken(VOCABULARY, MASK, probability=1.0).prepare(batch, a_key(batch))
    padding = (document_id < 0) | (batch.sample_id < 0)[:, None]
    assert torch.equal(prepared.weights == 0, padding)
    assert torch.equal(prepared.tokens[padding], batch.tokens[padding])


def test_t45_a_samples_mask_follows_it_into_any_micro_batch_and_is_new_in_every_step() -> None:
    objective = MaskedToken(VOCABULARY, MASK)
    batch = a_batch(samples=6, length=64)
    whole = objective.prepare(batch, a_key(batch))
    order = torch.tensor([4, 1, 5])
    part = replace(batch, **{name: value[order] for name, value in vars(batch).items() if isinstance(value, Tensor)})
    again = objective.prepare(part, a_key(part))
    assert torch.equal(again.tokens, whole.tokens[order])
    assert torch.equal(again.weights, whole.weights[order])
    for other in (a_key(batch, step=2), a_key(batch, seed=1)):
        assert not torch.equal(objective.prepare(batch, other).weights, whole.weights)
    assert torch.equal(batch.tokens, a_batch(samples=6, length=64).tokens), "the batch itself stays"


class Squares:
    """A user's objective."""

    def __init__(self, factor: float, vocabulary_size: int = 0) -> None:
        self.factor, self.vocabulary_size = factor, vocabulary_size

    def prepare(self, batch: Batch, key: Key) -> Batch:
        return batch

    def weight(self, batch: Batch) -> Tensor:
        return torch.tensor(float(batch.size), dtype=torch.float64)

    def __call__(self, output: Tensor, batch: Batch) -> Loss:
        return Loss(self.factor * output.square().sum())


def built(mask_token: int | None = MASK, default: str = "NextToken", **fields: Any) -> Objective:
    return build_objective(ObjectiveSpec(**fields), default, vocabulary_size=VOCABULARY, mask_token=mask_token)


def test_an_objective_is_the_models_own_or_named_or_made_by_a_factory() -> None:
    assert built() == NextToken()
    assert built(default="MaskedToken") == MaskedToken(VOCABULARY, MASK)
    assert built(name="MaskedToken", arguments={"probability": 0.2, "label_smoothing": 0.1}) == MaskedToken(
        VOCABULARY, MASK, 0.2, CrossEntropy(0.1)
    )
    assert built(name="NextToken", arguments={"z_loss": 1e-4}) == NextToken(CrossEntropy(z_loss=1e-4))
    own = built(factory=f"{HERE}:Squares", arguments={"factor": 2.0})
    assert isinstance(own, Squares)
    assert (own.factor, own.vocabulary_size) == (2.0, VOCABULARY)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"name": "Nonsense"},
            "spec.trainer.objective.name: no objective 'Nonsense'; use one of NextToken, MaskedToken",
        ),
        ({"name": "NextToken", "factory": "a:b"}, "spec.trainer.objective: give either a name or a factory"),
        ({"name": "NextToken", "arguments": {"colour": 1}}, "spec.trainer.objective.arguments: NextToken knows no"),
        (
            {"arguments": {"label_smoothing": 1}},
            "spec.trainer.objective.arguments: NextToken: label_smoothing is in [0, 1)",
        ),
        ({"arguments": {"z_loss": -1}}, "z_loss is 0 or more"),
        ({"name": "MaskedToken", "arguments": {"probability": 0}}, "MaskedToken: probability is in (0, 1]"),
        (
            {"name": "MaskedToken", "mask_token": None},
            "spec.trainer.data.tokenizer: MaskedToken needs a tokenizer with a mask",
        ),
        ({"factory": f"{HERE}:a_key"}, "spec.trainer.objective.arguments:"),
        ({"factory": f"{HERE}:some_objects"}, "returned a dict without prepare, weight, __call__"),
    ],
)
def test_what_cannot_be_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTrainer) as caught:
        built(**fields)
    assert message in str(caught.value)


def some_objects() -> dict[str, int]:
    return {}
