"""Models without a plan: ties, parameters that nothing uses, weights from chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.objectives.next_token import NextToken
from meshwright_trainer.parallel.units import freeze, units_of
from meshwright_trainer.random import Key
from tests.trainer.engines.own_model import Sometimes, Tied
from tests.trainer.engines.test_canonical import assembled
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.samples import whole_step
from tests.trainer.pool import Pool

TASK = "tests.trainer.engines.own_model:train"


def trained_alone(cell: Cell, module: nn.Module, begun: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    module.double()
    values = {name.removeprefix("model/"): torch.from_numpy(v.copy()) for name, v in begun.items()}
    # A tied name is not among the pieces; it gets its value with the other.
    module.load_state_dict(values, strict=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    objective, losses = NextToken(), []
    for step in range(1, 4):
        batch = whole_step(cell, step)
        key = Key(cell.seed, step, batch.sample_id, torch.arange(cell.length))
        loss = objective(module(batch, key), batch).sum / objective.weight(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {f"model/{name}": p.detach().numpy() for name, p in module.named_parameters()}, losses


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize(("data", "shard", "stage"), [(2, 1, 0), (1, 2, 1), (1, 2, 3)])
def test_a_tied_model_trains_as_alone(pool: Pool, data: int, shard: int, stage: int, meta: bool) -> None:
    cell = Cell("gpt3", data, shard, stage, accumulation=2, recompute=stage == 3)
    runs = pool.run(cell.ranks, TASK, cell, "Tied", meta)
    begun, ended = assembled([run.begun for run in runs]), assembled([run.ended for run in runs])
    expected, losses = trained_alone(cell, Tied(cell.vocabulary), begun)
    assert ended.keys() == expected.keys()
    assert "model/layers.3.weight" not in ended
    for name, tensor in expected.items():
        assert np.allclose(ended[name], tensor, rtol=1e-12, atol=1e-14), name
    for run in runs:
        assert run.losses == pytest.approx(losses, rel=1e-12)


def test_a_parameter_that_nothing_uses_stays(pool: Pool) -> None:
    cell = Cell("gpt3", data=2)
    runs = pool.run(2, TASK, cell, "Sometimes", False)
    expected, _ = trained_alone(cell, Sometimes(cell.vocabulary), assembled([run.begun for run in runs]))
    for run in runs:
        for name, tensor in assembled([run.ended]).items():
            assert np.allclose(tensor, expected[name], rtol=1e-12, atol=1e-14), name


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
