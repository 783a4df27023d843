"""Processes that die, or sleep, at every single effect on the storage."""

import itertools
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshwright_trainer.checkpoint.errors import Fenced
from meshwright_trainer.checkpoint.reader import Checkpoint
from tests.trainer.checkpoint.gang import Gang, assert_holds, config, cut, state

DIED, FENCED = 9, 76


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed loses nothing that it wrote; only a machine does. So the disk need not be waited for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Counter:
    """Calls `act` at the k-th effect after it was armed; 0: never."""

    def __init__(self, act: Callable[[], None], at: int) -> None:
        self.act, self.at, self.seen = act, at, 0

    def __call__(self, _: str) -> None:
        self.seen += 1
        if self.seen == self.at:
            self.act()


def in_child(work: Callable[[], int]) -> int:
    """Process id of a fork that does the work and leaves with the code that it returns."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            code = work()
        except Fenced:
            code = FENCED
        except BaseException:
            traceback.print_exc()
            code = 1
        os._exit(code)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def prepared(root: Path) -> None:
    gang = Gang(root, 2, attempt=1)
    gang.save(1)
    gang.save(2)


def second_attempt(root: Path, counter: Counter, ranks: int = 2) -> int:
    """Goes on from step 2, saves step 3, removes step 1: every kind of effect happens."""
    Gang(root, ranks, policy=config(keep=1), attempt=2, on_effect=counter).save(3)
    return 0


def roots(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Fresh copies of the same beginning, one for each k."""
    prepared(tmp_path / "0")
    for k in itertools.count(1):
        yield k, Path(shutil.copytree(tmp_path / "0", tmp_path / str(k)))


def test_t57_killed_at_every_write_the_newest_committed_checkpoint_loads(tmp_path: Path) -> None:
    reached: list[int] = []
    for k, root in roots(tmp_path):
        counter = Counter(lambda: os._exit(DIED), k)
        code = exit_code(in_child(lambda root=root, counter=counter: second_attempt(root, counter)))  # type: ignore[misc]
        gang = Gang(root, 1, attempt=3)
        assert_holds(Checkpoint.open(gang.start.location), gang.start.step)
        reached.append(gang.start.step)
        assert all((root / folder / "manifest.json").exists() for folder in gang.folders())
        if code == 0:
            break
        assert code == DIED
    gang.save(4)
    assert_holds(Checkpoint.open(str(root)), 4)
    assert reached == sorted(reached)
    assert set(reached) == {2, 3}
    assert len(reached) > 40


def sleeping(root: Path, k: int) -> int:
    """A child that stops itself at its k-th effect, once it is stopped; 0 if it ended before."""
    counter = Counter(lambda: os.kill(os.getpid(), signal.SIGSTOP), k)
    child = in_child(lambda: second_attempt(root, counter, ranks=1))
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return child
    assert os.waitstatus_to_exitcode(status) == 0
    return 0


def test_an_old_attempt_that_wakes_up_at_any_moment_harms_nothing(tmp_path: Path) -> None:
    codes = set()
    for k, root in roots(tmp_path):
        child = sleeping(root, k)
        if not child:
            break
        new = Gang(root, 2, policy=config(keep=2), attempt=3)
        base, step = new.start.base, new.start.step
        new.save(step + 1)
        os.kill(child, signal.SIGCONT)
        code = exit_code(child)
        # It may end without being fenced only if nothing of its own was left to commit or to remove.
        assert code in (0, FENCED)
        codes.add(code)
        new.save(step + 2)
        assert_holds(Checkpoint.open(str(root / base)), step)
        for own in (step + 1, step + 2):
            assert_holds(Checkpoint.open(str(root / f"step-{own:08d}.a3")), own)
        assert Gang(root, 1, attempt=4).start.base == f"step-{step + 2:08d}.a3"
    assert FENCED in codes


@pytest.mark.parametrize("moment", ["before", "while it writes", "before it commits"])
def test_a_fenced_writer_says_so(tmp_path: Path, moment: str) -> None:
    taken: list[Gang] = []

    def overtake(now: str) -> float:
        if now == moment and not taken and old.writers[0].durable is not None:
            taken.append(Gang(tmp_path, 1))
        return 0.0

    def writing(effect: str) -> None:
        overtake("while it writes" if "safetensors" in effect else "")

    old = Gang(tmp_path, 1, on_effect=writing)
    old.save(1)
    old.writers[0]._now = lambda: overtake("before it commits")
    overtake("before")
    with pytest.raises(Fenced, match=r"attempt 2 writes to .* now; attempt 1 ends here"):
        old.save(2)
    assert not (tmp_path / "step-00000002.a1" / "manifest.json").exists()


def test_a_commit_that_slips_through_while_a_new_attempt_begins_does_not_remove_its_base(tmp_path: Path) -> None:
    fences = itertools.count(1)
    committing, chosen = threading.Event(), threading.Event()

    def late(effect: str) -> None:
        if effect == "replace step-00000002.a1/manifest.json":
            committing.set()
            chosen.wait(10)

    def choosing(effect: str) -> None:
        if effect == "replace FENCE.a2" and next(fences) == 2:
            chosen.set()
            with pytest.raises(Fenced):
                old.writers[0].wait()

    old = Gang(tmp_path, 1, policy=config(keep=1), on_effect=late)
    old.save(1)
    old.writers[0].save(2, 16, cut(state(2), 1)[0], {"updates": 2})
    committing.wait(10)
    new = Gang(tmp_path, 1, on_effect=choosing)
    assert new.start.base == "step-00000001.a1"
    assert "step-00000002.a1" in new.folders()
    assert_holds(Checkpoint.open(new.start.location), 1)
    new.save(3)
    assert Gang(tmp_path, 1).start.base == "step-00000003.a2"
