"""`operator_peak_mib` and `quiet_fleet_writes`: a large cluster that is half full of others' pods, and nothing to do.

Nodes are objects only; what a kubelet would write into pods' status is written here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import figure
from benchmarks.scale.ground import CORE, JOBS, Ground, a_job, a_template, ground

_USER = b'"username":"system:serviceaccount:meshwright-system:meshwright-operator"'
_GANG = 500
_NOW = "2026-01-01T00:00:00Z"


async def fleet(nodes: int, pods: int, quiet_seconds: float) -> list[str]:
    """The lines of memory and of writes."""
    async with ground(audit=True) as here:
        for name in ("ours", "others"):
            await here.namespace(name)
        await here.nodes(nodes)
        foreign, gangs = pods // 2, max(1, pods // 2 // _GANG)
        await here.admin.create_all(f"{CORE}/namespaces/others/pods", _foreign(foreign, nodes))
        async with here.operator() as operator:
            template = a_template(cpu="100m")
            for i in range(gangs):
                job = a_job(f"gang-{i}", pods // 2 // gangs, template=template)
                await here.admin.create(f"{JOBS}/namespaces/ours/trainingjobs", job)
            await _all_running(here, gangs, gangs * (pods // 2 // gangs))
            grown = operator.peak_mib()
        async with here.operator() as operator:
            await asyncio.sleep(30)
            writes = await _writes(here, quiet_seconds)
            fresh = operator.peak_mib()
        sizes = await _sizes(here)
    context: dict[str, Any] = {"nodes": nodes, "pods": pods, "foreign": foreign, "pod_bytes": sizes}
    return [
        figure(
            "operator_peak_mib",
            max(grown, fresh),
            unit="MiB",
            goal=300,
            grown=round(grown),
            fresh=round(fresh),
            **context,
        ),
        figure("quiet_fleet_writes", writes, unit="writes", goal=0, seconds=quiet_seconds, gangs=gangs),
    ]


def _foreign(count: int, nodes: int) -> Iterator[bytes]:
    """Pods of nobody we know, each on a node."""
    for i in range(count):
        pod = a_template(kilobytes=0.5, cpu="100m")
        pod |= {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"other-{i}"}}
        pod["spec"]["nodeName"] = f"node-{i % nodes:05}"
        yield json.dumps(pod).encode()


async def _all_running(here: Ground, gangs: int, pods: int, seconds: float = 1800.0) -> None:
    """Plays the kubelets until every gang is Running.

    Raises:
        TimeoutError: they are not in time.
    """
    done: set[str] = set()
    for _ in range(int(seconds)):
        items = (await here.admin.get(f"{CORE}/namespaces/ours/pods"))["items"]
        bound = [p["metadata"]["name"] for p in items if p["spec"].get("nodeName")]
        fresh = [name for name in bound if name not in done]
        await here.admin.patch_all((f"{CORE}/namespaces/ours/pods/{name}/status", _RUNNING) for name in fresh)
        done.update(fresh)
        if len(done) >= pods:
            jobs = (await here.admin.get(f"{JOBS}/namespaces/ours/trainingjobs"))["items"]
            if sum((job.get("status") or {}).get("phase") == "Running" for job in jobs) == gangs:
                return
        await asyncio.sleep(1)
    raise TimeoutError(f"{len(done)} of {pods} pods were bound in {seconds:.0f} s")


_RUNNING = json.dumps(
    {
        "status": {
            "phase": "Running",
            "startTime": _NOW,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "trainer",
                    "ready": True,
                    "restartCount": 0,
                    "image": "none",
                    "imageID": "none",
                    "state": {"running": {"startedAt": _NOW}},
                }
            ],
        }
    }
).encode()


async def _writes(here: Ground, seconds: float) -> int:
    """Calls of the operator that changed something within so many seconds; its Lease is not in the log."""
    with here.cluster.audit_log.open("rb") as log:
        log.seek(0, 2)
        await asyncio.sleep(seconds)
        return sum(
            _USER in line and b'"resource":"selfsubjectaccessreviews"' not in line for line in log.read().split(b"\n")
        )


async def _sizes(here: Ground) -> dict[str, int]:
    """What a pod of each half is as JSON."""
    found = {}
    for namespace in ("ours", "others"):
        items = (await here.admin.get(f"{CORE}/namespaces/{namespace}/pods?limit=1"))["items"]
        found[namespace] = len(json.dumps(items[0], separators=(",", ":"))) if items else 0
    return found
