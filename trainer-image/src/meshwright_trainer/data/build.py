"""`spec.trainer.data` to datasets, their order and their fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshwright_api.trainer import DataFormat
from meshwright_api.trainer_config import DataConfig, TrainerConfig
from meshwright_trainer.batch import Batch
from meshwright_trainer.data.dataset import Concatenated, Dataset
from meshwright_trainer.data.documents import Document, form_of, read_documents, split
from meshwright_trainer.data.errors import DatasetError, SourceError
from meshwright_trainer.data.loader import Consumed, Loader, evaluation_batches
from meshwright_trainer.data.order import Order
from meshwright_trainer.data.packing import pack
from meshwright_trainer.data.tokenizer import Tokenizer, load_tokenizer
from meshwright_trainer.plugins import call_factory

FACTORY: Final = "spec.trainer.data.factory"
"""The field that names a dataset of one's own."""


@dataclass(frozen=True)
class Data:
    """Everything that a run needs to know of its data."""

    config: TrainerConfig
    """What it was made from."""
    train: tuple[Dataset, ...]
    """Datasets to train on, by number of the source."""
    heldout: Dataset | None
    """What to judge on; None: the data are too few documents to hold some out, and nothing else was given."""
    order: Order
    """Which sample comes when."""
    tokenizer: Tokenizer
    """How text becomes tokens."""
    vocabulary_size: int
    """Token ids are below it."""
    fingerprint: Mapping[str, Any]
    """JSON values that say which data these are; a run is not resumed on others."""

    def loader(self, batch_rank: int, batch_ranks: int, origin: Consumed | None = None) -> Loader:
        """The view of one rank; `origin` is where a resumed run goes on."""
        return Loader(self.train, self.order, self.config.batch, batch_rank, batch_ranks, origin or Consumed())

    def evaluation(self, batch_rank: int, batch_ranks: int) -> tuple[Batch, ...]:
        """One rank's micro-batches of an evaluation.

        Raises:
            SourceError: there is nothing to judge on.
        """
        if self.heldout is None:
            raise SourceError(
                "spec.trainer.evaluation.source: the training data are too few documents to hold some out; give a "
                "source to evaluate on"
                if self.config.data.factory is None
                else f"{FACTORY}: there is nothing to evaluate on; give the dataset an attribute `heldout`"
            )
        batches = self.config.evaluation.batches
        return evaluation_batches(self.heldout, self.config.batch.micro, batches, batch_rank, batch_ranks)


def build_data(config: TrainerConfig) -> Data:
    """Reads and tokenises what a job trains on.

    Raises:
        DataError: a source, the tokenizer or what the dataset's factory returns cannot be used; the message names the
            field.
        InvalidTrainer: the factory cannot be found, or not be called with its arguments.
    """
    tokenizer = load_tokenizer(config.data.tokenizer)
    if config.data.factory is not None:
        return _from_factory(config, config.data.factory, tokenizer)
    if not config.data.sources:
        raise SourceError("spec.trainer.data: give a source (`builtin:stdlib` needs no download), or a factory")
    length = config.batch.sequence_length
    parts = [_documents(config, source.source, source.format) for source in config.data.sources]
    train = tuple(pack(documents, tokenizer, length) for documents, _ in parts)
    if config.evaluation.source is not None:
        judged = [read_documents(config.evaluation.source, form_of(config.evaluation.source))]
    else:
        judged = [documents for _, documents in parts if documents]
    heldout = tuple(pack(documents, tokenizer, length) for documents in judged)
    order = Order(config.seed, [len(dataset) for dataset in train], [s.weight for s in config.data.sources])
    return Data(
        config=config,
        train=train,
        heldout=Concatenated(heldout) if heldout else None,
        order=order,
        tokenizer=tokenizer,
        vocabulary_size=tokenizer.vocabulary_size,
        fingerprint={
            "seed": config.seed,
            "sequenceLength": length,
            "sources": [dataset.fingerprint for dataset in train],
            "parts": list(order.parts),
        },
    )


def _documents(
    config: TrainerConfig, source: str, form: DataFormat
) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """Documents of a source to train on and to hold out."""
    documents = read_documents(source, form)
    return split(documents) if config.evaluation.source is None else (documents, ())


def _from_factory(config: TrainerConfig, factory: str, tokenizer: Tokenizer) -> Data:
    dataset = _made(config.data, factory)
    return Data(
        config=config,
        train=(dataset,),
        heldout=getattr(dataset, "heldout", None),
        order=Order(config.seed, [len(dataset)]),
        tokenizer=tokenizer,
        vocabulary_size=getattr(dataset, "vocabulary_size", tokenizer.vocabulary_size),
        fingerprint={
            "seed": config.seed,
            "factory": factory,
            "arguments": dict(config.data.arguments),
            "length": len(dataset),
            "dataset": getattr(dataset, "fingerprint", None),
        },
    )


def _made(config: DataConfig, factory: str) -> Dataset:
    """Calls the user's function. What it raises itself passes through: the traceback points into the user's code."""
    dataset: Dataset = call_factory(factory, FACTORY, config.arguments)
    if isinstance(dataset, str | bytes) or not all(hasattr(dataset, name) for name in ("__len__", "__getitem__")):
        raise DatasetError(
            f"{FACTORY}: {factory} returned a {type(dataset).__name__}, not a dataset with __len__ and __getitem__"
        )
    if len(dataset) == 0:
        raise DatasetError(f"{FACTORY}: {factory} returned a dataset without samples")
    return dataset
