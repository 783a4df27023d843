"""The server over HTTP: who is heard, who is refused and how, and what reaches the board."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from datetime import UTC, datetime

import pytest
from aiohttp import web

from meshwright.heartbeats import identity as identity_module
from meshwright.heartbeats.keys import derive
from meshwright.heartbeats.silence import Verdict
from meshwright.progress import Progress
from meshwright.rendering.gang import RenderSettings
from meshwright_api import names
from tests.controller.cluster.builders import JOB_UID
from tests.controller.cluster.stub_kube import status
from tests.controller.heartbeats.conftest import Ground, a_job, a_report
from tests.controller.rendering.jobs import a_job as rendered_job
from tests.controller.rendering.jobs import a_role, frozen


def secret(ground: Ground) -> bytes:
    found = ground.stub.get("secrets", "operator-keys", "meshwright-system")
    assert found is not None
    return base64.b64decode(found["data"]["master"])


async def test_a_report_is_answered_and_reaches_the_board(ground: Ground) -> None:
    code, answer = await ground.post(a_report())
    assert code == 200
    assert answer == {
        "attempt": 3,
        "planSHA256": "ab" * 32,
        "rank0": {"ip": ""},
        "key": derive(secret(ground), JOB_UID, 3),
        "intervalSeconds": 10.0,
    }
    assert ground.board.latest(JOB_UID) == Progress(
        attempt=3,
        incarnation=1,
        step=42,
        loss=2.5,
        checkpoint_step=40,
        checkpoint_time=datetime(2026, 11, 29, 20, 0, tzinfo=UTC),
    )
    assert ground.outcomes == {"accepted": 1}


async def test_a_pod_of_an_older_attempt_learns_of_the_newer_and_gets_no_key_of_it(ground: Ground) -> None:
    ground.jobs.put({**a_job(attempt=4, incarnation=2), "metadata": a_job()["metadata"] | {"resourceVersion": "6"}})
    _, answer = await ground.post(a_report())
    assert answer["attempt"] == 4
    assert answer["key"] == derive(secret(ground), JOB_UID, 3)
    code, answer = await ground.post(a_report(attempt=5))
    assert (code, answer["reason"]) == (503, "not_ready")
    assert "key" not in answer


async def test_agents_are_told_rank_0s_address_and_its_silence_is_the_plans(ground: Ground) -> None:
    settings = RenderSettings(agent_image="operator:1", heartbeat_url="http://operator:8082")
    job = rendered_job(a_role(2), name="gpt", uid=JOB_UID, agent="Inject", health={})
    known = ground.jobs.get(JOB_UID)
    assert known is not None
    known.memory.frozen = frozen(job, attempt=3, settings=settings)
    _, answer = await ground.post(a_report(1), "pod-1")
    assert answer["rank0"] == {"ip": "10.0.0.0"}
    ground.clock[0] += 119
    assert ground.server.verdicts() == {Verdict.HEARD: 1}
    ground.clock[0] += 2
    assert ground.server.verdicts() == {Verdict.SILENT: 1}


async def test_all_pods_get_the_same_key_and_it_is_made_once(ground: Ground) -> None:
    answers = await asyncio.gather(*(ground.post(a_report(i), f"pod-{i}") for i in (0, 1)))
    assert {code for code, _ in answers} == {200}
    assert len({answer["key"] for _, answer in answers}) == 1
    assert len(ground.stub.requests("POST", "/secrets")) == 1


async def test_a_key_that_is_there_is_used_and_an_empty_secret_filled(ground: Ground) -> None:
    metadata = {"name": "operator-keys", "namespace": "meshwright-system"}
    ground.stub.put("secrets", {"metadata": metadata, "type": "Opaque"})
    await ground.post(a_report())
    assert len(secret(ground)) == 32
    assert ground.stub.requests("POST", "/secrets") == []


async def test_of_two_leaders_that_find_no_key_one_wins(ground: Ground) -> None:
    metadata = {"name": "operator-keys", "namespace": "meshwright-system"}
    theirs, reviewing = base64.b64encode(b"x" * 32).decode(), ground.stub.fault
    assert reviewing is not None

    def slow(request: web.Request) -> web.StreamResponse | None:
        if request.method == "PUT" and "/secrets/" in request.path:
            ground.stub._put("secrets", {"metadata": metadata, "data": {"master": theirs}})
        return reviewing(request)

    ground.stub.put("secrets", {"metadata": metadata, "type": "Opaque"})
    ground.stub.fault = slow
    assert (await ground.post(a_report()))[0] == 503
    ground.stub.fault = reviewing
    _, answer = await ground.post(a_report())
    assert answer["key"] == derive(b"x" * 32, JOB_UID, 3)


@pytest.mark.parametrize(
    ("case", "token", "index", "code", "reason"),
    [
        ("no token", "", 0, 401, "unauthenticated"),
        ("a made-up token", "nonsense", 0, 401, "unauthenticated"),
        ("another job's pod", "foreign", 0, 403, "forbidden"),
        ("a pod of another namespace that claims to be the job's", "claimant", 1, 403, "forbidden"),
        ("a pod under its neighbour's name", "pod-1", 0, 403, "forbidden"),
    ],
)
async def test_who_is_refused(ground: Ground, case: str, token: str, index: int, code: int, reason: str) -> None:
    found, answer = await ground.post(a_report(index), token)
    assert (found, answer["reason"]) == (code, reason), case
    assert ground.board.latest(JOB_UID) is None
    assert ground.outcomes == {reason: 1}
    assert ground.stub.requests("POST", "/secrets") == []


async def test_an_unknown_job_and_an_unknown_path_are_not_found(ground: Ground) -> None:
    assert (await ground.post(a_report(), uid="nobody"))[0] == 404
    code, text = await ground.get("/v2/")
    assert (code, json.loads(text)["reason"]) == (404, "unknown")


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b"nonsense", 400, "JSON"),
        (json.dumps(a_report(attempt="3")).encode(), 400, "attempt"),
        (json.dumps(a_report(progress={"step": -1})).encode(), 400, "step"),
        (b" " * (64 * 1024 + 1), 413, "65536"),
    ],
)
async def test_a_body_that_is_no_report_is_named(ground: Ground, body: bytes, code: int, named: str) -> None:
    found, answer = await ground.post(body)
    assert found == code
    assert named in answer["error"]


async def test_a_standby_says_where_the_leader_is_and_asks_nobody(ground: Ground) -> None:
    ground.lead.leads = False
    assert await ground.post(a_report()) == (
        421,
        {"error": "this operator does not lead", "reason": "not_leading", "leader": "http://10.0.0.9:8082"},
    )
    assert ground.reviews == []


async def test_a_token_is_asked_about_once_a_minute(ground: Ground) -> None:
    for _ in range(3):
        await ground.post(a_report())
        await ground.post(a_report(), "nonsense")
    assert ground.reviews == ["pod-0", "nonsense"]
    ground.clock[0] += 61
    await ground.post(a_report())
    assert ground.reviews == ["pod-0", "nonsense", "pod-0"]


async def test_what_is_remembered_of_tokens_is_bounded_and_no_token(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_module, "MAX_CACHED", 2)
    for token in ("pod-0", "a" * 30, "b" * 30, "pod-0"):
        await ground.post(a_report(), token)
    assert len(ground.identities._known) == 2
    assert ground.reviews.count("pod-0") == 2
    assert all(len(key) == 32 for key in ground.identities._known)


async def test_made_up_tokens_do_not_take_the_api_server_away(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_module, "MAX_ASKED", 0)
    code, answer = await ground.post(a_report(), "made-up")
    assert (code, answer["reason"]) == (429, "too_many")


async def test_when_the_api_server_fails_it_is_no_verdict(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    reviewing = ground.stub.fault
    ground.stub.fault = lambda _: status(500, "InternalError", "etcd is away")
    with caplog.at_level(logging.WARNING):
        code, answer = await ground.post(a_report())
    assert (code, answer["reason"]) == (503, "not_ready")
    ground.stub.fault = reviewing
    assert (await ground.post(a_report()))[0] == 200, "the failure is not remembered"
    assert "pod-0" not in caplog.text.replace("worker", "")


async def test_jobs_that_are_heard_and_that_fall_silent_are_counted(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ground.server._directory, "heartbeat_timeout", lambda _: 120.0)
    assert ground.server.verdicts() == {}
    await ground.post(a_report())
    assert ground.server.verdicts() == {Verdict.HEARD: 1}
    ground.clock[0] += 121
    assert ground.server.verdicts() == {Verdict.SILENT: 1}
    ground.lead.term = 2
    await ground.post(a_report(), "pod-1")  # Refused, and yet the new term begins to listen.
    assert ground.server.verdicts() == {}


async def test_a_plan_is_given_to_the_jobs_pods_alone(ground: Ground) -> None:
    """The stored plan is not the committed one here, so there is none to give; the cluster test has one."""
    assert (await ground.get(f"/v1/jobs/{JOB_UID}/plan/3"))[0] == 404
    assert (await ground.get(f"/v1/jobs/{JOB_UID}/plan/x"))[0] == 404
    assert (await ground.get(f"/v1/jobs/{JOB_UID}/plan/3", "foreign"))[0] == 403
    assert (await ground.get(f"/v1/jobs/{JOB_UID}/plan/3", "nonsense"))[0] == 401
    assert ground.stub.requests("GET", f"/configmaps/{names.plan_name('gpt', JOB_UID, 1)}")
