"""Where an attempt begins."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright_api.trainer import Resume
from meshwright_trainer.checkpoint.errors import CheckpointError, Fenced, NoCheckpoint, OtherRun, StorageError
from meshwright_trainer.checkpoint.fence import Fence, read_fence
from meshwright_trainer.checkpoint.resume import begin, raised
from meshwright_trainer.checkpoint.storage import LocalStorage
from tests.trainer.checkpoint.gang import FINGERPRINT, Gang, config


def saved(root: Path, *steps: int, **more: object) -> Gang:
    gang = Gang(root, 1, **more)  # type: ignore[arg-type]
    for step in steps:
        gang.save(step)
    return gang


def test_auto_begins_at_0_and_then_goes_on_from_the_newest(tmp_path: Path) -> None:
    first = saved(tmp_path, 10, 20)
    assert (first.start.attempt, first.start.step, first.start.base) == (1, 0, "")
    second = Gang(tmp_path, 3)
    assert (second.start.attempt, second.start.step, second.start.samples) == (2, 20, 160)
    assert second.start.history == ("step-00000010.a1", "step-00000020.a1")
    assert read_fence(second.storage) == Fence(2, "step-00000020.a1", before=0)


def test_a_lower_attempt_cannot_begin(tmp_path: Path) -> None:
    saved(tmp_path, 10, attempt=5)
    with pytest.raises(Fenced, match=r"attempt 5 writes to .* attempt 4 ends here"):
        Gang(tmp_path, 1, attempt=4)


def test_what_an_older_attempt_commits_late_does_not_count(tmp_path: Path) -> None:
    old = saved(tmp_path, 10)
    new = saved(tmp_path)
    old.writers[0]._check = lambda: None  # type: ignore[method-assign]
    old.save(30)
    assert "step-00000030.a1" in new.folders()
    assert Gang(tmp_path, 1).start.base == "step-00000010.a1"
    new.writers[0]._check = lambda: None  # type: ignore[method-assign]
    new.save(20)
    assert Gang(tmp_path, 1).start.base == "step-00000010.a1"


def test_an_attempt_that_died_while_it_chose_loses_nothing(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    with pytest.raises(OtherRun):
        begin(LocalStorage(tmp_path), config(), replace(FINGERPRINT, tokenizer="other"))
    fence = read_fence(LocalStorage(tmp_path))
    assert fence is not None
    assert (fence.attempt, fence.choosing) == (2, 1)
    third = Gang(tmp_path, 1).start
    assert (third.attempt, third.base) == (3, "step-00000010.a1")


def test_folders_without_a_manifest_are_ignored_and_cleared(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    (tmp_path / "step-00000020.a1").mkdir()
    (tmp_path / "step-00000020.a1" / "rank-00000.safetensors").write_bytes(b"half")
    (tmp_path / "notes").mkdir()
    assert Gang(tmp_path, 1).start.step == 10
    assert {path.name for path in tmp_path.iterdir()} == {"FENCE.a2", "notes", "step-00000010.a1"}


def test_never_begins_anew_and_touches_nothing_that_it_did_not_write(tmp_path: Path) -> None:
    saved(tmp_path, 10, 20)
    never = saved(tmp_path, 5, 6, 7, 8, policy=config(Resume.NEVER))
    assert never.start.step == 0
    assert never.folders() == [
        *(f"step-0000000{step}.a2" for step in (6, 7, 8)),
        "step-00000010.a1",
        "step-00000020.a1",
    ]
    assert Gang(tmp_path, 1).start.base == "step-00000008.a2"


def test_a_restart_of_a_job_that_never_resumes_goes_on_from_its_own(tmp_path: Path) -> None:
    saved(tmp_path, 10, run="old")
    policy = config(Resume.NEVER)
    assert saved(tmp_path, 5, run="new", attempt=1, policy=policy).start.step == 0
    assert Gang(tmp_path, 1, run="new", attempt=2, policy=policy).start.step == 5
    assert Gang(tmp_path, 1, run="newer", attempt=1, policy=policy).start.step == 0


def test_from_begins_where_it_is_told_once(tmp_path: Path) -> None:
    other, root = tmp_path / "other", tmp_path / "own"
    saved(other, 10, 20)
    saved(root, 3)
    policy = config(Resume.FROM, resume_from=str(other / "step-00000010.a1"))
    first = Gang(root, 1, run="job", attempt=1, policy=policy)
    assert (first.start.step, first.start.location, first.start.history) == (10, policy.resume_from, ())
    again = saved(root, 11, run="job", attempt=2, policy=policy)
    assert again.start.step == 10
    assert Gang(root, 1, run="job", attempt=3, policy=policy).start.base == "step-00000011.a3"
    back = config(Resume.FROM, resume_from=str(other))
    assert Gang(root, 1, run="job", attempt=4, policy=back).start.step == 20
    assert Gang(root, 1, run="job", attempt=5).start.step == 20


def test_going_back_within_a_line_keeps_what_was_gone_back_from(tmp_path: Path) -> None:
    saved(tmp_path, 10, 20, 30)
    back = saved(tmp_path, 11, 12, 13, 14, policy=config(Resume.FROM, resume_from=str(tmp_path / "step-00000010.a1")))
    assert back.start.base == "step-00000010.a1"
    assert back.folders() == [
        "step-00000010.a1",
        "step-00000012.a2",
        "step-00000013.a2",
        "step-00000014.a2",
        "step-00000020.a1",
        "step-00000030.a1",
    ]
    assert Gang(tmp_path, 1).start.base == "step-00000014.a2"


def test_from_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="resumeFrom"):
        Gang(tmp_path, 1, policy=config(Resume.FROM))
    with pytest.raises(NoCheckpoint, match="absent"):
        Gang(tmp_path, 1, policy=config(Resume.FROM, resume_from=str(tmp_path / "absent")))


def test_a_base_that_was_removed_from_outside_is_not_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    assert Gang(tmp_path, 1).start.step == 10
    (tmp_path / "step-00000010.a1" / "manifest.json").unlink()
    with pytest.raises(NoCheckpoint, match=r"step-00000010\.a1 is no checkpoint"):
        Gang(tmp_path, 1)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(FINGERPRINT, tokenizer="bpe"), 'tokenizer: "bytes" there, "bpe" here'),
        (
            replace(FINGERPRINT, model={"family": "toy", "sizes": (3, 5)}),
            r"model\.sizes: \[3, 4\] there, \[3, 5\] here",
        ),
        (replace(FINGERPRINT, data={"sources": ["abc"], "seed": 1}), r"data\.seed: 0 there, 1 here"),
        (replace(FINGERPRINT, data={"seed": 0}), r'data\.sources: \["abc"\] there, null here'),
    ],
)
def test_another_model_tokenizer_or_data_is_refused_by_name(tmp_path: Path, other: object, named: str) -> None:
    saved(tmp_path, 10)
    with pytest.raises(OtherRun, match=rf"(?s){named}.*resume: Never.*init\.from"):
        begin(LocalStorage(tmp_path), config(), other)  # type: ignore[arg-type]


def test_a_job_that_is_made_again_numbers_on_from_the_fence() -> None:
    assert raised(None, 3, "a") == Fence(3, choosing=0, run="a")
    first = Fence(7, "base", run="a", before=2)
    assert raised(first, 6, "a") == Fence(8, "base", choosing=7, run="a", before=2)
    assert raised(first, 1, "b") == Fence(8, "base", choosing=7, run="b", before=7)
    assert raised(first, None, "") == Fence(8, "base", choosing=7, run="", before=7)
    assert raised(replace(first, choosing=4), 6, "a").choosing == 4


def test_a_fence_that_cannot_be_read_is_no_free_pass(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    (tmp_path / "FENCE.a1").write_text('{"attempt": ')
    with pytest.raises(StorageError, match=r"FENCE\.a1 cannot be read"):
        Gang(tmp_path, 1)
