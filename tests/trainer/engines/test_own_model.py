"""Models of one's own: ties, parameters that nothing uses, parts that not every rank runs, weights from chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.objectives.next_token import NextToken
from meshwright_trainer.parallel.lockstep import _difference
from meshwright_trainer.parallel.units import freeze, units_of
from meshwright_trainer.random import Key
from tests.trainer.engines.own_model import MODELS, Run, Sometimes, Tied
from tests.trainer.engines.test_canonical import assembled
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.samples import part, whole_step
from tests.trainer.pool import Pool

TASKS = "tests.trainer.engines.own_model"
TASK = f"{TASKS}:train"


def trained_alone(cell: Cell, module: nn.Module, begun: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    """Plain torch: every micro-batch of a step in turn, one update."""
    module.double()
    values = {name.removeprefix("model/"): torch.from_numpy(v.copy()) for name, v in begun.items()}
    # A tied name is not among the pieces; it gets its value with the other.
    module.load_state_dict(values, strict=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    objective, losses = NextToken(), []
    for step in range(1, 4):
        batch = whole_step(cell, step)
        losses.append(0.0)
        for first in range(0, cell.samples, cell.micro):
            micro = part(batch, first, first + cell.micro)
            key = Key(cell.seed, step, micro.sample_id, torch.arange(cell.length))
            loss = objective(module(micro, key), micro).sum / objective.weight(batch)
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
        optimizer.zero_grad()
    return {f"model/{name}": p.detach().numpy() for name, p in module.named_parameters()}, losses


def assert_as_alone(cell: Cell, runs: list[Run], module: nn.Module) -> None:
    """Weights and losses of the ranks against one process, which begins with the same weights."""
    ended = assembled([run.ended for run in runs])
    expected, losses = trained_alone(cell, module, assembled([run.begun for run in runs]))
    assert ended.keys() == expected.keys()
    for name, tensor in expected.items():
        assert np.allclose(ended[name], tensor, rtol=1e-12, atol=1e-14), name
    for run in runs:
        assert run.losses == pytest.approx(losses, rel=1e-12)


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize(("data", "shard", "stage"), [(2, 1, 0), (1, 2, 1), (1, 2, 3)])
def test_a_tied_model_trains_as_alone(pool: Pool, data: int, shard: int, stage: int, meta: bool) -> None:
    cell = Cell("gpt3", data, shard, stage, accumulation=2, recompute=stage == 3)
    runs = pool.run(cell.ranks, TASK, cell, "Tied", meta)
    assert "model/layers.3.weight" not in assembled([run.ended for run in runs])
    assert_as_alone(cell, runs, Tied(cell.vocabulary))


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize(("data", "shard", "stage"), [(2, 1, 0), (1, 2, 1), (1, 2, 2), (1, 2, 3)])
def test_a_parameter_that_nothing_uses_stays(pool: Pool, data: int, shard: int, stage: int, planned: bool) -> None:
    cell = Cell("gpt3", data, shard, stage)
    runs = pool.run(2, TASK, cell, "Sometimes", False, planned)
    assert_as_alone(cell, runs, Sometimes(cell.vocabulary))
    begun, ended = (assembled([getattr(run, when) for run in runs]) for when in ("begun", "ended"))
    assert {n for n in ended if np.array_equal(begun[n], ended[n])} == {"model/unused.weight", "model/unused.bias"}


@pytest.mark.parametrize("determinism", ["Strict", "Canonical"])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize(
    ("kind", "data", "shard", "stage"),
    [
        ("Chooses", 2, 1, 0),
        ("Chooses", 1, 2, 1),
        ("ChoosesWithin", 1, 2, 2),
        ("ChoosesWithin", 1, 2, 3),
        ("ChoosesWithin", 2, 2, 3),
    ],
)
def test_t84_ranks_that_use_different_parameters_train_as_alone(
    pool: Pool, kind: str, data: int, shard: int, stage: int, accumulation: int, determinism: str
) -> None:
    cell = Cell("gpt3", data, shard, stage, accumulation)
    runs = pool.run(cell.ranks, TASK, cell, kind, False, False, determinism)
    assert_as_alone(cell, runs, MODELS[kind](cell.vocabulary))


# The heads are of one size, so that collectives that do not belong together go through, as they would unnoticed.
@pytest.mark.parametrize(
    ("kind", "data", "shard", "stage", "difference"),
    [
        ("Chooses", 1, 2, 2, "rank 0 gathers heads.0 where rank 1 gathers heads.1"),
        ("Chooses", 1, 2, 3, "rank 0 gathers heads.0 where rank 1 gathers heads.1"),
        ("Chooses", 2, 2, 3, "rank 0 gathers heads.0 where rank 1 gathers heads.1"),
        ("RunsBoth", 1, 2, 2, "rank 0 sums heads.0 where rank 1 sums heads.1"),
    ],
)
@pytest.mark.parametrize("planned", [False, True])
def test_t84_ranks_that_run_different_units_are_refused_before_the_update(
    pool: Pool, kind: str, data: int, shard: int, stage: int, difference: str, planned: bool
) -> None:
    cell = Cell("gpt3", data, shard, stage, accumulation=2)
    for says in pool.run(cell.ranks, f"{TASKS}:refused", cell, kind, planned):
        assert "with 2 and 3 every rank must run the same parts of the model in the same order" in says
        assert difference in says
        assert "use shardStage 0 or 1" in says


def test_t84_an_evaluation_in_which_ranks_differ_is_refused(pool: Pool) -> None:
    cell = Cell("gpt3", 1, 2, 3)
    for says in pool.run(2, f"{TASKS}:refused", cell, "Chooses", False, True):
        assert "rank 0 gathers heads.0 where rank 1 gathers heads.1" in says


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ((["gathers a"], ["gathers b"]), "rank 0 gathers a where rank 1 gathers b"),
        ((["gathers a"], ["gathers a"], ["gathers a", "sums a"]), "rank 0 is done where rank 2 sums a"),
        ((["gathers a", "sums a"], ["gathers a"]), "rank 0 sums a where rank 1 is done"),
    ],
)
def test_t84_the_first_difference_is_said(notes: tuple[list[str], ...], says: str) -> None:
    assert _difference(notes) == says


def test_a_module_that_shares_a_parameter_is_no_unit() -> None:
    module = Tied(5)
    assert units_of(module, None) == [module.layers[1], module.layers[2]]


def test_what_is_trained_is_said_by_patterns() -> None:
    module = Tied(5)
    freeze(module, ("layers.1.*",))
    assert [n for n, p in module.named_parameters() if p.requires_grad] == ["layers.1.weight", "layers.1.bias"]
    with pytest.raises(InvalidLaunch, match=r"'blocks\.\*' fits no parameter; there are for example layers\.0\.weight"):
        freeze(Tied(5), ("blocks.*",))
    with pytest.raises(InvalidLaunch, match="nothing to train"):
        freeze(nn.Module(), ())


@pytest.mark.parametrize(("data", "shard", "stage"), [(1, 1, 0), (2, 1, 0), (1, 2, 3)])
def test_running_statistics_are_part_of_the_state(pool: Pool, data: int, shard: int, stage: int) -> None:
    cell = Cell("gpt3", data, shard, stage)
    runs = pool.run(cell.ranks, "tests.trainer.engines.own_model:resume", cell)
    for straight, resumed in runs:
        assert {name for name in straight if "norm" in name} >= {"model/norm.running_mean", "model/norm.running_var"}
        assert "model/table" not in straight
        assert straight.keys() == resumed.keys()
        for name, (_, (_, values)) in straight.items():
            assert np.array_equal(values, resumed[name][1][1]), name
        assert np.abs(straight["model/norm.running_mean"][1][1]).max() > 0
