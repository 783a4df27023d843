"""From what the ranks have written to a checkpoint, and from checkpoints to those that are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meshwright_trainer.checkpoint.boxes import Box
from meshwright_trainer.checkpoint.errors import SaveError
from meshwright_trainer.checkpoint.manifest import MANIFEST, File, StoredBox, StoredTensor
from meshwright_trainer.checkpoint.staging import Staged
from meshwright_trainer.checkpoint.storage import Storage
from meshwright_trainer.checkpoint.tensor_file import DTYPES, write_tensors


@dataclass(frozen=True)
class Report:
    """What one rank has made durable."""

    files: Mapping[str, File]
    """Its file, or none if it had nothing to write."""
    tensors: Mapping[str, StoredTensor]
    """Tensors that it has a box of, with its own box alone."""


def report_name(rank: int) -> str:
    """Name of the file in which a rank says that it is done."""
    return f"rank-{rank:05d}.json"


def write_rank(storage: Storage, folder: str, rank: int, staged: Mapping[str, Staged]) -> None:
    """Writes a rank's boxes, and then its report."""
    file_name = f"rank-{rank:05d}.safetensors"
    keys = {name: f"{name}@{','.join(map(str, part.box.offsets))}" for name, part in staged.items()}
    filled = {keys[name]: part.tensor for name, part in staged.items() if part.box.volume}
    files = {file_name: write_tensors(storage, f"{folder}/{file_name}", filled)} if filled else {}
    tensors = {
        name: StoredTensor(
            part.shape,
            DTYPES[part.tensor.dtype],
            (StoredBox(file_name, keys[name], part.box),) if part.box.volume else (),
        )
        for name, part in staged.items()
    }
    document = {
        "files": {name: asdict(file) for name, file in files.items()},
        "tensors": {name: asdict(tensor) for name, tensor in tensors.items()},
    }
    storage.put(f"{folder}/{report_name(rank)}", json.dumps(document).encode())


def write_failure(storage: Storage, folder: str, rank: int, error: BaseException) -> None:
    """Says that this rank's part will not come, so that nobody waits for it."""
    storage.put(f"{folder}/{report_name(rank)}", json.dumps({"error": f"{error}"}).encode())


def collect(
    storage: Storage, folder: str, world_size: int, timeout_seconds: float, check: Callable[[], None]
) -> list[Report]:
    """Waits until every rank has reported.

    Args:
        storage: where.
        folder: the checkpoint's.
        world_size: number of ranks.
        timeout_seconds: how long to wait.
        check: called before each look; what it raises ends the waiting.

    Raises:
        SaveError: a rank failed, or the time is over.
    """
    deadline = time.monotonic() + timeout_seconds
    pause = 0.01
    reports: dict[int, Report] = {}
    while True:
        check()
        there = set(storage.names(folder))
        for rank in range(world_size):
            if rank not in reports and report_name(rank) in there:
                reports[rank] = _read_report(storage, folder, rank)
        missing = [rank for rank in range(world_size) if rank not in reports]
        if not missing:
            return [reports[rank] for rank in range(world_size)]
        if time.monotonic() > deadline:
            raise SaveError(
                f"{folder} was not committed: {len(missing)} of {world_size} ranks wrote nothing within "
                f"{timeout_seconds:g} s: {', '.join(map(str, missing[:10]))}"
            )
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)


def merge(reports: Sequence[Report], folder: str) -> tuple[dict[str, File], dict[str, StoredTensor]]:
    """Files and tensors of all ranks.

    Raises:
        SaveError: ranks disagree about a tensor, or their boxes do not make up the whole of it.
    """
    files: dict[str, File] = {}
    first: dict[str, StoredTensor] = {}
    boxes: dict[str, list[StoredBox]] = {}
    for rank, report in enumerate(reports):
        files.update(report.files)
        for name, part in report.tensors.items():
            known = first.setdefault(name, part)
            if (known.shape, known.dtype) != (part.shape, part.dtype):
                raise SaveError(
                    f"{folder}: {name} is {known.dtype} {known.shape}, but {part.dtype} {part.shape} on rank {rank}"
                )
            boxes.setdefault(name, []).extend(part.boxes)
    tensors = {name: StoredTensor(part.shape, part.dtype, tuple(boxes[name])) for name, part in first.items()}
    for name, tensor in tensors.items():
        written = sum(stored.box.volume for stored in tensor.boxes)
        whole = Box((0,) * len(tensor.shape), tensor.shape).volume
        if written != whole:
            raise SaveError(f"{folder}: the ranks' boxes of {name} have {written} of its {whole} elements")
    return files, tensors


def prune(storage: Storage, line: Sequence[str], keep: int, base: str, check: Callable[[], None]) -> tuple[str, ...]:
    """Removes the oldest checkpoints of this run's line.

    Args:
        storage: where.
        line: checkpoints of the line, oldest first, the one just committed last. Others are never touched.
        keep: how many of them to keep, at least the last.
        base: what this attempt resumed from; always kept.
        check: called before each removal; what it raises ends the pruning.

    Returns:
        What is left of the line.
    """
    kept = {*line[-max(1, keep) :], base}
    for name in line:
        if name not in kept:
            check()
            # First what makes it a checkpoint: whatever happens in between, no reader finds one with files missing.
            storage.delete(f"{name}/{MANIFEST}")
            storage.delete_folder(name)
    return tuple(name for name in line if name in kept)


def _read_report(storage: Storage, folder: str, rank: int) -> Report:
    document = json.loads(storage.get(f"{folder}/{report_name(rank)}") or b"{}")
    if "files" not in document:
        raise SaveError(f"{folder} was not committed: rank {rank} failed: {document.get('error', 'no report')}")
    return Report(
        {name: File(**file) for name, file in document["files"].items()},
        {name: _tensor(tensor) for name, tensor in document["tensors"].items()},
    )


def _tensor(document: Mapping[str, Any]) -> StoredTensor:
    boxes = tuple(
        StoredBox(b["file"], b["key"], Box(tuple(b["box"]["offsets"]), tuple(b["box"]["sizes"])))
        for b in document["boxes"]
    )
    return StoredTensor(tuple(document["shape"]), document["dtype"], boxes)
