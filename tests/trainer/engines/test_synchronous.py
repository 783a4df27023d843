"""The engine's behaviour beside its numbers, on small meshes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.models.initialise import initialised
from meshwright_trainer.parallel.refusals import ELEMENTWISE, Refused, check_supported
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


def test_t30_all_ways_of_bfloat16_keep_32_bits_and_stay_near_them(pool: Pool) -> None:
    alone = Cell("gpt3", accumulation=4, width=8)
    ((results, _, _),) = pool.run(1, f"{TASKS}:train", alone, section(alone, precision="FP32"), 4)
    expected, norms = [result.loss for result in results], [result.norm for result in results]
    for data, shard, stage in STAGES:
        cell = Cell("gpt3", data, shard, stage, accumulation=4 // (data * shard), width=8)
        ranks = pool.run(cell.ranks, f"{TASKS}:train", cell, section(cell, precision="BF16"), 4)
        assert all(values.dtype == np.float32 for _, pieces, _ in ranks for _, (_, values) in pieces.values())
        assert [result.loss for result in ranks[0][0]] == pytest.approx(expected, rel=2e-3)
        assert [result.norm for result in ranks[0][0]] == pytest.approx(norms, rel=2e-2)


def test_bytes_on_a_rank_are_those_of_the_stage(pool: Pool) -> None:
    # Sizes that divide by 2, so that no rank has a row more: P parameters, 4 bytes each, and two moments of them.
    for shard, stage, parameters, state in ((1, 0, 4.0, 8.0), (2, 1, 4.0, 4.0), (2, 2, 2.0, 4.0), (2, 3, 2.0, 4.0)):
        cell = Cell("gpt3", 1, shard, stage, width=8, vocabulary=32, length=8, precision="FP32")
        for held, kept, total in pool.run(shard, f"{TASKS}:local_bytes", cell, section(cell, precision="FP32")):
            assert (held / total, kept / total) == (parameters, state)


# No element was further off than 1e-13 (RMSprop, which divides by the root of almost nothing); a wrong beginning is off
# by parts of the learning rate, 0.01.
@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        *((factory, {}) for factory in sorted(ELEMENTWISE - {"torch.optim:AdamW"})),
        # By default it decays what the model's plan spares.
        ("torch.optim:AdamW", {"weight_decay": 0.0}),
        ("torch.optim:SGD", {"momentum": 0.9, "dampening": 0.5}),
        ("torch.optim:Adagrad", {"initial_accumulator_value": 0.1}),
    ],
)
def test_t61_an_optimizer_of_torch_by_factory_is_that_optimizer(
    pool: Pool, factory: str, arguments: dict[str, float]
) -> None:
    cell = Cell("gpt3", 1, 2, 3)
    ranks = pool.run(2, f"{TASKS}:train", cell, job_with(cell, factory, arguments), 3)
    ours = assembled([pieces for _, pieces, _ in ranks])
    kind = getattr(torch.optim, factory.partition(":")[2])
    expected, state = _trained_alone(cell, lambda parameters: kind(parameters, lr=0.01, **arguments))
    for parameter, tensor in expected.items():
        # A key's bias has a gradient of nothing but rounding, whose sign alone many of these make full steps of.
        if not parameter.endswith("key.bias"):
            assert np.allclose(ours[f"model/{parameter}"], tensor, rtol=0, atol=1e-11), parameter
            for name, value in state[parameter].items():
                assert np.allclose(ours[f"optimizer/{name}/{parameter}"], value, rtol=1e-9, atol=1e-11), parameter
    assert {name.split("/")[1] for name in ours if name.startswith("optimizer/")} == set(state["final_norm.weight"])


@pytest.mark.parametrize("factory", ["torch.optim:Adam", "torch.optim:NAdam", "torch.optim:Rprop"])
def test_t61_going_on_with_an_optimizer_by_factory_has_the_bits_of_never_having_stopped(
    pool: Pool, factory: str
) -> None:
    cell = Cell("gpt3", 1, 2, 3)
    for straight, resumed in pool.run(2, f"{TASKS}:resume", cell, job_with(cell, factory, {}), 4):
        assert same(straight, resumed)


def job_with(cell: Cell, factory: str, arguments: dict[str, float]) -> dict[str, Any]:
    schedule = {"name": "Constant", "warmupSteps": 0}
    optimizer = {"factory": factory, "arguments": arguments, "learningRate": 0.01, "learningRateSchedule": schedule}
    return {**cell.section(), "optimizer": optimizer}


def _trained_alone(cell: Cell, make: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Parameters, and the state of each by kind."""
    config = trainer_config({**Cell("gpt3").section(), "batch": {"sequenceLength": cell.length}}, 1)
    model, objective = reference.parts(cell, config)
    module = initialised(model, config.seed, dtype=torch.float64)
    optimizer = make(module.parameters())
    for step in range(1, 4):
        batch = whole_step(cell, step)
        key = Key(config.seed, step, batch.sample_id, torch.arange(cell.length))
        (objective(module(batch, key), batch).sum / objective.weight(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    named = dict(module.named_parameters())
    kept = {name: {k: v.numpy() for k, v in optimizer.state[p].items()} for name, p in named.items()}
    return {name: p.detach().numpy() for name, p in named.items()}, kept


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
