"""Everything a run needs, built from what the process is told; the loop only calls it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from meshwright_api.trainer import Determinism
from meshwright_api.trainer_config import TrainerConfig
from meshwright_trainer.agreement import Agreement
from meshwright_trainer.batch import Batch, Window
from meshwright_trainer.cadence import Cadence
from meshwright_trainer.collectives.ledger import Ledger
from meshwright_trainer.data.build import Data, build_data
from meshwright_trainer.data.loader import Consumed
from meshwright_trainer.engines.base import StepResult
from meshwright_trainer.engines.synchronous import SynchronousEngine, build_engine
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.keeping import Keeper
from meshwright_trainer.mesh import BACKENDS, ParallelDims
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.registry import build_model
from meshwright_trainer.objectives.base import Objective
from meshwright_trainer.objectives.registry import build_objective
from meshwright_trainer.plan import Launch, Place
from meshwright_trainer.plugins import add_code
from meshwright_trainer.schedule import learning_rate
from meshwright_trainer.sinks.agent import SOCKET_VARIABLE, AgentSocket
from meshwright_trainer.sinks.base import Record, Sink
from meshwright_trainer.sinks.json_lines import JsonLines
from meshwright_trainer.sinks.prometheus import Prometheus
from meshwright_trainer.state import TrainState
from meshwright_trainer.stopping import StopRequest
from meshwright_trainer.telemetry import Meter, peak_flops, peak_memory_bytes

METRICS_PORT_VARIABLE = "MESHWRIGHT_METRICS_PORT"
"""Port of the pod's Prometheus endpoint; unset or 0: none."""
METRICS_ADDRESS_VARIABLE = "MESHWRIGHT_METRICS_ADDRESS"
"""Address that it listens on; by default all."""
_TIMEOUT = timedelta(minutes=30)
"""How long a collective may wait. Whoever supervises the job notices a lost rank long before."""


@dataclass
class Session:
    """One process's part of a run."""

    launch: Launch
    data: Data
    engine: SynchronousEngine
    dims: ParallelDims
    device: torch.device
    keeper: Keeper
    agreement: Agreement
    stop: StopRequest
    meter: Meter
    sinks: list[Sink]
    cadence: Cadence = field(init=False)
    heldout: tuple[Batch, ...] | None = field(init=False)
    _steps_run: int = 0

    def __post_init__(self) -> None:
        self.cadence = Cadence(self.config.checkpoint, self.config.evaluation)
        place = self.launch.place
        self.heldout = None
        # A job that says when to evaluate wants to hear that it cannot be.
        if self.data.heldout is not None or self.config.evaluation.every_steps is not None:
            self.heldout = self.data.evaluation(self.dims.batch_rank(place.rank), self.dims.batch_ranks)

    @property
    def config(self) -> TrainerConfig:
        """What is trained, and how."""
        return self.launch.config

    def resume(self) -> TrainState:
        """Where the run stands: weights and optimizer state are loaded if there is something to go on from."""
        return self.keeper.resume(self.engine)

    def windows(self, state: TrainState) -> Iterator[Window]:
        """The steps that are left, this rank's share of each."""
        rank = self.dims.batch_rank(self.launch.place.rank)
        loader = self.data.loader(rank, self.dims.batch_ranks, Consumed(state.step, state.samples))
        return loader.windows(state.step + 1, self.config.steps, self.config.data.workers)

    def step(self, window: Window) -> StepResult:
        """One step. The second is listened to: what it sends, every later one sends."""
        with self.meter.phase("step"):
            # On an accelerator the backward pass sends from a thread that cannot be listened to.
            if self._steps_run != 1 or self.device.type != "cpu":
                result = self.engine.run(window)
            else:
                with Ledger(self.engine.mesh) as ledger:
                    result = self.engine.run(window)
                self.meter.bytes_per_step = dict(ledger.bytes_by_axis)
        self._steps_run += 1
        self.meter.count(result.weight)
        return result

    def evaluate(self, state: TrainState) -> None:
        """Judges the model on held-out data, and records it."""
        if self.heldout is None:
            return
        with self.meter.phase("evaluation"):
            found = self.engine.evaluate(self.heldout)
        self.report("evaluation", state, loss=found.loss, weight=found.weight, **found.sums)

    def save(self, state: TrainState) -> None:
        """Begins to keep the state; training goes on meanwhile."""
        with self.meter.phase("checkpoint"):
            self.engine.drain()
            self.keeper.save(state, self.engine)

    def flush(self) -> None:
        """Returns when everything that was saved is durable."""
        self.keeper.flush()
        self.report_durable()

    def report_durable(self) -> None:
        """Records the checkpoints that were committed since the last look."""
        for step in self.keeper.committed():
            self._write(Record("checkpoint", step))

    def report(self, event: str, state: TrainState, **values: Any) -> None:
        """Hands a record to every sink."""
        self._write(Record(event, state.step, values))

    def _write(self, record: Record) -> None:
        for sink in self.sinks:
            sink.write(record)

    def figures(self, state: TrainState) -> dict[str, Any]:
        """Speed, memory and learning rate since the last call."""
        applied = int(self.engine.scalars()["applied"])
        return {
            "learning_rate": learning_rate(self.config.optimizer, max(applied - 1, 0)),
            "memory_bytes": peak_memory_bytes(self.device),
            **self.meter.read(self.config.steps - state.step),
        }

    @property
    def log_every(self) -> int:
        """Steps between two lines."""
        return self.config.logging.every_steps or 10


@contextmanager
def session(launch: Launch, stop: StopRequest, *more: Sink) -> Iterator[Session]:
    """Joins the other processes and builds the run; leaves them at the end.

    Args:
        launch: what this process is told.
        stop: whether it was asked to stop.
        more: sinks beside those that the job names.

    Raises:
        TrainerError, InvalidTrainer, DataError, CheckpointError: naming what cannot be, and what to do.
    """
    add_code(launch.config.code)
    device = device_of(launch.place)
    _set_determinism(launch.config)
    data = build_data(launch.config)
    with process_group(launch.place, device):
        model = model_of(launch.config, data.vocabulary_size)
        dims = ParallelDims.of(launch.config.parallelism, launch.place.world_size)
        engine = build_engine(launch.config, dims, model, objective_of(launch.config, model, data), device)
        keeper = Keeper.open(launch, model, data)
        sinks = [*_sinks(launch, keeper), *more]
        try:
            meter = _meter(launch, model, device)
            yield Session(launch, data, engine, dims, device, keeper, Agreement(), stop, meter, sinks)
        finally:
            for sink in sinks:
                sink.close()


def model_of(config: TrainerConfig, vocabulary_size: int) -> Model:
    """The model of a run, its parameters not drawn yet."""
    return build_model(config.model, vocabulary_size=vocabulary_size, sequence_length=config.batch.sequence_length)


def objective_of(config: TrainerConfig, model: Model, data: Data) -> Objective:
    """What a run minimises: what its job names, else the model's own."""
    return build_objective(
        config.objective, model.objective, vocabulary_size=data.vocabulary_size, mask_token=data.tokenizer.mask
    )


def device_of(place: Place) -> torch.device:
    """The device that is this process's own.

    Raises:
        InvalidLaunch: there are fewer GPUs than processes on this machine.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if place.local_rank >= torch.cuda.device_count():
        raise InvalidLaunch(
            f"LOCAL_RANK is {place.local_rank}, but this machine has {torch.cuda.device_count()} GPUs; start at most "
            "one process for each"
        )
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


@contextmanager
def process_group(place: Place, device: torch.device) -> Iterator[None]:
    """The default process group. A program that has one already, as in a notebook, keeps it."""
    if dist.is_initialized():
        yield
        return
    # Votes and small facts go over the CPU on every machine.
    backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:{BACKENDS[device.type]}"
    if place.world_size == 1:
        alone = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=alone, rank=0, world_size=1)
    else:
        dist.init_process_group(
            backend, init_method="env://", rank=place.rank, world_size=place.world_size, timeout=_TIMEOUT
        )
    yield
    # Not after a failure: peers may be in the middle of a collective that this rank will never join.
    dist.destroy_process_group()


def _set_determinism(config: TrainerConfig) -> None:
    if config.determinism is not Determinism.FAST:
        # cuBLAS reads it when it is loaded.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # It would fill memory that is about to be written anyway.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _meter(launch: Launch, model: Model, device: torch.device) -> Meter:
    flops = None
    if model.plan is not None and model.plan.flops_per_token is not None:
        flops = model.plan.flops_per_token(launch.config.batch.sequence_length)
        assert math.isfinite(flops)
    return Meter(launch.place.world_size, flops, peak_flops(device))


def metrics_of(environment: Mapping[str, str]) -> list[Sink]:
    """The Prometheus endpoint, if there is to be one. A port that is taken costs figures, not the training."""
    port = int(environment.get(METRICS_PORT_VARIABLE) or 0)
    if not port:
        return []
    try:
        return [Prometheus(port, environment.get(METRICS_ADDRESS_VARIABLE) or "0.0.0.0")]
    except OSError as error:
        print(f"meshwright-trainer: no metrics: port {port}: {error.strerror}", file=sys.stderr, flush=True)
        return []


def _sinks(launch: Launch, keeper: Keeper) -> list[Sink]:
    """Rank 0 writes for all; every pod's first process serves its own metrics."""
    sinks: list[Sink] = []
    place = launch.place
    if place.local_rank == 0:
        sinks += metrics_of(os.environ)
    if agent := os.environ.get(SOCKET_VARIABLE):
        sinks.append(AgentSocket(Path(agent), launch.config.steps))
    if place.rank == 0:
        sinks.append(JsonLines(sys.stdout))
        if folder := launch.config.logging.tensor_board:
            from meshwright_trainer.sinks.tensor_board import TensorBoard

            sinks.append(TensorBoard(Path(folder), resumed_from_step=keeper.begins_after))
    return sinks
