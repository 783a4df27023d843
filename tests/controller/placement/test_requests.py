from __future__ import annotations

from typing import Any

import pytest

from meshwright.placement.errors import InvalidQuantity
from meshwright.placement.supply.requests import pod_requests
from meshwright.placement.supply.resources import Resources


def c(name: str = "c", *, sidecar: bool = False, limits: Any = None, **requests: object) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": requests} if requests else {}
    if limits:
        resources["limits"] = limits
    return {"name": name, "resources": resources} | ({"restartPolicy": "Always"} if sidecar else {})


def pod(*containers: dict[str, Any], init: Any = (), **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), "initContainers": list(init), **spec}}


CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing asked": (pod(c()), {}),
    "containers run together": (
        pod(c(cpu="1", memory="1Gi"), c(cpu="500m", memory=5)),
        {"cpu": 1500, "memory": 2**30 + 5},
    ),
    "a limit stands in for a missing request": (
        pod(c(limits={"nvidia.com/gpu": 8, "cpu": 4})),
        {"gpus": 8, "cpu": 4000},
    ),
    "a request stands before its limit": (pod(c(cpu=1, limits={"cpu": 4})), {"cpu": 1000}),
    "a small init container is hidden": (pod(c(cpu=2), init=[c(cpu=1)]), {"cpu": 2000}),
    "a large init container counts": (pod(c(cpu=2, memory=9), init=[c(cpu=3, memory=1)]), {"cpu": 3000, "memory": 9}),
    "init containers run one after the other": (pod(c(cpu=1), init=[c(cpu=2), c(cpu=3)]), {"cpu": 3000}),
    "a sidecar runs on beside the containers": (pod(c(cpu=2), init=[c(cpu=1, sidecar=True)]), {"cpu": 3000}),
    "a sidecar runs on beside later init containers": (
        pod(c(cpu=1), init=[c(cpu=2, sidecar=True), c(cpu=3)]),
        {"cpu": 5000},
    ),
    "an init container before the sidecar runs without it": (
        pod(c(cpu=1), init=[c(cpu=4), c(cpu=2, sidecar=True)]),
        {"cpu": 4000},
    ),
    "sidecars add up": (
        pod(c(cpu=1), init=[c(cpu=1, sidecar=True), c(cpu=2, sidecar=True), c(cpu=1)]),
        {"cpu": 4000},
    ),
    "overhead comes on top": (pod(c(cpu=1), init=[c(cpu=2)], overhead={"cpu": "250m"}), {"cpu": 2250}),
    "the pod's own requests replace the sum": (
        pod(c(cpu=1, memory=10), resources={"requests": {"cpu": 5}}),
        {"cpu": 5000, "memory": 10},
    ),
    "overhead comes on top of the pod's own requests too": (
        pod(c(cpu=1), resources={"requests": {"cpu": 3}}, overhead={"cpu": 1}),
        {"cpu": 4000},
    ),
    "the pod's limit counts where no container asks": (
        pod(c(cpu=1), resources={"limits": {"cpu": 9, "memory": 7}}),
        {"cpu": 1000, "memory": 7},
    ),
    "the pod's own requests never cover devices": (
        pod(c(limits={"nvidia.com/gpu": 2}), resources={"requests": {"nvidia.com/gpu": 8}}),
        {"gpus": 2},
    ),
    "other devices": (
        pod(c(limits={"rdma/ib": 1, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1k"})),
        {"rdma/ib": 1, "hugepages-2Mi": 4 * 2**20, "ephemeral-storage": 1000},
    ),
    "explicit nulls": ({"spec": {"containers": [{"name": "c", "resources": None}], "initContainers": None}}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_as_kube_scheduler_does(case: str) -> None:
    manifest, expected = CASES[case]
    named = {key: expected.get(key, 0) for key in ("cpu", "memory", "gpus")}
    other = tuple(sorted((key, value) for key, value in expected.items() if key not in named))
    assert pod_requests(manifest) == Resources(**named, pods=1, other=other)


def test_a_resize_in_place_counts_the_greater_size_until_it_is_done() -> None:
    shrinking = pod(c(cpu=1), init=[c("s", sidecar=True, cpu=1)])
    shrinking["status"] = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": 1}, "resources": {"requests": {"cpu": 3}}}],
        "initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": 2}}],
    }
    assert pod_requests(shrinking).cpu == 5000


def test_a_request_that_is_no_quantity_is_named() -> None:
    with pytest.raises(InvalidQuantity, match="'lots' is no quantity"):
        pod_requests(pod(c(cpu="lots")))
