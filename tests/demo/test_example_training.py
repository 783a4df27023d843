"""The training script as two real processes: killed, stopped and started again, it ends with the same bits.

One story is played once and judged by several tests:
an undisturbed run; and a run whose rank 1 is SIGKILLed, which then resumes, is asked to stop by SIGTERM, and resumes.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import checkpoints
import pytest
import torch

from tests.demo.gangs import Ended, Gang, Zygote

pytestmark = pytest.mark.slow

STEPS = 150
ARGUMENTS = [
    *("--layers", "1", "--channels", "16", "--heads", "2", "--length", "32", "--batch", "4"),
    *("--steps", str(STEPS), "--log-every", "1", "--checkpoint-every", "10", "--keep", "100"),
]


@dataclass
class Story:
    """What happened, in order."""

    undisturbed: Ended
    killed: Ended
    on_disk_after_kill: list[int]
    stopped: Ended
    on_disk_after_stop: list[int]
    last: Ended
    straight: Path
    broken: Path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    root = tmp_path_factory.mktemp("training")
    straight, broken = root / "straight", root / "broken"
    zygote = Zygote(Path(checkpoints.__file__).parent)
    gangs = [Gang(zygote, broken if life else straight, root / f"life-{life}", ARGUMENTS) for life in range(4)]
    try:
        undisturbed = gangs[0].start().ended()
        gangs[1].start().until_step(35)
        gangs[1].signal(1, signal.SIGKILL)
        killed, after_kill = gangs[1].ended(), checkpoints.steps_in(broken)
        gangs[2].start().until_step(after_kill[-1] + 5)
        gangs[2].signal(1, signal.SIGTERM)
        stopped, after_stop = gangs[2].ended(), checkpoints.steps_in(broken)
        last = gangs[3].start().ended()
        yield Story(undisturbed, killed, after_kill, stopped, after_stop, last, straight, broken)
    finally:
        for gang in gangs:
            gang.close()
        zygote.close()


def test_a_whole_run_reports_every_step_and_ends_with_success(story: Story) -> None:
    run = story.undisturbed
    assert run.codes == [0, 0], run.errors
    assert run.event("started") == {"event": "started", "rank": 0, "world_size": 2, "resumed_from_step": 0}
    assert list(run.losses) == list(range(1, STEPS + 1))
    assert all(line["tokens_per_second"] > 0 and line["steps"] == STEPS for line in run.lines if "loss" in line)
    losses = list(run.losses.values())
    assert sum(losses[-10:]) < sum(losses[:10])


def test_a_killed_rank_takes_the_other_down_with_words_that_say_why(story: Story) -> None:
    assert story.killed.codes == [1, -signal.SIGKILL]
    assert "peer" in story.killed.errors[0]
    assert max(story.killed.losses) < STEPS


def test_it_goes_on_from_the_last_checkpoint_before_the_kill(story: Story) -> None:
    assert story.on_disk_after_kill[-1] >= 30
    assert story.stopped.event("started")["resumed_from_step"] == story.on_disk_after_kill[-1]
    assert min(story.stopped.losses) == story.on_disk_after_kill[-1] + 1


def test_sigterm_to_one_rank_stops_both_after_the_same_step_with_a_checkpoint(story: Story) -> None:
    assert story.stopped.codes == [128 + signal.SIGTERM] * 2, story.stopped.errors
    stopped_at = story.stopped.event("terminated")["step"]
    assert story.on_disk_after_kill[-1] + 5 <= stopped_at < STEPS
    assert story.on_disk_after_stop[-1] == stopped_at == max(story.stopped.losses)
    assert story.last.event("started")["resumed_from_step"] == stopped_at


def test_faults_do_not_move_the_bits(story: Story) -> None:
    assert story.last.codes == [0, 0], story.last.errors
    straight, broken = (checkpoints.load(folder, STEPS) for folder in (story.straight, story.broken))
    for name, weight in straight["model"].items():
        assert torch.equal(weight, broken["model"][name]), name
    for number, state in straight["optimizer"]["state"].items():
        assert all(torch.equal(value, broken["optimizer"]["state"][number][key]) for key, value in state.items())
    for life in (story.killed, story.stopped, story.last):
        assert life.losses.items() <= story.undisturbed.losses.items()
