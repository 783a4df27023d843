"""The exceptions of the checkpoint package.

CheckpointError
  Fenced             a newer attempt writes here now; this process has to end, with exit code 76
  StorageError       a place that cannot be written or read
  SaveError          a save that did not become a checkpoint
  NoCheckpoint       there is no checkpoint where one was named
  CorruptCheckpoint  a checkpoint whose files are not those that were written
  Mismatch           a checkpoint whose tensors are not those that are asked for
  OtherRun           a checkpoint of another model, tokenizer or data
"""

from __future__ import annotations


class CheckpointError(Exception):
    """Root of everything this package raises on purpose."""


class Fenced(CheckpointError):
    """A newer attempt has taken over; nothing may be written or removed any more."""


class StorageError(CheckpointError):
    """The place cannot be written or read."""


class SaveError(CheckpointError):
    """The save did not become a checkpoint; those before it are untouched."""


class NoCheckpoint(CheckpointError):
    """There is no checkpoint where one was named."""


class CorruptCheckpoint(CheckpointError):
    """A file of a committed checkpoint is not what was written."""


class Mismatch(CheckpointError):
    """Names, shapes or types of tensors differ from what is asked for."""


class OtherRun(CheckpointError):
    """The checkpoint belongs to another model, tokenizer or data."""
