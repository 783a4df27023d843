"""The engine's behaviour beside its numbers, on small meshes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.models.initialise import initialised
from meshwright_trainer.parallel.refusals import Refused, check_supported
from meshwright_trainer.random import Key
from meshwright_trainer.schedule import learning_rate
from tests.trainer.engines.tasks import section
from tests.trainer.engines.test_canonical import assembled
from tests.trainer.parity import reference
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.samples import whole_step
from tests.trainer.pool import Pool

TASKS = "tests.trainer.engines.tasks"
STAGES = [(2, 1, 0), (1, 2, 1), (1, 2, 2), (2, 2, 3)]
LAYOUTS = pytest.mark.parametrize(("data", "shard", "stage"), STAGES)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n][1][1], b[n][1][1]) for n in a)


@LAYOUTS
def test_going_on_from_the_pieces_has_the_bits_of_never_having_stopped(
    pool: Pool, data: int, shard: int, stage: int
) -> None:
    cell = Cell("gpt3", data, shard, stage, dropout=0.1)
    for straight, resumed in pool.run(cell.ranks, f"{TASKS}:resume", cell, section(cell, precision="FP32"), 4):
        assert same(straight, resumed)


@pytest.mark.parametrize(("data", "shard", "stage"), [(2, 1, 0), (1, 2, 1), (1, 2, 3)])
def test_going_on_in_bfloat16_begins_with_the_masters(pool: Pool, data: int, shard: int, stage: int) -> None:
    cell = Cell("gpt3", data, shard, stage, layers=1)
    for straight, resumed in pool.run(cell.ranks, f"{TASKS}:resume", cell, section(cell, precision="BF16"), 4):
        assert same(straight, resumed)


@LAYOUTS
def test_a_gradient_that_is_infinite_on_one_rank_stops_the_update_on_all(
    pool: Pool, data: int, shard: int, stage: int
) -> None:
    cell = Cell("gpt3", data, shard, stage)
    for seen in pool.run(cell.ranks, f"{TASKS}:overflow", cell, section(cell), 1):
        assert seen["skipped"].skipped
        assert not np.isfinite(seen["skipped"].norm)
        assert same(seen["before"], seen["after"])
        assert not seen["good"].skipped
        assert np.isfinite(seen["good"].loss)


def test_the_learning_rate_waits_while_updates_are_left_out(pool: Pool) -> None:
    cell = Cell("gpt3", data=2)
    job = section(cell)
    for seen in pool.run(2, f"{TASKS}:overflow", cell, job, 1):
        assert seen["scalars"] == seen["scalars_after"] == {"applied": 1}
    config = trainer_config(job, 2).optimizer
    assert learning_rate(config, 1) < learning_rate(config, 2)


@pytest.mark.parametrize(("data", "shard", "stage"), [(2, 1, 0), (2, 2, 3)])
def test_a_step_without_targets_changes_nothing(pool: Pool, data: int, shard: int, stage: int) -> None:
    cell = Cell("gpt3", data, shard, stage)
    for result, before, after in pool.run(cell.ranks, f"{TASKS}:empty_window", cell, section(cell)):
        assert (result.loss, result.weight, result.norm, result.skipped) == (0.0, 0.0, 0.0, True)
        assert same(before, after)


@LAYOUTS
def test_an_evaluation_is_the_loss_without_dropout_and_disturbs_nothing(
    pool: Pool, data: int, shard: int, stage: int
) -> None:
    cell = Cell("gpt3", data, shard, stage, accumulation=4 // (data * shard), dropout=0.3)
    job = section(cell)
    alone = Cell("gpt3", accumulation=4, dropout=0.3)
    ((expected, expected_step, after),) = pool.run(1, f"{TASKS}:evaluate", alone, section(alone))
    for first, step, second in pool.run(cell.ranks, f"{TASKS}:evaluate", cell, job):
        assert first.loss == pytest.approx(expected.loss, rel=1e-13)
        assert first.sums == pytest.approx(expected.sums, rel=1e-13)
        assert step.loss == pytest.approx(expected_step.loss, rel=1e-13)
        assert second.loss == pytest.approx(after.loss, rel=1e-9)
        assert second.loss != first.loss


def test_an_evaluation_is_the_models_loss(pool: Pool) -> None:
    cell = Cell("gpt3", dropout=0.3)
    config = trainer_config({**cell.section()}, 1)
    model, objective = reference.parts(cell, config)
    module = initialised(model, config.seed, dtype=torch.float64).eval()
    batch = whole_step(cell, 9)
    key = Key(config.seed, 0, batch.sample_id, torch.arange(cell.length))
    with torch.no_grad():
        loss = objective(module(batch, key), batch).sum / objective.weight(batch)
    ((first, _, _),) = pool.run(1, f"{TASKS}:evaluate", cell, section(cell))
    assert first.loss == pytest.approx(loss.item(), rel=1e-13)


@LAYOUTS
def test_frozen_parameters_stay_and_have_no_state(pool: Pool, data: int, shard: int, stage: int) -> None:
    cell = Cell("gpt3", data, shard, stage)
    job = section(cell, trainable=["blocks.1.*", "final_norm.*"])
    begun = assembled([pieces for _, pieces, _ in pool.run(cell.ranks, f"{TASKS}:train", cell, job, 0)])
    ended = assembled([pieces for _, pieces, _ in pool.run(cell.ranks, f"{TASKS}:train", cell, job, 2)])
    for name, tensor in ended.items():
        if name.startswith("model/"):
            trained = name.removeprefix("model/").startswith(("blocks.1.", "final_norm."))
            assert np.array_equal(tensor, begun[name]) != trained, name
    kinds = {n.split("/")[2] for n in ended if n.startswith("optimizer/")}
    assert kinds == {n for n in (m.removeprefix("model/") for m in ended) if n.startswith(("blocks.1.", "final_norm."))}


def test_all_ways_of_bfloat16_keep_32_bits_and_stay_near_them(pool: Pool) -> None:
    alone = Cell("gpt3", accumulation=4, width=8)
    ((results, _, _),) = pool.run(1, f"{TASKS}:train", alone, section(alone, precision="FP32"), 4)
    expected = [result.loss for result in results]
    for data, shard, stage in STAGES:
        cell = Cell("gpt3", data, shard, stage, accumulation=4 // (data * shard), width=8)
        ranks = pool.run(cell.ranks, f"{TASKS}:train", cell, section(cell, precision="BF16"), 4)
        assert all(values.dtype == np.float32 for _, pieces, _ in ranks for _, (_, values) in pieces.values())
        assert [result.loss for result in ranks[0][0]] == pytest.approx(expected, rel=2e-3)


def test_bytes_on_a_rank_are_those_of_the_stage(pool: Pool) -> None:
    # Sizes that divide by 2, so that no rank has a row more: P parameters, 4 bytes each, and two moments of them.
    for shard, stage, parameters, state in ((1, 0, 4.0, 8.0), (2, 1, 4.0, 4.0), (2, 2, 2.0, 4.0), (2, 3, 2.0, 4.0)):
        cell = Cell("gpt3", 1, shard, stage, width=8, vocabulary=32, length=8, precision="FP32")
        for held, kept, total in pool.run(shard, f"{TASKS}:local_bytes", cell, section(cell, precision="FP32")):
            assert (held / total, kept / total) == (parameters, state)


@pytest.mark.parametrize("name", ["Adam", "Adagrad", "RMSprop"])
def test_an_optimizer_of_torch_by_factory_is_that_optimizer(pool: Pool, name: str) -> None:
    cell = Cell("gpt3", 1, 2, 3)
    optimizer = {"factory": f"torch.optim:{name}", "learningRate": 0.01, "learningRateSchedule": {"name": "Constant"}}
    job = {**cell.section(), "optimizer": optimizer}
    ours = assembled([pieces for _, pieces, _ in pool.run(2, f"{TASKS}:train", cell, job, 3)])
    expected = _trained_alone(cell, getattr(torch.optim, name))
    for parameter, tensor in expected.items():
        # A key's bias has a gradient of nothing but rounding, which these optimizers blow up to full steps.
        if not parameter.endswith("key.bias"):
            assert np.allclose(ours[f"model/{parameter}"], tensor, rtol=0, atol=1e-9), parameter
    steps = [values for piece, values in ours.items() if piece.startswith("optimizer/step/")]
    assert all(values == 3 for values in steps)


def _trained_alone(cell: Cell, kind: Any) -> dict[str, Any]:
    config = trainer_config({**Cell("gpt3").section(), "batch": {"sequenceLength": cell.length}}, 1)
    model, objective = reference.parts(cell, config)
    module = initialised(model, config.seed, dtype=torch.float64)
    optimizer = kind(module.parameters(), lr=0.01)
    for step in range(1, 4):
        batch = whole_step(cell, step)
        key = Key(config.seed, step, batch.sample_id, torch.arange(cell.length))
        (objective(module(batch, key), batch).sum / objective.weight(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def test_an_optimizer_that_may_need_whole_tensors_is_not_given_parts() -> None:
    job = {**Cell("gpt3", 1, 2, 1).section(), "optimizer": {"factory": "torch.optim:Adafactor"}}
    with pytest.raises(Refused, match="FACTORY-SHARD"):
        check_supported(trainer_config(job, 2))


def test_an_optimizer_with_factored_state_runs_on_whole_tensors(pool: Pool) -> None:
    cell = Cell("gpt3", 2)
    job = {**cell.section(), "optimizer": {"factory": "torch.optim:Adafactor"}}
    ranks = pool.run(2, f"{TASKS}:train", cell, job, 2)
    assert same(ranks[0][1], ranks[1][1])
    assert any(name.startswith("optimizer/row_var/") for name in ranks[0][1])
