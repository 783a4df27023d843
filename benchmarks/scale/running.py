"""`jobs_running_vs_job_controller`: many small jobs until every pod runs, beside Kubernetes' own Job controller.

Both have the same scheduler and the same fake nodes. The peer has 500 calls a second and syncs 20 jobs at once. Passes
of the operator are read from its own metrics while it does this.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import figure
from benchmarks.scale.api import Json, running
from benchmarks.scale.ground import CORE, JOBS, Ground, a_job, a_template, ground

BATCH = "/apis/batch/v1"
PATIENCE = 1800.0


async def jobs_running(jobs: int, pods: int, nodes: int, pairs: int) -> list[str]:
    """The lines of the ratio, of jobs per second, and of passes."""
    async with ground(nodes_live=True) as here:
        await here.namespace("ours")
        await here.namespace("theirs")
        await here.fake_nodes(nodes)
        ratios, rates, passes = [], [], ""
        for _ in range(pairs):
            theirs = await _until_running(here, "theirs", BATCH, "jobs", [_their_job(i, pods) for i in range(jobs)])
            async with here.operator() as operator:
                bodies = [a_job(f"job-{i}", pods, template=a_template(cpu="10m")) for i in range(jobs)]
                ours = await _until_running(here, "ours", JOBS, "trainingjobs", bodies)
                passes = await operator.metrics()
            ratios.append(theirs / ours)
            rates.append(jobs / ours)
    context: dict[str, Any] = {"jobs": jobs, "pods_each": pods, "pairs": pairs, "ratios": [round(r, 3) for r in ratios]}
    return [
        figure("jobs_running_vs_job_controller", statistics.median(ratios), goal=1.0, better="higher", **context),
        figure("jobs_running_per_second", statistics.median(rates), unit="1/s", better="higher", **context),
        *(
            figure(f"pass_p{share}_ms", 1000 * quantile(passes, "meshwright_pass_seconds", share / 100), unit="ms")
            for share in (50, 99)
        ),
    ]


async def _until_running(here: Ground, namespace: str, group: str, kind: str, items: Sequence[Json]) -> float:
    """Seconds from the first create until the last pod runs; everything is removed afterwards."""
    pods = f"{CORE}/namespaces/{namespace}/pods"
    path = f"{group}/namespaces/{namespace}/{kind}"
    bodies = [json.dumps(item).encode() for item in items]
    wanted = sum(_pods_of(item) for item in items)
    async with here.admin.watching(pods, running) as tally:
        begun = time.perf_counter()
        await here.admin.create_all(path, bodies, 16)
        done = await tally.reaches(wanted, PATIENCE)
    for collection in (path, pods, f"{CORE}/namespaces/{namespace}/configmaps"):
        await here.admin.remove_all(collection)
    return done - begun


def _pods_of(item: Json) -> int:
    spec = item["spec"]
    return int(spec["parallelism"] if "parallelism" in spec else spec["roles"][0]["replicas"])


def _their_job(index: int, pods: int) -> Json:
    template = a_template(cpu="10m")
    template["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"job-{index}"}, "spec": spec}


def quantile(metrics: str, name: str, share: float) -> float:
    """A quantile of a histogram in Prometheus' text form, by its rule: linear within a bucket.

    Raises:
        ValueError: the histogram is empty or not there.
    """
    found = re.findall(rf'^{name}_bucket{{[^}}]*le="([^"]+)"}} (\S+)$', metrics, re.MULTILINE)
    buckets = [(float(edge), float(count)) for edge, count in found]
    if not buckets or not buckets[-1][1]:
        raise ValueError(f"no {name} in these metrics")
    rank, low, below = share * buckets[-1][1], 0.0, 0.0
    for edge, count in buckets:
        if count >= rank:
            return low if edge == float("inf") else low + (edge - low) * (rank - below) / max(count - below, 1e-12)
        low, below = edge, count
    return low
