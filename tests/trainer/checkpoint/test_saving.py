"""What is saved is what was there when `save` was called, and damage is found."""

import contextlib
import errno
import json
import os
import pickle
import stat
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from meshwright_trainer.checkpoint.errors import CorruptCheckpoint, NoCheckpoint, SaveError, StorageError
from meshwright_trainer.checkpoint.manifest import Manifest
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.reader import Checkpoint
from meshwright_trainer.checkpoint.storage import open_storage
from tests.trainer.checkpoint.gang import Gang, assert_holds, cut, state


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_t48_t56_uneven_and_empty_shards_are_saved_and_read_in_another_cut(tmp_path: Path, ranks: int) -> None:
    gang = Gang(tmp_path, ranks)
    gang.save(3)
    assert_holds(Checkpoint.open(str(tmp_path)), 3)
    assert gang.writers[0].durable is not None
    assert gang.writers[0].durable.step == 3


def test_files_are_plain_safetensors(tmp_path: Path) -> None:
    Gang(tmp_path, 2).save(3)
    found = {}
    for path in sorted(tmp_path.glob("step-00000003.a1/*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found.update({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118
    whole = state(3)
    assert torch.equal(torch.cat([found["model/weight@0,0"], found["model/weight@3,0"]]), whole["model/weight"])
    assert torch.equal(found["model/scale@"], whole["model/scale"])
    assert torch.equal(torch.cat([found["model/bias@0"], found["model/bias@2"]]), whole["model/bias"])


def test_t53_t54_what_changes_after_save_returned_does_not_reach_the_checkpoint(tmp_path: Path) -> None:
    go_on = threading.Event()

    def slow(effect: str) -> None:
        if effect.startswith("write") and "safetensors" in effect:
            go_on.wait(10)

    gang = Gang(tmp_path, 1, on_effect=slow)
    (pieces,), scalars = cut(state(5), 1), {"updates": 5}
    gang.writers[0].save(5, 40, pieces, scalars)
    for piece in pieces.values():
        piece.tensor.zero_()
    scalars["updates"] = 6
    go_on.set()
    gang.writers[0].wait()
    assert_holds(Checkpoint.open(str(tmp_path)), 5)


def test_staging_buffers_are_kept(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 1)
    gang.save(1)
    before = {name: buffer.data_ptr() for name, buffer in gang.writers[0]._staging._buffers.items()}
    gang.save(2)
    assert {name: buffer.data_ptr() for name, buffer in gang.writers[0]._staging._buffers.items()} == before
    assert_holds(Checkpoint.open(str(tmp_path)), 2)


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    writes: list[str] = []
    gang = Gang(tmp_path, 1, on_effect=writes.append)
    gang.save(1)
    count = len(writes)
    gang.save(1)
    assert len(writes) == count


def test_the_oldest_of_the_line_are_removed_and_the_base_never(tmp_path: Path) -> None:
    first = Gang(tmp_path)
    for step in range(1, 6):
        first.save(step)
    assert first.folders() == [f"step-0000000{step}.a1" for step in (3, 4, 5)]
    second = Gang(tmp_path)
    for step in range(6, 10):
        second.save(step)
    assert second.folders() == ["step-00000005.a1", *(f"step-0000000{step}.a2" for step in (7, 8, 9))]
    assert Checkpoint.open(str(tmp_path)).manifest.history == (
        "step-00000005.a1",
        "step-00000006.a2",
        "step-00000007.a2",
        "step-00000008.a2",
    )


def test_t59_a_rank_that_fails_is_named_and_the_next_save_is_not_held_up(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    parts = cut(state(1), 2)
    torn = threading.Event()

    def full(effect: str) -> None:
        if not torn.is_set() and "write step-00000001.a1/rank-00001.safetensors" in effect:
            torn.set()
            raise OSError(28, "No space left on device")

    gang.storage._on_effect = full
    for rank in (1, 0):
        gang.writers[rank].save(1, 8, parts[rank], {"updates": 1})
    with pytest.raises(SaveError, match=r"was not kept: .*rank-00001\.safetensors cannot be written: No space left"):
        gang.writers[1].wait()
    with pytest.raises(SaveError, match=r"step-00000001\.a1 was not committed: rank 1 failed: .*No space"):
        gang.writers[0].wait()
    gang.save(2)
    assert_holds(Checkpoint.open(str(tmp_path)), 2)


def test_a_rank_that_never_writes_ends_the_wait_in_bounded_time(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3, timeout_seconds=0.1)
    parts = cut(state(1), 3)
    for rank in (1, 0):
        gang.writers[rank].save(1, 8, parts[rank], {"updates": 1})
    with pytest.raises(SaveError, match=r"1 of 3 ranks wrote nothing within 0\.1 s: 2"):
        gang.writers[0].wait()
    gang.writers[0].wait()
    with pytest.raises(NoCheckpoint):
        Checkpoint.open(str(tmp_path))


def test_what_went_wrong_is_seen_by_poll_without_waiting(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2, timeout_seconds=0.05)
    writer = gang.writers[0]
    writer.poll()
    writer.save(1, 8, cut(state(1), 2)[0], {})
    assert writer._thread is not None
    writer._thread.join()
    with pytest.raises(SaveError):
        writer.poll()
    writer.poll()


def test_boxes_that_do_not_make_up_a_tensor_are_no_checkpoint(tmp_path: Path) -> None:
    writer = Gang(tmp_path, 1).writers[0]
    writer.save(1, 8, {"model/w": Piece((4, 2), (0, 0), torch.zeros(3, 2))}, {})
    with pytest.raises(SaveError, match="boxes of model/w have 6 of its 8 elements"):
        writer.wait()
    with pytest.raises(SaveError, match=r"model/w: a box of \(3, 2\) at \(2, 0\) is not within \(4, 2\)"):
        writer.save(2, 8, {"model/w": Piece((4, 2), (2, 0), torch.zeros(3, 2))}, {})
    with pytest.raises(SaveError, match="complex64 cannot be kept"):
        writer.save(2, 8, {"model/w": Piece((1,), (0,), torch.zeros(1, dtype=torch.complex64))}, {})


def test_ranks_that_disagree_are_no_checkpoint(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    for rank, shape in ((1, (4, 3)), (0, (4, 2))):
        piece = Piece(shape, (2 * rank, 0), torch.zeros(2, shape[1]))
        gang.writers[rank].save(1, 8, {"model/w": piece}, {})
    gang.writers[1].wait()
    with pytest.raises(SaveError, match=r"model/w is F32 \(4, 2\), but F32 \(4, 3\) on rank 1"):
        gang.writers[0].wait()


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_found_and_the_newest_whole_one_is_named_but_not_taken(tmp_path: Path, damage: str) -> None:
    gang = Gang(tmp_path, 2)
    for step in (1, 2, 3):
        gang.save(step)
    for step in (2, 3):
        path = tmp_path / f"step-0000000{step}.a1" / "rank-00001.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.unlink()
        if damage == "flip":
            path.write_bytes(content)
        elif damage == "truncate":
            path.write_bytes(content[:-1])
    start = Gang(tmp_path, 2).start
    assert start.base == "step-00000003.a1"
    with pytest.raises(
        CorruptCheckpoint, match=r"step-00000003\.a1/rank-00001\.safetensors: .*whole is .*/step-00000001\.a1: .*From"
    ):
        assert_holds(Checkpoint.open(start.location), 3)
    with pytest.raises(CorruptCheckpoint):
        Checkpoint.open(start.location).verify()


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    Gang(tmp_path, 1).save(1)
    path = tmp_path / "step-00000001.a1" / "manifest.json"
    content = path.read_bytes()
    whole = Manifest.from_json(content, "x")
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1
        try:
            found = Manifest.from_json(bytes(flipped), "x")
        except CorruptCheckpoint:
            continue
        assert found == whole
    path.write_bytes(content[:-10])
    with pytest.raises(CorruptCheckpoint, match=r"manifest\.json is no manifest"):
        Checkpoint.open(str(tmp_path))


def test_a_manifest_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Gang(tmp_path, 1).save(1)
    path = tmp_path / "step-00000001.a1" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(CorruptCheckpoint, match="of version 2, this reader of 1"):
        Checkpoint.open(str(tmp_path))


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was opened",))


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    Gang(tmp_path, 1).save(1)
    bomb = pickle.dumps(Bomb())
    folder = tmp_path / "step-00000001.a1"
    (folder / ".metadata").write_bytes(bomb)
    (folder / "rank-00001.pt").write_bytes(bomb)
    assert_holds(Checkpoint.open(str(tmp_path)), 1)
    (folder / "rank-00000.safetensors").write_bytes(bomb)
    with pytest.raises(CorruptCheckpoint):
        assert_holds(Checkpoint.open(str(tmp_path)), 1)
    (folder / "manifest.json").write_bytes(bomb)
    with pytest.raises(CorruptCheckpoint):
        Checkpoint.open(str(tmp_path))


def test_places_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"checkpoint\.path: s3://bucket/x is a s3:// URL"):
        open_storage("s3://bucket/x")
    with pytest.raises(NoCheckpoint, match="job/other@5: checkpoints cannot be named by their job yet"):
        Checkpoint.open("job/other@5")
    with pytest.raises(NoCheckpoint, match="no checkpoint that counts"):
        Checkpoint.open(str(tmp_path / "absent"))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        Gang(tmp_path / "file", 1)


def test_a_checkpoint_is_opened_by_path_url_or_folder(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 1)
    gang.save(1)
    gang.save(2)
    assert Checkpoint.open(f"file://{tmp_path}/step-00000001.a1").manifest.step == 1
    assert Checkpoint.open(f"{tmp_path}/step-00000001.a1/").manifest.step == 1
    assert Checkpoint.open(f"file://{tmp_path}").manifest.step == 2


@pytest.mark.parametrize(("code", "refused"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_folders_that_cannot_be_synced_are_no_failure_but_a_broken_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, refused: bool
) -> None:
    real = os.fsync

    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(StorageError, match="cannot be made durable") if refused else contextlib.nullcontext():
        Gang(tmp_path, 1).save(1)
    assert (tmp_path / "step-00000001.a1" / "manifest.json").exists() is not refused
