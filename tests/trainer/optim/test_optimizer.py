"""Which parameters decay, and an optimizer of one's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from meshwright_api.errors import InvalidTrainer
from meshwright_api.trainer_config import OptimizerConfig, trainer_config
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.optim.foreign import ForeignOptimizer
from meshwright_trainer.optim.optimizer import Optimizer, RuleOptimizer
from meshwright_trainer.optim.updates import rule_of
from meshwright_trainer.parallel.boxes import box_of
from meshwright_trainer.parallel.layout import Slice


def config(**optimizer: Any) -> OptimizerConfig:
    optimizer = {"learningRate": 0.1, "weightDecay": 0.5, **optimizer}
    return trainer_config({"model": {"name": "gpt3"}, "steps": 1, "optimizer": optimizer}, 1).optimizer


def slices() -> list[Slice]:
    names = ("blocks.0.norm.weight", "blocks.0.up.weight", "blocks.0.up.bias")
    return [Slice(name, box_of((3,)), torch.ones(3, dtype=torch.float64), True) for name in names]


def without_gradient(optimizer: Optimizer, parts: list[Slice]) -> list[float]:
    optimizer.update([torch.zeros_like(s.tensor) for s in parts], rate=0.1, count=1)
    return [s.tensor[0].item() for s in parts]


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_norms_and_biases_do_not_decay(name: str) -> None:
    given, parts = config(name=name), slices()
    optimizer = RuleOptimizer(given, rule_of(given, in_order=False), parts, ("*norm.weight", "*.bias"))
    assert without_gradient(optimizer, parts) == pytest.approx([1.0, 0.95, 1.0], abs=1e-15)


def test_of_ones_own_neither() -> None:
    parts = slices()
    given = config(factory="torch.optim:AdamW", arguments={"weight_decay": 0.5})
    optimizer = ForeignOptimizer(given, parts, ("*norm.weight", "*.bias"))
    assert [s.tensor[0].item() for s in parts] == [1.0, 1.0, 1.0]
    assert without_gradient(optimizer, parts) == pytest.approx([1.0, 0.95, 1.0], abs=1e-15)


def test_state_is_there_from_the_beginning_and_begins_where_it_should() -> None:
    given = config(factory="torch.optim:Adagrad", arguments={"initial_accumulator_value": 0.25})
    optimizer = ForeignOptimizer(given, slices())
    pieces = optimizer.pieces()
    assert {n for n in pieces if n.endswith("up.weight")} == {
        "optimizer/sum/blocks.0.up.weight",
        "optimizer/step/blocks.0.up.weight",
    }
    assert torch.equal(pieces["optimizer/sum/blocks.0.up.weight"].tensor, torch.full((3,), 0.25, dtype=torch.float64))
    assert pieces["optimizer/step/blocks.0.up.weight"].tensor.item() == 0


class Forgetful(torch.optim.SGD):
    """Counts its steps where no checkpoint sees it."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        self.count()

    def count(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state: dict[str, Any] = self.state[parameter]
                state["steps"] = state.get("steps", 0) + 1


class InGroup(Forgetful):
    """As apex does."""

    def count(self) -> None:
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


class InGroupsTensor(Forgetful):
    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.param_groups[0]["steps"] = [torch.zeros(1)]

    def count(self) -> None:
        self.param_groups[0]["steps"][0] += 1


class InSelf(Forgetful):
    steps = 0

    def count(self) -> None:
        self.steps += 1


class InState(Forgetful):
    def count(self) -> None:
        self.state["steps"] = torch.ones(1)  # type: ignore[index]


class OfCopies(Forgetful):
    def count(self) -> None:
        self.state[torch.zeros(3)] = {"steps": torch.ones(1)}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Forgetful", "the state 'steps' is a int, which a checkpoint cannot read back"),
        ("InGroup", r"keeps param_groups\[0\]\['steps'\] beside the state of its parameters, where no checkpoint"),
        ("InGroupsTensor", r"keeps param_groups\[0\]\['steps'\] beside"),
        ("InSelf", "keeps attribute 'steps' beside"),
        ("InState", r"keeps state\['steps'\] beside"),
        ("OfCopies", "keeps the state of a tensor that is no parameter beside"),
    ],
)
def test_t61_state_that_no_checkpoint_can_read_is_refused(kind: str, says: str) -> None:
    parts = slices()
    with pytest.raises(InvalidLaunch, match=says):
        ForeignOptimizer(config(factory=f"{__name__}:{kind}"), parts)
    assert all(torch.equal(s.tensor, torch.ones_like(s.tensor)) for s in parts)


def test_an_optimizer_that_wants_a_closure_is_refused() -> None:
    with pytest.raises(InvalidLaunch, match=r"step of a LBFGS cannot be called without arguments: .*'closure'; an opt"):
        ForeignOptimizer(config(factory="torch.optim:LBFGS"), slices())


def test_t61_the_first_update_begins_as_without_a_trial_and_a_later_one_with_what_was_read() -> None:
    """NAdam's product begins at 1, which no trial and no zero can say."""
    theirs = [torch.nn.Parameter(s.tensor.clone()) for s in slices()]
    alone = torch.optim.NAdam(theirs, lr=0.1)
    first, parts = slices(), slices()
    before = ForeignOptimizer(config(factory="torch.optim:NAdam"), first)
    assert before.pieces().keys() == {
        f"optimizer/{kind}/{s.name}" for kind in ("step", "exp_avg", "exp_avg_sq", "mu_product") for s in parts
    }
    after = ForeignOptimizer(config(factory="torch.optim:NAdam"), parts)
    gradients = [torch.full_like(s.tensor, 0.5) for s in parts]
    for count in (1, 2, 3):
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        alone.step()
        if count == 3:
            for mine, other in zip(parts, first, strict=True):
                mine.tensor.copy_(other.tensor)
            for name, piece in after.pieces().items():
                piece.tensor.copy_(before.pieces()[name].tensor)
        (before if count < 3 else after).update(gradients, rate=0.1, count=count)
    assert all(torch.equal(s.tensor, p.detach()) for s, p in zip(parts, theirs, strict=True))


class Early(torch.optim.SGD):
    """Its constructor makes the state; a step counts it down in place, or puts a new tensor there."""

    def __init__(self, params: Any, lr: float, in_place: bool) -> None:
        super().__init__(params, lr=lr)
        self.in_place = in_place
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["left"] = torch.full_like(parameter, 3.0)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state: dict[str, Any] = self.state[parameter]
                state["left"] = state["left"].sub_(1) if self.in_place else state["left"] - 1
                parameter.data -= group["lr"] * state["left"]


@pytest.mark.parametrize("in_place", [True, False])
def test_t61_what_a_constructor_made_is_what_the_first_update_begins_with(in_place: bool) -> None:
    parts = slices()
    optimizer = ForeignOptimizer(config(factory=f"{__name__}:Early", arguments={"in_place": in_place}), parts)
    assert without_gradient(optimizer, parts) == pytest.approx([1.0 - 0.1 * 2.0] * 3)


def test_a_factory_that_cannot_be_called_says_so() -> None:
    with pytest.raises(InvalidLaunch, match=r"torch\.optim:SGD cannot be called with .*beta"):
        ForeignOptimizer(config(factory="torch.optim:SGD", arguments={"beta": 1}), slices())
    with pytest.raises(InvalidTrainer, match="has no 'Nothing'"):
        ForeignOptimizer(config(factory="torch.optim:Nothing"), slices())


def test_the_schedule_scales_every_groups_rate() -> None:
    parts = slices()
    optimizer = ForeignOptimizer(config(factory="torch.optim:SGD", arguments={"lr": 0.2}), parts)
    gradients: list[Tensor] = [torch.ones_like(s.tensor) for s in parts]
    optimizer.update(gradients, rate=0.05, count=1)
    # Half of the job's peak of 0.1, so half of the factory's 0.2.
    assert parts[0].tensor[0].item() == pytest.approx(0.9)
