"""Checkpoints as the loop sees them: where to go on from, and what to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from meshwright_trainer.checkpoint.errors import CheckpointError
from meshwright_trainer.checkpoint.fingerprint import Fingerprint
from meshwright_trainer.checkpoint.reader import Checkpoint
from meshwright_trainer.checkpoint.resume import Start, begin
from meshwright_trainer.checkpoint.storage import Storage, open_storage
from meshwright_trainer.checkpoint.writer import Writer
from meshwright_trainer.data.build import Data
from meshwright_trainer.data.tokenizer import Tokenizer
from meshwright_trainer.engines.base import Engine
from meshwright_trainer.models.base import Model
from meshwright_trainer.plan import Launch
from meshwright_trainer.state import TrainState

T = TypeVar("T")


class Keeper:
    """One rank's view of the checkpoints; without a path nothing is kept."""

    def __init__(self, launch: Launch, start: Start, writer: Writer | None) -> None:
        self._launch, self._start, self._writer = launch, start, writer
        self._told = start.step

    @classmethod
    def open(cls, launch: Launch, model: Model, data: Data) -> Keeper:
        """Raises the fence and chooses where to begin. Every rank calls this at the same time.

        Raises:
            CheckpointError: on every rank, if rank 0 cannot begin.
        """
        config = launch.config.checkpoint
        if config.path is None:
            return cls(launch, Start(launch.attempt or 1), None)
        storage = open_storage(config.path)
        fingerprint = Fingerprint(model.identity, data.tokenizer.identity, data.fingerprint)

        def prepare() -> Start:
            start = begin(storage, config, fingerprint, attempt=launch.attempt, run=launch.run)
            keep_tokenizer(storage, data.tokenizer)
            return start

        start = _from_rank_0(launch, prepare)
        writer = Writer(
            storage,
            start,
            rank=launch.place.rank,
            world_size=launch.place.world_size,
            keep=config.keep,
            fingerprint=fingerprint,
            section=launch.section,
        )
        return cls(launch, start, writer)

    @property
    def begins_after(self) -> int:
        """Step that the run goes on after; 0 at its beginning."""
        return self._start.step

    def resume(self, engine: Engine) -> TrainState:
        """Fills the engine from the checkpoint to go on from, or from the one that `model.init` names.

        Raises:
            CheckpointError: it cannot be read, or is of other tensors.
        """
        if self._start.location:
            checkpoint = Checkpoint.open(self._start.location)
            scalars = checkpoint.manifest.scalars
            checkpoint.load_into(engine.pieces())
            engine.restore(scalars)
            return TrainState(
                step=self._start.step,
                samples=self._start.samples,
                tokens=float(scalars["tokens"]),
                skipped_in_a_row=int(scalars["skipped_in_a_row"]),
            )
        init = self._launch.config.model.init
        if init is not None and init.from_ is not None:
            Checkpoint.open(init.from_).load_weights(engine.pieces(), init.load)
            engine.restore(engine.scalars())
        return TrainState()

    def save(self, state: TrainState, engine: Engine) -> None:
        """Copies the state and returns; it is written meanwhile.

        Raises:
            Fenced: a newer attempt has taken over.
            CheckpointError: the save before failed.
        """
        if self._writer is not None:
            scalars = {**engine.scalars(), "tokens": state.tokens, "skipped_in_a_row": state.skipped_in_a_row}
            self._writer.save(state.step, state.samples, engine.pieces(), scalars)

    def committed(self) -> tuple[int, ...]:
        """Steps whose checkpoints were committed since the last call; on rank 0 alone.

        Raises:
            CheckpointError: a save has failed.
        """
        if self._writer is None:
            return ()
        self._writer.poll()
        durable = self._writer.durable
        if durable is None or durable.step <= self._told:
            return ()
        self._told = durable.step
        return (durable.step,)

    def flush(self) -> None:
        """Returns when the last save is durable, on every rank.

        Raises:
            CheckpointError: it has failed.
        """
        if self._writer is not None:
            self._writer.wait()
            # Nobody leaves before rank 0 has committed: its supervisor would stop it as the last of a finished pod.
            dist.barrier()


def keep_tokenizer(storage: Storage, tokenizer: Tokenizer) -> None:
    """Puts the tokenizer's file beside the checkpoints, so that they can be read when the original is gone.

    Raises:
        CheckpointError: it cannot be written.
    """
    name = tokenizer_name(tokenizer.identity)
    if tokenizer.file is not None and storage.get(name) is None:
        storage.put(name, tokenizer.file)


def kept_tokenizer(checkpoint: Checkpoint) -> bytes | None:
    """The file of the tokenizer that a checkpoint was trained with; None if it has none, or it was not kept."""
    storage = open_storage(checkpoint.location.rpartition("/")[0])
    return storage.get(tokenizer_name(checkpoint.manifest.fingerprint["tokenizer"]))


def tokenizer_name(identity: str) -> str:
    """Name of a tokenizer's file beside the checkpoints."""
    return f"tokenizer.{identity[:16]}.json"


def _from_rank_0(launch: Launch, make: Callable[[], T]) -> T:
    """What rank 0 makes, on every rank; its failure too, so that nobody waits for a rank that has left."""
    outcome: list[T | CheckpointError | None] = [None]
    if launch.place.rank == 0:
        try:
            outcome[0] = make()
        except CheckpointError as error:
            outcome[0] = error
    dist.broadcast_object_list(outcome, src=0)
    made = outcome[0]
    if isinstance(made, CheckpointError):
        raise made
    assert made is not None
    return made
