"""The demo's pieces that need no cluster: what the script said, when to kill, what people are told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo import ground, manifest, telling
from demo.errors import DemoError
from demo.examples import BUILT_IN, EXAMPLES, OWN_SCRIPT, Example, chosen
from demo.screen import Screen, describe
from demo.script_log import Checkpoint, Line, Started, Step, is_time_to_kill, parse
from demo.watching import worker
from meshwright_api.job import parse_status
from meshwright_api.status import TrainingJobStatus


def a_step(number: int) -> Step:
    return Step(number, 160, 2.5, 3000.0)


def test_the_script_is_understood_between_other_lines() -> None:
    log = "\n".join(
        [
            "a warning of torch",
            json.dumps({"event": "started", "rank": 0, "world_size": 2, "resumed_from_step": 40}),
            json.dumps({"step": 45, "steps": 160, "loss": 2.5, "tokens_per_second": 3000.0}),
            '{"step": 50, "ste',
            json.dumps({"event": "evaluation", "step": 50, "loss": 2.6}),
            json.dumps({"event": "checkpoint", "step": 60}),
            json.dumps({"event": "finished", "rank": 0, "step": 160}),
            '{"loss": 3.0}',
        ]
    )
    assert parse(log) == [Started(40), a_step(45), Checkpoint(60)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], False),
        ([a_step(45)], False),  # nothing to go on from
        ([a_step(20), Checkpoint(20), a_step(25)], False),  # too early to show much
        ([a_step(40), Checkpoint(40)], False),  # no work to lose
        ([Checkpoint(40), a_step(45)], True),
        ([Checkpoint(40), a_step(50)], True),
        ([Checkpoint(40), a_step(55)], False),  # the next checkpoint is near
        ([Checkpoint(40), a_step(60)], False),
        ([Checkpoint(40), a_step(55), Checkpoint(60), a_step(65)], True),
    ],
)
def test_the_kill_falls_between_two_checkpoints(lines: list[Line], expected: bool) -> None:
    assert is_time_to_kill(lines) is expected


def status(**fields: Any) -> TrainingJobStatus:
    return parse_status({"status": fields})


def test_phases_are_told_once() -> None:
    running = status(phase="Running", attempt=1, ready="2/2")
    assert list(telling.changes(status(), running)) == ["phase Running (attempt 1, 2/2 pods run)"]
    assert list(telling.changes(running, running)) == []


def test_a_waiting_job_says_for_what() -> None:
    condition = {
        "type": "Scheduled",
        "status": "False",
        "reason": "WaitingForCapacity",
        "message": "needs 2 CPUs; 1 is free",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    waiting = status(phase="Pending", conditions=[condition])
    assert list(telling.changes(status(phase="Pending"), waiting)) == ["waiting: needs 2 CPUs; 1 is free"]
    assert list(telling.changes(waiting, waiting)) == []


def test_an_incident_is_told_when_it_opens_and_when_it_is_judged() -> None:
    times = {"openedAt": "2026-01-31T12:00:00Z", "judgedAt": "2026-01-31T12:00:09Z"}
    culprit = {"pod": "text-0", "podUID": "u-1", "node": "node-1", "exitCode": 137}
    opened = status(
        phase="Restarting", attempt=2, incident={"attempt": 1, "openedAt": times["openedAt"], "trigger": "ExitCode"}
    )
    judged = status(
        phase="Restarting",
        attempt=2,
        incidents=[
            {
                **times,
                "attempt": 1,
                "trigger": "ExitCode",
                "cause": "ExitCode",
                "charged": True,
                "action": "Restart",
                "culprit": culprit,
            }
        ],
    )
    assert "attempt 1 is over, the first sign is ExitCode" in "\n".join(telling.changes(status(), opened))
    text = "\n".join(telling.changes(opened, judged))
    assert "culprit text-0 on node-1, exit code 137, uid u-1" in text
    assert "counts against maxRestarts" in text


def a_pod(state: dict[str, Any], container_id: str = "process://4711") -> dict[str, Any]:
    labels = {"meshwright.dev/index": "1", "meshwright.dev/incarnation": "2"}
    container = {"name": "trainer", "state": state, "containerID": container_id}
    return {
        "metadata": {"name": "text-1", "uid": "u-1", "labels": labels},
        "spec": {"nodeName": "node-1"},
        "status": {"containerStatuses": [container]},
    }


def test_only_the_process_of_a_running_pod_is_known() -> None:
    running = worker(a_pod({"running": {}}))
    assert (running.pid, running.index, running.incarnation, running.node) == (4711, 1, 2, "node-1")
    assert worker(a_pod({"terminated": {"exitCode": 1}})).pid is None
    assert worker(a_pod({"running": {}}, "containerd://4711")).pid is None


def test_the_newest_checkpoint_is_read_from_the_folder(tmp_path: Path) -> None:
    assert OWN_SCRIPT.newest_checkpoint(tmp_path) is None
    for name in ("step-00000040.pt", "step-00000100.pt", ".step-00000120.unfinished", "step-00000140.pt.bak"):
        (tmp_path / name).touch()
    assert OWN_SCRIPT.newest_checkpoint(tmp_path) == 100


def test_the_trainer_s_checkpoint_counts_when_it_is_committed(tmp_path: Path) -> None:
    for name in (
        "step-00000040.a1/manifest.json",
        "step-00000100.a2/manifest.json",
        "step-00000120.a2/rank-00000.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert BUILT_IN.newest_checkpoint(tmp_path) == 100


def test_an_example_that_is_not_there_says_which_are() -> None:
    with pytest.raises(DemoError, match="gpt-text, pytorch-text"):
        chosen("gpt-txt")


def test_a_log_has_some_steps_and_a_terminal_one_moving_line() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    log, terminal = io.StringIO(), Terminal()
    for stream in (log, terminal):
        screen = Screen(stream)
        for number in range(5, 45, 5):
            screen.step(a_step(number))
        screen.say("done")
    assert log.getvalue().count("step") == 2
    assert terminal.getvalue().count("\n") == 2
    assert terminal.getvalue().count("\r") == 8


def test_a_step_is_described_with_its_bar() -> None:
    assert describe(a_step(80)) == "step  80/160 loss 2.500 nats/byte, 3,000 bytes/s"
    assert f"[{'#' * 15:<30}]" in describe(a_step(80), bar=True)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_the_volume_is_for_the_example_s_claim(example: Example) -> None:
    claim = next(yaml.safe_load_all(example.manifest.read_text()))
    offered = ground.volume(Path("/data"), example.name)["spec"]
    assert offered["claimRef"]["name"] == claim["metadata"]["name"]
    assert offered["accessModes"] == claim["spec"]["accessModes"]
    assert offered["capacity"] == claim["spec"]["resources"]["requests"]


def test_where_nothing_can_be_mounted_paths_follow_the_variable() -> None:
    claim, job, scripts = yaml.safe_load_all(manifest.MANIFEST.read_text())
    changed = manifest.without_mounts(job)
    [container] = changed["spec"]["roles"][0]["template"]["spec"]["containers"]
    assert container["command"] == [
        "sh",
        "-c",
        'exec "python" "$DEVCLUSTER_ROOT/workspace/train.py" "--checkpoints" "$DEVCLUSTER_ROOT/checkpoints"',
    ]
    assert "args" not in container
    assert {"name": "GLOO_SOCKET_IFNAME", "value": "lo"} in container["env"]
    assert job["spec"]["roles"][0]["template"]["spec"]["containers"][0]["args"] == ["--checkpoints", "/checkpoints"]
    assert (manifest.without_mounts(claim), manifest.without_mounts(scripts)) == (claim, scripts)


def test_what_can_be_shown_is_found_out_before_there_is_a_folder(tmp_path: Path) -> None:
    places = ground.Places(tmp_path / "build" / "demo")
    assert ground.shown(BUILT_IN, places) in EXAMPLES.values()
    assert ground.shown(OWN_SCRIPT, places) is OWN_SCRIPT
