"""Step time against torch by hand, state bytes against formulas, what canonical order costs.

Two ranks take turns: a step of ours, a step of the other, on the same samples, so that whatever else the machine does
hits both. Prints one JSON line per figure: the median of the ratios and their quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from benchmarks.baselines.ddp import ddp
from benchmarks.baselines.fsdp2 import fsdp2
from benchmarks.figures import figure
from meshwright_api.trainer import Model as ModelSpec
from meshwright_api.trainer import Objective as ObjectiveSpec
from meshwright_api.trainer_config import TrainerConfig, trainer_config
from meshwright_trainer.batch import Batch, Window
from meshwright_trainer.engines.synchronous import SynchronousEngine, build_engine
from meshwright_trainer.mesh import ParallelDims
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.initialise import initialised
from meshwright_trainer.models.registry import build_model
from meshwright_trainer.objectives.registry import build_objective

RANKS, VOCABULARY, LENGTH, MICRO, ACCUMULATION = 2, 256, 128, 2, 2
SIZES = {"name": "gpt3", "layers": 4, "hiddenSize": 256, "heads": 4}
Step = Callable[[Sequence[Batch]], float]


def model() -> Model:
    """The model of all comparisons, on the meta device."""
    return build_model(ModelSpec.model_validate(SIZES), vocabulary_size=VOCABULARY, sequence_length=LENGTH)


def config(**changes: Any) -> TrainerConfig:
    """The job of all comparisons."""
    job = {
        "steps": 1000,
        "model": SIZES,
        "batch": {"global": MICRO * ACCUMULATION * RANKS, "micro": MICRO, "sequenceLength": LENGTH},
        "optimizer": {"learningRate": 1e-4, "maxGradNorm": 1.0, "learningRateSchedule": {"name": "Constant"}},
    }
    return trainer_config({**job, **changes}, RANKS)


def engine_of(given: TrainerConfig) -> SynchronousEngine:
    """Our engine."""
    objective = build_objective(ObjectiveSpec(), "NextToken", vocabulary_size=VOCABULARY)
    return build_engine(given, ParallelDims.of(given.parallelism, RANKS), model(), objective, torch.device("cpu"))


def ours(given: TrainerConfig) -> Step:
    """A step of our engine."""
    engine = engine_of(given)
    return lambda batches: engine.run(Window(1, tuple(batches))).loss


def micro_batches(seed: int) -> list[Batch]:
    """This rank's micro-batches of a step."""
    chance = torch.Generator().manual_seed(seed * RANKS + dist.get_rank())
    shape = (MICRO, LENGTH)
    return [
        Batch(
            torch.randint(0, VOCABULARY, shape, generator=chance),
            torch.randint(0, VOCABULARY, shape, generator=chance),
            torch.ones(shape),
            torch.arange(MICRO),
            torch.arange(LENGTH).expand(shape),
            torch.zeros(shape, dtype=torch.int64),
        )
        for _ in range(ACCUMULATION)
    ]


def compared(name: str, mine: Step, other: Step, pairs: int, goal: float | None = None) -> str:
    """Ratios of step times, ours to the other's, by alternating pairs; losses must agree."""
    ratios, seconds = [], []
    for pair in range(pairs + 2):
        batches = micro_batches(pair)
        order = (mine, other) if pair % 2 == 0 else (other, mine)
        timed = {step: _timed(step, batches) for step in order}
        (my_seconds, my_loss), (other_seconds, other_loss) = timed[mine], timed[other]
        if abs(my_loss - other_loss) > 1e-3 * abs(other_loss):
            raise ValueError(f"{name}: losses are {my_loss} and {other_loss}: not the same training")
        if pair >= 2:  # the first steps allocate
            ratios.append(my_seconds / other_seconds)
            seconds.append(my_seconds)
    quartiles = statistics.quantiles(ratios, n=4)
    return figure(
        name,
        quartiles[1],
        goal=goal,
        quartiles=[round(q, 4) for q in quartiles],
        step_seconds=round(statistics.median(seconds), 4),
        pairs=pairs,
        ranks=RANKS,
    )


def state_bytes() -> str:
    """Bytes of weights and AdamW's state on a rank with stage 3, to P x 12 / N with P parameters of 32 bits."""
    engine = engine_of(config(parallelism={"shard": RANKS, "shardStage": 3}))
    held = sum(p.tensor.numel() * p.tensor.element_size() for p in engine.pieces().values())
    expected = sum(p.numel() for p in model().module.parameters()) * 12 / RANKS
    return figure("state_bytes_vs_ledger", held / expected, goal=1.0, bytes=held, ranks=RANKS)


def _timed(step: Step, batches: Sequence[Batch]) -> tuple[float, float]:
    dist.barrier()
    begun = time.perf_counter()
    loss = step(batches)
    dist.barrier()
    return time.perf_counter() - begun, loss


def measure(rank: int, port: int, pairs: int) -> None:
    """What each rank does; the first one prints."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    stage_3 = {"shard": RANKS, "shardStage": 3}
    figures: list[Callable[[], str]] = [
        lambda: compared("step_time_vs_ddp", ours(config()), ddp(initialised(model(), 0)), pairs, 1.03),
        lambda: compared(
            "step_time_vs_fsdp2", ours(config(parallelism=stage_3)), fsdp2(initialised(model(), 0), RANKS), pairs, 1.03
        ),
        lambda: compared("canonical_cost", ours(config(determinism="Canonical")), ours(config()), pairs),
        state_bytes,
    ]
    for measured in figures:
        line = measured()
        if rank == 0:
            print(line, flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Runs all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of steps for each figure")
    parser.add_argument("--port", type=int, default=29761, help="TCP port of the rendezvous")
    given = parser.parse_args()
    multiprocessing.spawn(measure, args=(given.port, given.pairs), nprocs=RANKS)  # type: ignore[attr-defined, no-untyped-call]


if __name__ == "__main__":
    main()
