"""Agents on loopback with a fake operator: who reports to whom, and what an operator that is away cannot do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshwright_agent import beats as beats_module
from meshwright_agent.beats import Beats
from meshwright_agent.errors import Malformed, Unanswered
from meshwright_agent.plan import Heartbeat, Place, Plan
from meshwright_agent.relay import Gathering, seal, unseal
from meshwright_agent.uplink import Uplink
from meshwright_agent.wire import Answer, Checkpoint, Progress, Report, dump
from tests.agent.conftest import Run, a_plan, soon
from tests.agent.fake_operator import KEY, FakeOperator

INTERVAL = 0.05


@pytest.fixture
def operator() -> Iterator[FakeOperator]:
    server = FakeOperator()
    yield server
    server.stop()


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


class Agents:
    """The hearts of a job's agents."""

    def __init__(self, operator: FakeOperator, token: Path, port: int, folder: Path, pods: int) -> None:
        path = folder / "plan.json"
        path.write_text(json.dumps(a_plan(replicas=pods)))
        self.plan = Plan.load(str(path))
        self.progress = [Progress() for _ in range(pods)]
        self.overtaken: list[int] = []
        self.said: list[str] = []
        self.beats = [self._beats(operator.url, token, port, index) for index in range(pods)]

    def _beats(self, url: str, token: Path, port: int, index: int) -> Beats:
        variables = {"MESHWRIGHT_ROLE": "worker", "MESHWRIGHT_INDEX": str(index), "MESHWRIGHT_INCARNATION": "2"}
        return Beats(
            self.plan,
            Heartbeat(url, INTERVAL, port),
            Place.of(self.plan, variables),
            Uplink(url, self.plan.job_uid, str(token), 1.0),
            lambda: self.progress[index],
            lambda: self.overtaken.append(index),
            self.said.append,
        )


@pytest.fixture
def agents(operator: FakeOperator, token: Path, port: int, tmp_path: Path) -> Iterator[Callable[[int], Agents]]:
    made: list[Agents] = []

    def make(pods: int) -> Agents:
        made.append(Agents(operator, token, port, tmp_path, pods))
        for beats in made[-1].beats:
            beats.start()
        return made[-1]

    yield make
    for group in made:
        for beats in reversed(group.beats):
            beats.stop()


def test_one_pod_reports_what_its_processes_say(operator: FakeOperator, agents: Callable[[int], Agents]) -> None:
    job = agents(1)
    job.progress[0] = Progress(step=7, loss=2.0, checkpoint=Checkpoint(5, 9.0))
    assert soon(lambda: any(report["progress"].get("step") == 7 for report in operator.reports))
    report = operator.reports[-1]
    assert (report["attempt"], report["incarnation"], report["pod"]) == (3, 2, "gpt-abcde-worker-0-2")
    assert (report["heard"], report["minStep"]) == (1, 7)
    assert report["progress"] == {"step": 7, "loss": 2.0, "checkpoint": {"step": 5, "time": 9.0}}
    assert operator.paths[-1] == "/v1/jobs/0f66-7faf/heartbeats"


def test_rank_0_speaks_for_all(operator: FakeOperator, agents: Callable[[int], Agents]) -> None:
    """Each other agent asks once for its key; after that the operator hears one of four."""
    job = agents(4)
    job.progress[:] = [Progress(step=9, loss=1.5), Progress(step=8), Progress(step=10), Progress(step=9, mfu=0.4)]
    assert soon(lambda: operator.of(0) != [] and operator.of(0)[-1]["heard"] == 4)
    assert soon(lambda: operator.of(0)[-1]["minStep"] == 8 and operator.of(0)[-1]["maxStep"] == 10)
    assert operator.of(0)[-1]["progress"] == {"step": 9, "loss": 1.5, "mfu": 0.4}
    before = [len(operator.of(index)) for index in range(4)]
    time.sleep(8 * INTERVAL)
    after = [len(operator.of(index)) for index in range(4)]
    assert after[1:] == before[1:] == [1, 1, 1]
    assert after[0] > before[0]


def test_when_rank_0_is_silent_the_others_speak_for_themselves(
    operator: FakeOperator, agents: Callable[[int], Agents]
) -> None:
    job = agents(3)
    assert soon(lambda: operator.of(0) != [] and operator.of(0)[-1]["heard"] == 3)
    job.beats[0].stop()
    assert soon(lambda: len(operator.of(1)) >= 3 and len(operator.of(2)) >= 3)


def test_a_pod_that_falls_silent_is_missed(operator: FakeOperator, agents: Callable[[int], Agents]) -> None:
    job = agents(2)
    assert soon(lambda: operator.of(0) != [] and operator.of(0)[-1]["heard"] == 2)
    job.beats[1].stop()
    assert soon(lambda: operator.of(0)[-1]["heard"] == 1)


def test_a_newer_attempt_reaches_every_pod_through_rank_0(
    operator: FakeOperator, agents: Callable[[int], Agents]
) -> None:
    job = agents(3)
    assert soon(lambda: operator.of(0) != [] and operator.of(0)[-1]["heard"] == 3)
    operator.answer["attempt"] = 4
    assert soon(lambda: sorted(job.overtaken) == [0, 1, 2])
    time.sleep(3 * INTERVAL)
    assert sorted(job.overtaken) == [0, 1, 2], "each is told once"
    assert len(operator.of(1)) == len(operator.of(2)) == 1


def test_an_operator_that_is_away_is_told_of_once_and_tried_again(
    operator: FakeOperator, agents: Callable[[int], Agents], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beats_module, "LONGEST_DELAY_SECONDS", 0.1)
    operator.status, good = 503, operator.answer
    operator.answer = {"error": "not now"}
    job = agents(1)
    assert soon(lambda: len(operator.reports) >= 4)
    assert len(job.said) == 1
    assert "not now" in job.said[0]
    operator.status, operator.answer = 200, good
    assert soon(lambda: len(job.said) == 2)
    assert "again" in job.said[1]
    assert job.overtaken == []


def test_an_address_of_rank_0_that_is_none_ends_nothing(
    operator: FakeOperator, agents: Callable[[int], Agents]
) -> None:
    operator.answer["rank0"] = {"ip": "x" * 64}
    agents(2)
    assert soon(lambda: len(operator.of(1)) >= 4)


def test_the_end_of_training_is_told_at_once(operator: FakeOperator, agents: Callable[[int], Agents]) -> None:
    job = agents(1)
    assert soon(lambda: len(operator.reports) >= 1)
    job.progress[0] = Progress(step=100)
    job.beats[0].stop()
    assert operator.reports[-1]["progress"] == {"step": 100}


class TestUplink:
    report = Report(3, 2, "worker", 0, "gpt-abcde-worker-0-2")

    def test_the_token_is_read_each_time(self, operator: FakeOperator, token: Path) -> None:
        uplink = Uplink(operator.url, "u", str(token))
        uplink.send(self.report)
        token.write_text("second")
        uplink.send(self.report)
        assert operator.tokens == ["Bearer first", "Bearer second"]

    def test_it_goes_to_the_leader_and_stays_there_until_that_fails(self, operator: FakeOperator, token: Path) -> None:
        leader = FakeOperator()
        operator.status, operator.answer = 421, {"error": "not me", "leader": leader.url}
        uplink = Uplink(operator.url, "u", str(token))
        assert uplink.send(self.report).key == KEY
        uplink.send(self.report)
        assert (len(operator.reports), len(leader.reports)) == (1, 2)
        leader.stop()
        with pytest.raises(Unanswered):
            uplink.send(self.report)
        operator.status, operator.answer = 200, {"attempt": 3}
        assert uplink.send(self.report).attempt == 3

    @pytest.mark.parametrize("leader", ["", None, "file:///etc/passwd", 7])
    def test_a_leader_that_is_nowhere_is_no_leader(self, operator: FakeOperator, token: Path, leader: object) -> None:
        operator.status, operator.answer = 421, {"leader": leader}
        with pytest.raises(Unanswered, match="does not know who does"):
            Uplink(operator.url, "u", str(token)).send(self.report)

    def test_two_that_each_call_the_other_the_leader_are_no_endless_loop(
        self, operator: FakeOperator, token: Path
    ) -> None:
        operator.status, operator.answer = 421, {"leader": operator.url}
        with pytest.raises(Unanswered, match="421"):
            Uplink(operator.url, "u", str(token)).send(self.report)
        assert len(operator.reports) == 2

    @pytest.mark.parametrize("answer", [{}, {"attempt": "x"}, {"attempt": 1, "key": "zz"}])
    def test_an_answer_that_is_none_is_no_answer(
        self, operator: FakeOperator, token: Path, answer: dict[str, Any]
    ) -> None:
        operator.answer = answer
        with pytest.raises(Unanswered):
            Uplink(operator.url, "u", str(token)).send(self.report)

    def test_without_a_token_nothing_is_sent(self, operator: FakeOperator, tmp_path: Path) -> None:
        with pytest.raises(Unanswered, match="FileNotFoundError"):
            Uplink(operator.url, "u", str(tmp_path / "none")).send(self.report)
        assert operator.reports == []

    def test_a_server_that_accepts_and_says_nothing_is_given_up(self, token: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(Unanswered, match="imed"):
            Uplink(f"http://127.0.0.1:{mute.getsockname()[1]}", "u", str(token), 0.1).send(self.report)


class TestRelay:
    """What somebody else in the cluster network may try."""

    @pytest.fixture
    def heard(self, operator: FakeOperator, agents: Callable[[int], Agents]) -> Callable[[], int]:
        agents(2)
        assert soon(lambda: operator.of(0) != [] and operator.of(0)[-1]["heard"] == 2)
        return lambda: len(operator.reports)

    def ask(self, port: int, datagram: bytes) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(0.3)
            client.sendto(datagram, ("127.0.0.1", port))
            try:
                return client.recv(9000)
            except TimeoutError:
                return b""

    def body(self, **changes: Any) -> bytes:
        report = Report(3, 2, "worker", 1, "gpt-abcde-worker-1-2").to_json()
        return dump({**report, "number": 10**9, **changes})

    def test_a_report_counts_once(self, heard: object, port: int) -> None:
        datagram = seal(KEY, self.body())
        answer = self.ask(port, datagram)
        assert Answer.parse(unseal(KEY, answer, datagram[:64])).key == "", "the key is the operator's to give"
        assert self.ask(port, datagram) == b"", "again"

    @pytest.mark.parametrize(
        "changes", [{"attempt": 2}, {"attempt": 4}, {"role": "driver"}, {"index": 2}, {"number": "x"}, {"heard": None}]
    )
    def test_what_is_of_no_pod_of_the_attempt_is_not_answered(
        self, heard: object, port: int, changes: dict[str, Any]
    ) -> None:
        assert self.ask(port, seal(KEY, self.body(**changes))) == b""

    def test_without_the_key_there_is_no_answer_at_all(self, heard: object, port: int) -> None:
        for datagram in (b"", b"x" * 100, seal("cd" * 32, self.body()), b"0" * 64 + self.body()):
            assert self.ask(port, datagram) == b""

    def test_an_answer_is_to_one_question(self) -> None:
        answer = seal(KEY, b"{}", b"question 1")
        assert unseal(KEY, answer, b"question 1") == b"{}"
        for context in (b"question 2", b""):
            with pytest.raises(Malformed, match="signature"):
                unseal(KEY, answer, context)


def test_a_gathering_never_takes_a_checkpoint_back(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(a_plan(replicas=3)))
    gathering = Gathering(Plan.load(str(path)), 10.0)

    def report(index: int, **said: Any) -> Report:
        return Report(3, 2, "worker", index, "p", progress=Progress(**said))

    assert gathering.note(report(1, step=20, checkpoint=Checkpoint(20, 2.0)), 1, 100.0)
    assert gathering.note(report(2, step=21, checkpoint=Checkpoint(10, 1.0)), 1, 100.0)
    combined = gathering.combined(report(0, checkpoint=Checkpoint(10, 1.0)), 101.0)
    assert combined.progress == Progress(step=21, checkpoint=Checkpoint(20, 2.0))
    assert (combined.heard, combined.min_step, combined.max_step) == (3, 20, 21)
    assert gathering.combined(report(0), 131.0).heard == 1


@pytest.mark.parametrize("pods", [1, 100, 10_000])
def test_a_large_job_does_not_flood_the_operator(
    operator: FakeOperator, token: Path, port: int, tmp_path: Path, pods: int
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(a_plan(replicas=pods)))
    plan = Plan.load(str(path))
    place = Place(plan.roles[0], pods - 1, 2, pods - 1)
    beats = Beats(plan, Heartbeat(operator.url, 10.0, port), place, Uplink("", "u"), Progress, lambda: None, print)
    spreads = [beats._spread() for _ in range(2000)]
    assert sum(spreads) / len(spreads) == pytest.approx(pods / 100, rel=0.1)


def test_whole_agents_tell_progress_and_end_as_fenced(
    start: Callable[..., Run], operator: FakeOperator, token: Path
) -> None:
    """From a process's datagram to the operator, and from the operator's word to the process's end."""
    heartbeat = {"url": operator.url, "intervalSeconds": 0.1, "timeoutSeconds": 60}
    script = """
import json, os, socket, time
agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
agent.sendto(json.dumps({"step": 42, "steps": 100}).encode(), os.environ["MESHWRIGHT_AGENT_SOCKET"])
time.sleep(60)
"""
    run = start("python3", "-c", script, plan=a_plan(heartbeat=heartbeat), MESHWRIGHT_TOKEN_FILE=str(token))
    assert soon(lambda: any(report["progress"] == {"step": 42, "steps": 100} for report in operator.reports))
    operator.answer["attempt"] = 4
    assert run.wait() == 76
    assert run.last_words["step"] == 42
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats"]
