"""`gang_restart_seconds`: one pod of a large gang fails; how long until every pod of the next incarnation runs."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from benchmarks.figures import figure
from benchmarks.scale.api import MERGE, running
from benchmarks.scale.ground import CORE, JOBS, Ground, a_job, a_template, ground

PATIENCE = 1800.0
_EVIDENCE_SECONDS = 1
_JOB = f"{JOBS}/namespaces/gang/trainingjobs/gang"


async def gang_restart(pods: int) -> list[str]:
    """The figure's line. Fake nodes end the old pods and start the new ones, and their time is in it."""
    async with ground(nodes_live=True) as here:
        await here.namespace("gang")
        nodes = max(2, -(-pods // 100))
        await here.fake_nodes(nodes)
        path = f"{CORE}/namespaces/gang/pods"
        async with here.operator(), here.admin.watching(path, running) as tally:
            policy = {"evidenceSeconds": _EVIDENCE_SECONDS, "maxRestarts": 3}
            job = a_job("gang", pods, template=a_template(cpu="100m"), failurePolicy=policy)
            begun = time.perf_counter()
            await here.admin.create(f"{JOBS}/namespaces/gang/trainingjobs", job)
            started = await tally.reaches(pods, PATIENCE) - begun
            await asyncio.wait_for(_runs(here), PATIENCE)
            victim = min(tally.seen)
            broken = time.perf_counter()
            script = json.dumps({"metadata": {"annotations": {"fake.devcluster/exit": "1"}}}).encode()
            await here.admin.call("PATCH", f"{path}/{victim}", script, MERGE)
            again = await tally.reaches(2 * pods, PATIENCE) - broken
    context: dict[str, Any] = {"pods": pods, "start_seconds": round(started, 1), "evidence_seconds": _EVIDENCE_SECONDS}
    return [figure("gang_restart_seconds", again, unit="s", **context)]


async def _runs(here: Ground) -> None:
    """Waits until the operator has seen that all pods run: what fails before is a start that failed."""
    while (await here.admin.get(_JOB)).get("status", {}).get("phase") != "Running":
        await asyncio.sleep(0.2)
