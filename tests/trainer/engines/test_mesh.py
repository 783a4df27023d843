"""Ranks and their places, against torch's own device mesh."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.mesh import AXES, ParallelDims
from tests.trainer.parity.cells import Cell
from tests.trainer.pool import Pool


def test_ranks_are_numbered_with_the_last_axis_fastest() -> None:
    dims = ParallelDims(2, 3, 2, 1, 4)
    grid = np.arange(dims.world_size).reshape(dims.sizes)
    for place in itertools.product(*map(range, dims.sizes)):
        assert tuple(dims.coordinate(int(grid[place]), axis) for axis in AXES) == place


def test_the_batch_axis_is_data_times_shard() -> None:
    dims = ParallelDims(data=3, shard=4)
    assert dims.batch_ranks == 12
    assert [dims.batch_rank(rank) for rank in range(12)] == list(range(12))


@pytest.mark.parametrize(("data", "shard"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_groups_are_in_the_order_of_places(pool: Pool, data: int, shard: int) -> None:
    cell = Cell("gpt3", data, shard)
    for rank, (data_rank, shard_rank, batch_rank, batch) in enumerate(
        pool.run(cell.ranks, "tests.trainer.engines.tasks:mesh_places", cell)
    ):
        assert (data_rank, shard_rank, batch_rank) == (rank // shard, rank % shard, rank)
        assert batch == list(range(cell.ranks))


def test_it_says_what_it_is() -> None:
    assert str(ParallelDims(data=2, shard=4, shard_stage=3)) == "data 2 x shard 4, shard stage 3"
    assert str(ParallelDims()) == "one rank"


def test_a_mesh_of_another_size_is_refused() -> None:
    config = trainer_config(Cell("gpt3", 2).section(), 2).parallelism
    with pytest.raises(InvalidLaunch, match="data 2 needs 2 processes, but there are 3"):
        ParallelDims.of(config, 3)


def test_t90_a_device_that_the_process_group_cannot_serve_is_refused(pool: Pool) -> None:
    for says in pool.run(2, "tests.trainer.engines.tasks:mesh_on", Cell("gpt3", 1, 2, 3), "cuda"):
        assert says.startswith("tensors on cuda need the backend nccl, but the process group has ")
        assert "cpu:gloo" in says
    for says in pool.run(1, "tests.trainer.engines.tasks:mesh_on", Cell("gpt3"), "mps"):
        assert says == "the mesh cannot be built on mps; use one of cpu, cuda"
