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
    """Keeps its count where no checkpoint sees it."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                state: dict[str, Any] = self.state[parameter]
                state["steps"] = state.get("steps", 0) + 1


def test_state_that_no_checkpoint_can_read_is_refused() -> None:
    with pytest.raises(InvalidLaunch, match="the state 'steps' is a int"):
        ForeignOptimizer(config(factory=f"{__name__}:Forgetful"), slices())


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
