"""What a dataset is, and how samples of it become micro-batches.

Shapes: B samples of a micro-batch, T positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.data.errors import DatasetError

_FIELDS: Final = ("tokens", "labels", "weights", "position_id", "document_id")


class Dataset(Protocol):
    """Samples by index. Anything with these two methods can be trained on.

    A sample has `tokens` and `labels`, and may have `weights` (default: 1 for every label), `position_id` (default:
    0, 1, ... for tokens of one dim) and `document_id` (default: 0); what else is in it goes to `Batch.extra`. All
    samples have the same shapes. `dataset[i]` must be a function of i alone: samples are read ahead, from several
    threads if `data.workers` says so, and again after a resume.

    Optional attributes: `vocabulary_size` (int), `fingerprint` (str: which data this is; another one is refused when a
    run resumes) and `heldout` (a dataset to judge on).
    """

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def __getitem__(self, index: int, /) -> Mapping[str, Tensor]:
        """One sample, without the batch dim."""
        ...


@dataclass(frozen=True)
class Concatenated:
    """Several datasets, one after the other."""

    datasets: tuple[Dataset, ...]
    """At least one."""

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)

    def __getitem__(self, index: int, /) -> Mapping[str, Tensor]:
        for dataset in self.datasets:
            if index < len(dataset):
                return dataset[index]
            index -= len(dataset)
        raise IndexError(f"there is no such sample among {len(self)}")


def collate(samples: Sequence[Mapping[str, Tensor]], sample_ids: Sequence[int]) -> Batch:
    """Stacks samples to a micro-batch; a sample with id -1 only fills it up, so its weights become 0.

    Raises:
        DatasetError: a sample lacks tokens or labels, or has another shape than the first.
    """
    whole = [_completed(sample) for sample in samples]
    for position, sample in enumerate(whole):
        if problem := _difference(whole[0], sample):
            raise DatasetError(f"samples {sample_ids[0]} and {sample_ids[position]} of the global order: {problem}")
    stacked = {name: torch.stack([sample[name] for sample in whole]) for name in whole[0]}
    sample_id_B = torch.tensor(sample_ids, dtype=torch.int64)
    fills = sample_id_B < 0
    if fills.any():
        stacked["weights"][fills] = 0.0
        stacked["document_id"][fills] = -1
    return Batch(
        **{name: stacked.pop(name) for name in _FIELDS},
        sample_id=sample_id_B,
        extra=stacked,
    )


def _completed(sample: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if not isinstance(sample, Mapping):
        raise DatasetError(
            f"a sample is a {type(sample).__name__}; dataset[i] must be a mapping with the tensors tokens and labels"
        )
    missing = [name for name in ("tokens", "labels") if not isinstance(sample.get(name), Tensor)]
    if missing:
        raise DatasetError(
            f"a sample has no tensor {' and no tensor '.join(missing)}; it has {', '.join(sorted(sample)) or 'nothing'}"
        )
    tokens, labels = sample["tokens"], sample["labels"]
    positions = len(tokens) if tokens.dim() == 1 else 1
    defaults = {
        "weights": torch.ones(labels.shape, dtype=torch.float32),
        "position_id": torch.arange(positions),
        "document_id": torch.zeros(positions, dtype=torch.int64),
    }
    return {**sample, **{name: value for name, value in defaults.items() if name not in sample}}


def _difference(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str | None:
    """What keeps two samples from being stacked."""
    if first.keys() != other.keys():
        return f"only one of them has {', '.join(sorted(first.keys() ^ other.keys()))}"
    for name, tensor in first.items():
        if (tensor.shape, tensor.dtype) != (other[name].shape, other[name].dtype):
            return (
                f"{name} is {tuple(tensor.shape)} {tensor.dtype} in the first, "
                f"{tuple(other[name].shape)} {other[name].dtype} in the second; every sample needs the same"
            )
    return None
