"""The last third of a pass: a decision's effects, carried out in order, each of them safe to repeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

from meshwright.cluster.api import METADATA_ONLY, ApiServer, Json
from meshwright.cluster.errors import AlreadyExists, ApiError, NotFound, refuses
from meshwright.cluster.projection import created_pod, project_pod
from meshwright.cluster.resources import (
    CONFIGMAPS,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    TRAININGJOBS,
    Resource,
)
from meshwright.cluster.shapes import Named, Reader
from meshwright.jobs import KnownJob
from meshwright.lifecycle.model import Action, CreatePod, DeleteJob, DeletePod, ReleaseDomains, StorePlan
from meshwright.relying import Refused, create_domain, put, release_domains
from meshwright.rendering.gang import FrozenPlan, PlanMismatch, pod_manifest, service_manifest
from meshwright_api import names

__all__ = ["Refused", "carry_out", "load_plan", "store_plan"]

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 128
"""Actions of one pass that are under way, which is more than the client's default number of calls in flight."""
_CREATED: Final = Reader(Named)
Clock = Callable[[], datetime]
T = TypeVar("T")


async def carry_out(api: ApiServer, known: KnownJob, actions: Sequence[Action], clock: Clock) -> None:
    """Carries the actions out; those of one kind at once, in rank order as far as the connections allow.

    Args:
        api: the API server.
        known: the job; what was done is noted in its memory, with the time of each answer.
        actions: of one decision.
        clock: of the cluster's time; thousands of calls take minutes.

    Raises:
        Refused: a pod was refused; the pods before it may exist.
        ApiError: something failed; everything that was done may be done again.
    """
    creates = [action for action in actions if isinstance(action, CreatePod)]
    deletes = [action for action in actions if isinstance(action, DeletePod)]
    for action in actions:
        if isinstance(action, StorePlan):
            await store_plan(api, known)
        elif isinstance(action, DeleteJob):
            await api.delete(TRAININGJOBS, known.metadata.namespace, known.metadata.name, uid=action.uid)
        elif isinstance(action, ReleaseDomains):
            await release_domains(api, known)
    await _for_all(deletes, lambda action: _delete_pod(api, known, action, clock))
    await _for_all(creates, lambda action: _create_pod(api, known, action, clock))


async def _for_all(actions: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Carries all out to their end, then raises the first error: a call that is cut off may have been carried out.

    The next begins when one has ended: the first pods of a large gang need not wait until all are rendered.
    """
    waiting, errors = iter(actions), list[Exception]()

    async def work() -> None:
        for action in waiting:
            try:
                await act(action)
            except Exception as error:
                errors.append(error)

    await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(actions)))))
    if errors:
        raise errors[0]


@contextmanager
def _refusals() -> Iterator[None]:
    """Tells a no of the API server from a failure to answer."""
    try:
        yield
    except ApiError as error:
        if refuses(error):
            raise Refused(error.message) from error
        raise


async def _create_pod(api: ApiServer, known: KnownJob, action: CreatePod, clock: Clock) -> None:
    frozen = known.memory.frozen
    assert frozen is not None, "a pod is created from a plan"
    who = action.identity
    manifest = pod_manifest(frozen, who.role, who.index)
    try:
        with _refusals():
            answer = await api.create(PODS, known.metadata.namespace, manifest, accept=METADATA_ONLY, reader=_CREATED)
    except AlreadyExists:
        await _adopt(api, known, manifest["metadata"]["name"])
        return
    pod = created_pod(answer, who)
    known.memory.created[pod.uid] = (pod, clock())
    known.memory.refusal = ""


async def _adopt(api: ApiServer, known: KnownJob, name: str) -> None:
    """The name is taken: by our own earlier write, which the cache will show; anything else has to go first.

    Raises:
        Refused: the pod belongs to somebody else, who is never deleted by us.
    """
    try:
        pod = await api.get(PODS, known.metadata.namespace, name)
    except NotFound:
        return
    if project_pod(pod).job_uid != known.metadata.uid:
        raise Refused(f"a pod named {name} exists that this job does not own; delete it to go on")


async def _delete_pod(api: ApiServer, known: KnownJob, action: DeletePod, clock: Clock) -> None:
    await api.delete(PODS, known.metadata.namespace, action.name, uid=action.uid, grace_seconds=action.grace_seconds)
    known.memory.deleted[action.uid] = clock()


async def store_plan(api: ApiServer, known: KnownJob) -> None:
    """Stores the plan in hand, the Service that its pods are found by, and what else they rely on.

    Raises:
        Refused: the API server refuses one of them.
        ApiError: something failed; all of it may be done again.
    """
    with _refusals():
        await _store(api, known)


async def _store(api: ApiServer, known: KnownJob) -> None:
    frozen = known.memory.frozen
    assert frozen is not None, "only a plan in hand can be stored"
    namespace = known.metadata.namespace
    for manifest in (frozen.placement_config_map(), frozen.plan_config_map()):
        await _create_exactly(api, CONFIGMAPS, namespace, manifest)
    try:
        await api.create(SERVICES, namespace, service_manifest(frozen))
    except AlreadyExists:
        logger.debug("the Service of %s/%s is there already", namespace, known.metadata.name)
    for rendered in frozen.objects:
        match rendered["kind"]:
            case "ConfigMap":
                await _create_exactly(api, CONFIGMAPS, namespace, dict(rendered))
            case "NetworkPolicy":
                await put(api, known, NETWORK_POLICIES, rendered)
            case "ComputeDomain":
                await create_domain(api, known, rendered)
    known.memory.stored = frozen.sha256
    if frozen.incarnation > 1:
        await _remove_older_plans(api, known, frozen.incarnation)


async def _remove_older_plans(api: ApiServer, known: KnownJob, incarnation: int) -> None:
    """Plans that the new one has replaced; nobody reads them any more."""
    meta = known.metadata
    query = {"labelSelector": f"{names.LABEL_JOB_UID}={meta.uid},{names.LABEL_COMPONENT}"}
    for item in (await api.list(CONFIGMAPS, meta.namespace, query=query)).items:
        there = item["metadata"]
        label = str((there.get("labels") or {}).get(names.LABEL_INCARNATION, ""))
        if label.isdecimal() and int(label) < incarnation:
            await api.delete(CONFIGMAPS, meta.namespace, there["name"], uid=there["uid"])


async def _create_exactly(api: ApiServer, resource: Resource, namespace: str, manifest: Json) -> None:
    """Creates the object; one of that name with other content is no plan of ours and is replaced."""
    metadata = manifest["metadata"]
    for _ in range(3):
        try:
            await api.create(resource, namespace, manifest)
            return
        except AlreadyExists:
            there = await _get(api, resource, namespace, metadata["name"])
        if there is None:
            continue
        if there.get("data") == manifest["data"]:
            return
        await api.delete(resource, namespace, metadata["name"], uid=there["metadata"]["uid"])
    raise ApiError(409, "AlreadyExists", f"{resource.plural} {metadata['name']} is made again by somebody else")


async def load_plan(api: ApiServer, known: KnownJob, incarnation: int, sha256: str) -> FrozenPlan | None:
    """The stored plan with exactly that hash; None if there is none, or if what is there is not it."""
    meta = known.metadata
    plan_map = await _get(api, CONFIGMAPS, meta.namespace, names.plan_name(meta.name, meta.uid, incarnation))
    place_map = await _get(api, CONFIGMAPS, meta.namespace, names.placement_name(meta.name, meta.uid, incarnation))
    if plan_map is None or place_map is None:
        return None
    try:
        frozen = FrozenPlan.load(plan_map, place_map, sha256)
    except PlanMismatch as error:
        logger.warning("the stored plan of %s/%s is not what was committed: %s", meta.namespace, meta.name, error)
        return None
    return frozen if frozen.sha256 == sha256 else None


async def _get(api: ApiServer, resource: Resource, namespace: str, name: str) -> Json | None:
    try:
        return await api.get(resource, namespace, name)
    except NotFound:
        return None
