"""Checkpoints as files `step-00000040.pt` in one folder. A file under that name is always whole."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch

_NAME = re.compile(r"step-(\d{8})\.pt")


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08d}.pt"


def steps_in(folder: Path) -> list[int]:
    """Steps that have a checkpoint, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for entry in folder.iterdir() if (match := _NAME.fullmatch(entry.name)))


def save(folder: Path, step: int, state: dict[str, Any], *, keep: int) -> None:
    """Writes the checkpoint of a step and removes all but the newest `keep`.

    The name appears only after the bytes are on the disk, so a process killed at any moment leaves either the whole
    checkpoint or none of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".step-{step:08d}.unfinished"
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path_of(folder, step))
    _sync_folder(folder)
    for old in steps_in(folder)[:-keep]:
        path_of(folder, old).unlink()


def load(folder: Path, step: int) -> dict[str, Any]:
    """Reads the checkpoint of a step: tensors and plain values, never code."""
    state: dict[str, Any] = torch.load(path_of(folder, step), map_location="cpu", weights_only=True)
    return state


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
