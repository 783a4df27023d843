"""`gang_create_vs_api_ceiling`: a gang's pods made by the operator, and the same pods by nobody's wits at all.

The clock of the operator runs from the TrainingJob's create: watch, placement, plan and pods are in it. The ceiling is
the bare API server at its best of several numbers of calls in flight. Scheduler and controllers are ended for both.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import figure
from benchmarks.scale.api import added
from benchmarks.scale.ground import CONTROLLERS, CORE, JOBS, SCHEDULER, Ground, a_job, ground
from meshwright.placement.solver import FirstFit
from meshwright.placement.supply.capacity import snapshot
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.rendering import gang as rendering
from meshwright_api.job import parse_job

IN_FLIGHT = (8, 16, 32, 64)
PATIENCE = 900.0


async def gang_create(pods: int, pairs: int) -> list[str]:
    """The figure's line, and one for each side's pods per second."""
    async with ground() as here:
        for name in ("gang", "ceiling"):
            await here.namespace(name)
        await here.nodes(pods)
        for program in (SCHEDULER, CONTROLLERS):
            await asyncio.to_thread(here.cluster.end_program, program)
        bodies = await _rendered(here, pods)
        ratios, ours, best = [], [], []
        for _ in range(pairs):
            ceiling = {count: await _bare(here, bodies, count) for count in IN_FLIGHT}
            mine = await _operator(here, pods)
            ratios.append(min(ceiling.values()) / mine)
            ours.append(pods / mine)
            best.append(min(ceiling, key=lambda count: ceiling[count]))
    context: dict[str, Any] = {
        "pods": pods,
        "pairs": pairs,
        "ratios": [round(r, 3) for r in ratios],
        "best_in_flight": best,
    }
    rate = statistics.median(ours)
    return [
        figure("gang_create_vs_api_ceiling", statistics.median(ratios), goal=0.9, better="higher", **context),
        figure("gang_create_pods_per_second", rate, unit="1/s", better="higher", pods=pods),
    ]


async def _rendered(here: Ground, pods: int) -> Sequence[bytes]:
    """The pods as the operator renders them, for a job that does not exist."""
    items = (await here.admin.get(f"{CORE}/nodes"))["items"]
    raw = a_job("gang", pods, gpus=8)
    raw["metadata"] |= {"namespace": "ceiling", "uid": "00000000-0000-4000-8000-000000000000"}
    job = parse_job(raw)
    request = rendering.request(job)
    placed = FirstFit().place(request, snapshot(map(NodeCapacity.parse, items), ()))
    frozen = rendering.freeze(
        job,
        attempt=1,
        incarnation=1,
        request=request,
        placed=placed,
        settings=rendering.RenderSettings.for_namespace({}, "baseline"),
    )
    return [json.dumps(rendering.pod_manifest(frozen, role, index)).encode() for role, index in frozen.members]


async def _bare(here: Ground, bodies: Sequence[bytes], in_flight: int) -> float:
    """Seconds of the API server alone."""
    path = f"{CORE}/namespaces/ceiling/pods"
    async with here.admin.watching(path, added) as tally:
        begun = time.perf_counter()
        await here.admin.create_all(path, bodies, in_flight)
        done = await tally.reaches(len(bodies), PATIENCE)
    await here.admin.remove_all(path)
    return done - begun


async def _operator(here: Ground, pods: int) -> float:
    """Seconds from the TrainingJob's create until its last pod was made."""
    path = f"{CORE}/namespaces/gang/pods"
    async with here.operator(), here.admin.watching(path, added) as tally:
        begun = time.perf_counter()
        await here.admin.create(f"{JOBS}/namespaces/gang/trainingjobs", a_job("gang", pods, gpus=8))
        done = await tally.reaches(pods, PATIENCE)
    await here.admin.remove_all(f"{JOBS}/namespaces/gang/trainingjobs")
    for kind in ("pods", "configmaps"):
        await here.admin.remove_all(f"{CORE}/namespaces/gang/{kind}")
    return done - begun
