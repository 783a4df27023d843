"""How an attempt begins: the fence first, then the choice of what to go on from.

Done by rank 0 alone; the others are told the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from meshwright_api.trainer import Resume
from meshwright_api.trainer_config import CheckpointConfig
from meshwright_trainer.checkpoint.errors import CheckpointError
from meshwright_trainer.checkpoint.fence import (
    Fence,
    check_fence,
    clear_fences,
    commits,
    eligible,
    read_fence,
    uncommitted,
    write_fence,
)
from meshwright_trainer.checkpoint.fingerprint import Fingerprint, check_fingerprint
from meshwright_trainer.checkpoint.reader import Checkpoint
from meshwright_trainer.checkpoint.storage import Storage


@dataclass(frozen=True, slots=True)
class Start:
    """How an attempt begins. Plain values: rank 0 sends it to the others."""

    attempt: int
    """Number that the process generation's checkpoints carry."""
    run: str = ""
    """Identity of the job; empty outside Kubernetes."""
    origin: str = Resume.AUTO.value
    """How the run began; its restarts know their own checkpoints by it."""
    base: str = ""
    """Checkpoint to go on from: a folder's name in the storage, or a path elsewhere. Empty: from step 0."""
    location: str = ""
    """The same for `Checkpoint.open`."""
    step: int = 0
    """Steps that were done."""
    samples: int = 0
    """Samples that they drew."""
    history: tuple[str, ...] = ()
    """Checkpoints of this line in the storage, oldest first."""


def begin(
    storage: Storage, config: CheckpointConfig, fingerprint: Fingerprint, *, attempt: int | None = None, run: str = ""
) -> Start:
    """Raises the fence, chooses what to go on from, and clears away what older attempts never committed.

    `resume: Never` and `From` say where a run begins. Its restarts (another attempt with the same `run` and the same
    policy) go on from its own checkpoints.

    Args:
        storage: shared by all ranks.
        config: the policy.
        fingerprint: of model, tokenizer and data.
        attempt: number of the job's process generation; None: one above the last that began here.
        run: identity of the job; empty outside Kubernetes.

    Raises:
        Fenced: a newer attempt has begun already.
        OtherRun: the checkpoint is of another model, tokenizer or data.
        CheckpointError: the checkpoint to go on from is missing or damaged.
    """
    before = read_fence(storage)
    fence = raised(before, attempt, run)
    check_fence(storage, fence.attempt)
    # Raised before the choice: from here on no older attempt commits or prunes, so the base that is chosen stays.
    write_fence(storage, fence)
    counted = (Checkpoint(storage, str(name)) for name in reversed(eligible(commits(storage), before)))
    chosen, origin = choose(config, counted, run, _location(storage, fence.base))
    base = ""
    if chosen is not None:
        check_fingerprint(chosen.manifest.fingerprint, fingerprint, chosen.location)
        own = Path(chosen.location).resolve().parent == Path(storage.url).resolve()
        base = chosen.folder if own else chosen.location
    write_fence(storage, replace(fence, base=base, choosing=None))
    check_fence(storage, fence.attempt)
    clear_fences(storage, fence.attempt)
    for name in uncommitted(storage):
        if name.attempt <= fence.attempt:
            storage.delete_folder(str(name))
    return _start(storage, fence.attempt, run, origin, base, chosen)


def raised(before: Fence | None, attempt: int | None, run: str) -> Fence:
    """The fence of a new attempt while it chooses what to go on from.

    A job that is made again counts its attempts from 1 again. What it writes is numbered on from the fence that it
    finds, so that the numbers in one place never fall.
    """
    if before is None:
        return Fence(attempt or 1, choosing=0, run=run)
    base = before.before if before.run == run else before.attempt
    number = before.attempt + 1 if attempt is None else base + attempt
    return Fence(number, before.base, choosing=before.floor, run=run, before=base)


def choose(
    config: CheckpointConfig, counted: Iterable[Checkpoint], run: str, base: str = ""
) -> tuple[Checkpoint | None, str]:
    """What to go on from, and the origin of the line that goes on.

    Args:
        config: the policy.
        counted: the checkpoints here that count, newest first.
        run: identity of the job.
        base: where what the last attempt went on from is; empty: nowhere.

    Raises:
        CheckpointError: the checkpoint that is named is missing or damaged.
    """
    if config.resume is Resume.AUTO:
        # If nothing here counts, the last attempt went on from elsewhere and committed nothing. (Or its base was
        # removed from outside: then this says so, and steps are not lost in silence.)
        newest = next(iter(counted), None) or (Checkpoint.open(base) if base else None)
        return newest, newest.manifest.origin if newest else config.resume.value
    origin = config.resume.value if config.resume is Resume.NEVER else f"From {config.resume_from}"
    newest = next((c for c in counted if (c.manifest.run, c.manifest.origin) == (run, origin)), None) if run else None
    if newest is not None or config.resume is Resume.NEVER:
        return newest, origin
    if not config.resume_from:
        raise CheckpointError("spec.trainer.checkpoint.resumeFrom: resume: From needs the path of a checkpoint")
    return Checkpoint.open(config.resume_from), origin


def _location(storage: Storage, base: str) -> str:
    return base if "/" in base or not base else f"{storage.url}/{base}"


def _start(storage: Storage, attempt: int, run: str, origin: str, base: str, chosen: Checkpoint | None) -> Start:
    if chosen is None:
        return Start(attempt, run, origin)
    manifest = chosen.manifest
    present = {str(name) for name in commits(storage)}
    line = (*manifest.history, chosen.folder) if base == chosen.folder else ()
    return Start(
        attempt=attempt,
        run=run,
        origin=origin,
        base=base,
        location=chosen.location,
        step=manifest.step,
        samples=manifest.samples,
        history=tuple(folder for folder in line if folder in present),
    )
