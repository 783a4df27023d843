"""One cell for each guard that a mutant takes away: cheap, and named for what it guards."""

from __future__ import annotations

from tests.trainer.parity.cells import Cell
from tests.trainer.parity.compare import compare, oracle
from tests.trainer.pool import Pool


def check(pool: Pool, cell: Cell) -> None:
    report = compare(pool, cell)
    assert not report.problems(), str(report)


def test_gradients_are_summed_over_data_once(pool: Pool) -> None:
    check(pool, Cell("gpt3", data=2, accumulation=2, layers=1))


def test_hybrid_update_sharding_sums_over_both_axes(pool: Pool) -> None:
    check(pool, Cell("gpt3", data=2, shard=2, stage=1, layers=1))


def test_hybrid_full_sharding_sums_all_micro_batches_over_both_axes(pool: Pool) -> None:
    check(pool, Cell("gpt3", data=2, shard=2, stage=2, accumulation=2, layers=1))


def test_full_sharding_keeps_the_gradients_of_all_micro_batches(pool: Pool) -> None:
    check(pool, Cell("gpt3", data=1, shard=2, stage=2, accumulation=2, layers=1))


def test_clipping_sees_the_norm_of_all_shards_once(pool: Pool) -> None:
    cell = Cell("gpt3", data=1, shard=2, stage=3, clip=True, layers=1)
    assert min(oracle(Cell("gpt3", shard=2, clip=True, layers=1)).norms) > 0.05
    check(pool, cell)


def test_every_target_counts_the_same_however_uneven_they_lie(pool: Pool) -> None:
    check(pool, Cell("gpt3", data=2, accumulation=2, oddity="masked", layers=1))


def test_every_step_has_masks_of_its_own_and_no_rank_has(pool: Pool) -> None:
    check(pool, Cell("gpt3", data=2, dropout=0.5, layers=1))
