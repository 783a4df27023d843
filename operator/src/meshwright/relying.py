"""What must be there before a gang's first pod and was rendered with its plan: a NetworkPolicy, ComputeDomains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import AlreadyExists, Conflict, NotFound
from meshwright.cluster.resources import COMPUTE_DOMAINS, TRAININGJOBS, Resource
from meshwright.jobs import KnownJob
from meshwright_api import names
from meshwright_api.job import parse_metadata

_NO_DOMAINS: Final = (
    "the cluster serves no ComputeDomain (resource.nvidia.com/v1beta1), which the job's profile needs; install "
    "NVIDIA's DRA driver for GPUs, or set spec.profile to another one"
)


class Refused(Exception):
    """The API server refuses a pod of the gang, or what it relies on: a quota, Pod Security, a webhook says no."""


async def put(api: ApiServer, known: KnownJob, resource: Resource, manifest: Mapping[str, Any]) -> None:
    """Makes an object be as it is rendered. It is changed in place, since without it pods would be open for a moment.

    Raises:
        Refused: the name is taken by an object of somebody else.
        ApiError: the server refuses it, or failed.
    """
    namespace, name = known.metadata.namespace, manifest["metadata"]["name"]
    try:
        await api.create(resource, namespace, dict(manifest))
    except AlreadyExists:
        there = await api.get(resource, namespace, name)
        owners = there["metadata"].get("ownerReferences") or ()
        if not any(owner.get("uid") == known.metadata.uid for owner in owners):
            raise _foreign(manifest) from None
        if there.get("spec") != manifest["spec"]:
            await api.replace(resource, namespace, name, {**there, "spec": manifest["spec"]})


async def create_domain(api: ApiServer, known: KnownJob, manifest: Mapping[str, Any]) -> None:
    """Makes sure of a ComputeDomain, and first that the job cannot go before it. It is immutable, so it stays as it is.

    Raises:
        Refused: the server knows no such kind, or the name is taken by somebody else.
        Conflict: an earlier one of its name is still being deleted.
        ApiError: the server refuses it, or failed.
    """
    if names.FINALIZER not in known.metadata.finalizers:
        await _set_finalizers(api, known, (*known.metadata.finalizers, names.FINALIZER))
    namespace, name = known.metadata.namespace, manifest["metadata"]["name"]
    try:
        await api.create(COMPUTE_DOMAINS, namespace, dict(manifest))
    except AlreadyExists:
        there = (await api.get(COMPUTE_DOMAINS, namespace, name))["metadata"]
        if (there.get("labels") or {}).get(names.LABEL_JOB_UID) != known.metadata.uid:
            raise _foreign(manifest) from None
        if there.get("deletionTimestamp"):
            raise Conflict(409, "Conflict", f"ComputeDomain {name} is still being deleted") from None
    except NotFound:
        raise Refused(_NO_DOMAINS) from None


async def release_domains(api: ApiServer, known: KnownJob) -> None:
    """Deletes the job's ComputeDomains, then takes the finalizer from the job."""
    meta = known.metadata
    query = {"labelSelector": f"{names.LABEL_JOB_UID}={meta.uid}"}
    try:
        listing = await api.list(COMPUTE_DOMAINS, meta.namespace, query=query)
    except NotFound:
        found: list[Json] = []  # The kind itself is gone.
    else:
        found = list(listing.items)
    for item in found:
        await api.delete(COMPUTE_DOMAINS, meta.namespace, item["metadata"]["name"], uid=item["metadata"]["uid"])
    await _set_finalizers(api, known, tuple(word for word in meta.finalizers if word != names.FINALIZER))


async def _set_finalizers(api: ApiServer, known: KnownJob, finalizers: tuple[str, ...]) -> None:
    """Against the version that was read, or somebody else's finalizer could be lost."""
    meta = known.metadata
    patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": list(finalizers)}}
    answer = await api.patch(TRAININGJOBS, meta.namespace, meta.name, patch)
    known.raw, known.metadata = answer, parse_metadata(answer)


def _foreign(manifest: Mapping[str, Any]) -> Refused:
    what = f"{manifest['kind']} named {manifest['metadata']['name']}"
    return Refused(f"a {what} exists that this job does not own; delete it to go on")
