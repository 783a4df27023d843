"""A checkpoint's name appears only when all of it is on the disk, and old ones go."""

from pathlib import Path

import checkpoints
import pytest
import torch


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (20, 40, 100):
        checkpoints.save(tmp_path / "new", step, {"step": step}, keep=2)
    assert checkpoints.steps_in(tmp_path / "new") == [40, 100]
    assert checkpoints.load(tmp_path / "new", 100) == {"step": 100}


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert checkpoints.steps_in(tmp_path / "nowhere") == []


def test_other_files_are_no_checkpoints(tmp_path: Path) -> None:
    for name in (".step-00000007.unfinished", "step-00000008.pt.bak", "step-9.pt", "lost+found"):
        (tmp_path / name).touch()
    assert checkpoints.steps_in(tmp_path) == []


def test_a_write_that_breaks_off_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(tmp_path, 20, {"weight": torch.ones(3)}, keep=1)

    def broken(state: object, file: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="no space"):
        checkpoints.save(tmp_path, 40, {"weight": torch.zeros(3)}, keep=1)
    monkeypatch.undo()
    assert checkpoints.steps_in(tmp_path) == [20]
    assert torch.equal(checkpoints.load(tmp_path, 20)["weight"], torch.ones(3))


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    torch.save({"step": Path("/")}, checkpoints.path_of(tmp_path, 1))  # a Path is rebuilt by calling its class
    with pytest.raises(Exception, match="Unsupported"):
        checkpoints.load(tmp_path, 1)
