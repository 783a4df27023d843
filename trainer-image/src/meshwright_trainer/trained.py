"""A kept model, ready to be judged, sampled or exported in one process on the CPU, whatever mesh trained it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from meshwright_api.trainer_config import TrainerConfig, trainer_config
from meshwright_trainer.batch import Batch
from meshwright_trainer.checkpoint.reader import WEIGHTS, Checkpoint
from meshwright_trainer.data.build import Data, build_data
from meshwright_trainer.data.tokenizer import BPE, Tokenizer, load_tokenizer
from meshwright_trainer.engines.base import Engine
from meshwright_trainer.engines.synchronous import build_engine
from meshwright_trainer.keeping import kept_tokenizer
from meshwright_trainer.mesh import ParallelDims
from meshwright_trainer.models.base import Model
from meshwright_trainer.plugins import add_code
from meshwright_trainer.session import model_of, objective_of


@dataclass(frozen=True)
class Trained:
    """A checkpoint and what its job said."""

    config: TrainerConfig
    """The job's, for one process."""
    model: Model
    """Its model, without values."""
    tokenizer: Tokenizer
    """Its tokenizer."""
    vocabulary_size: int
    """Ids of its data are below it."""
    _checkpoint: Checkpoint
    _data: Data | None
    """Where the vocabulary's size is the dataset's own, so that it was built already."""

    @property
    def checkpoint(self) -> str:
        """Where it is."""
        return self._checkpoint.location

    @property
    def step(self) -> int:
        """Steps that were done."""
        return self._checkpoint.manifest.step

    @property
    def continues_text(self) -> bool:
        """Whether it predicts the next token of a text."""
        objective = self.config.objective
        name = None if objective.factory else objective.name or self.model.objective
        return name == "NextToken" and self.vocabulary_size >= self.tokenizer.vocabulary_size

    def weights(self) -> dict[str, Tensor]:
        """Every parameter, whole, by logical name."""
        names = (name for name in self._checkpoint.manifest.tensors if name.startswith(WEIGHTS))
        return {name.removeprefix(WEIGHTS): self._checkpoint.tensor(name) for name in names}

    def module(self) -> Any:
        """The model with its weights, in evaluation mode."""
        module = self.model.module
        if any(parameter.is_meta for parameter in module.parameters()):
            module.to_empty(device="cpu")
        module.load_state_dict(self.weights(), strict=False)
        return module.eval()

    def engine(self) -> tuple[Engine, tuple[Batch, ...]]:
        """The model with its weights in an engine, and what to judge it on. Needs a process group of one.

        Raises:
            DataError: the data cannot be read, or there is nothing to judge on.
        """
        data = self._data or build_data(self.config)
        objective = objective_of(self.config, self.model, data)
        engine = build_engine(self.config, ParallelDims(), self.model, objective, torch.device("cpu"))
        self._checkpoint.load_weights(engine.pieces(), ())
        engine.restore(engine.scalars())
        return engine, data.evaluation(0, 1)


def open_trained(location: str, *, source: str | None = None, batches: int | None = None) -> Trained:
    """Opens a checkpoint, or the newest that counts in a folder of them.

    Args:
        location: path of either.
        source: what to judge on in place of what the job says.
        batches: micro-batches to judge on in place of what the job says.

    Raises:
        CheckpointError: there is none, or it is damaged.
        InvalidTrainer: its job cannot be read by this version.
    """
    checkpoint = Checkpoint.open(location)
    config = trainer_config(_for_one_process(checkpoint.manifest.section, source, batches), 1)
    add_code(config.code)
    kept = kept_tokenizer(checkpoint)
    tokenizer = load_tokenizer(config.data.tokenizer) if kept is None else BPE(kept, name="the checkpoint's tokenizer")
    data = build_data(config) if config.data.factory else None
    vocabulary = (data or tokenizer).vocabulary_size
    return Trained(config, model_of(config, vocabulary), tokenizer, vocabulary, checkpoint, data)


def _for_one_process(section: Mapping[str, Any], source: str | None, batches: int | None) -> dict[str, Any]:
    own = copy.deepcopy(dict(section))
    own["parallelism"] = {}
    own["batch"] = {**own["batch"], "global": own["batch"]["micro"]}
    own["determinism"] = "Strict"
    own["evaluation"] = {
        **(own.get("evaluation") or {}),
        **({"source": source} if source else {}),
        **({"batches": batches} if batches else {}),
    }
    return own
