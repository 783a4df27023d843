"""Whether the parts of a spec agree with each other and with the limits of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshwright_api import reserved
from meshwright_api.errors import Problem
from meshwright_api.names import MAX_DNS_LABEL
from meshwright_api.resolve import Resolved
from meshwright_api.spec import MAX_PODS, TrainingJobSpec, Volume
from meshwright_api.wishes import PlacementAxis

EXAMPLE = "{name: worker, replicas: 2, template: {spec: {containers: [{name: trainer, image: IMAGE}]}}}"
"""A role that works."""
JOB_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""The headless Service bears the job's name, and a Service's name begins with a letter and has no dots."""
INCARNATION_DIGITS = 5
"""Room in a pod's name for the incarnation: 99,999 gangs of one job."""
NAME_OVERHEAD = len("-12345") + len("-") + len("-") + len("-") + INCARNATION_DIGITS
"""What `<job>-<uid5>-<role>-<index>-<incarnation>` has beside job, role and index."""


def semantic_problems(spec: TrainingJobSpec, resolved: Resolved, name: str) -> Iterator[Problem]:
    """Problems of a spec whose form is right."""
    yield from _job_name(resolved, name)
    yield from _size(resolved)
    yield from _unique(spec)
    yield from _rules(spec)
    yield from _placement(spec)
    yield from _role_wishes(spec)
    yield from _volumes(spec)


def longest_job_name(resolved: Resolved) -> int:
    """Length of the longest job name whose pods' names are DNS labels, for the worst role and its highest index."""
    worst = max((len(r.name) + len(str(max(r.replicas, 1) - 1)) for r in resolved.roles), default=1)
    return MAX_DNS_LABEL - NAME_OVERHEAD - worst


def _job_name(resolved: Resolved, name: str) -> Iterator[Problem]:
    if not re.fullmatch(JOB_NAME, name):
        yield Problem("metadata.name", f"{name} cannot name a Service and pods; use lower-case letters, digits and "
                      "hyphens, a letter first, for example gpt3-1b3")  # fmt: skip
    limit = longest_job_name(resolved)
    if len(name) > limit:
        yield Problem("metadata.name", f"{name} has {len(name)} characters; at most {limit} are allowed, so that every "
                      f"pod's name JOB-xxxxx-ROLE-INDEX-INCARNATION fits in {MAX_DNS_LABEL}; shorten the job's or a "
                      "role's name")  # fmt: skip


def _size(resolved: Resolved) -> Iterator[Problem]:
    pods = resolved.pods
    if not resolved.roles:
        yield Problem("spec.roles", f"there is no role; give one with a container and an image, for example {EXAMPLE}")
    elif pods == 0:
        yield Problem("spec.roles", "the job has 0 pods; give a role at least 1 replica. To pause a job set "
                      "spec.suspend: true")  # fmt: skip
    elif pods > MAX_PODS:
        yield Problem("spec.roles", f"the roles have {pods} replicas in all; at most {MAX_PODS} are allowed")


def _unique(spec: TrainingJobSpec) -> Iterator[Problem]:
    for field, names in (
        ("spec.roles", [role.name for role in spec.roles]),
        ("spec.volumes", [volume.name for volume in spec.volumes]),
    ):
        for name in sorted({n for n in names if names.count(n) > 1}):
            yield Problem(field, f"{name} is there {names.count(name)} times; give each a name of its own")


def _rules(spec: TrainingJobSpec) -> Iterator[Problem]:
    roles = [role.name for role in spec.roles]
    for i, rule in enumerate(spec.failure_policy.rules):
        at = f"spec.failurePolicy.rules[{i}]"
        if not rule.exit_codes and not rule.reasons:
            yield Problem(at, "matches nothing; give exitCodes or reasons, for example exitCodes: [3]")
        if rule.role is not None and rule.role not in roles:
            yield Problem(f"{at}.role", f"there is no role {rule.role}; use one of {', '.join(roles)}")


def _placement(spec: TrainingJobSpec) -> Iterator[Problem]:
    constraints = spec.placement.constraints
    for i, constraint in enumerate(constraints):
        at = f"spec.placement.constraints[{i}]"
        if spec.trainer is None and constraint.axis is not PlacementAxis.PODS:
            yield Problem(f"{at}.axis", f"{constraint.axis}: without spec.trainer the mesh is not known; use "
                          "axis: pods, which is all pods of the job")  # fmt: skip
        if any((c.axis, c.within) == (constraint.axis, constraint.within) for c in constraints[:i]):
            yield Problem(at, f"{constraint.axis} within {constraint.within} is there twice; leave one out")


def _role_wishes(spec: TrainingJobSpec) -> Iterator[Problem]:
    roles = [role.name for role in spec.roles]
    for i, role in enumerate(spec.roles):
        if role.near is not None and (role.near == role.name or role.near not in roles):
            others = ", ".join(name for name in roles if name != role.name)
            instead = f"use one of {others}" if others else "leave it out"
            yield Problem(f"spec.roles[{i}].near", f"there is no other role {role.near}; {instead}")
        if role.spread is not None and spec.trainer is not None:
            yield Problem(f"spec.roles[{i}].spread", "is for your own image; with spec.trainer use "
                          "spec.placement.spread, which keeps replicas whole")  # fmt: skip


def _volumes(spec: TrainingJobSpec) -> Iterator[Problem]:
    paths = [volume.mount_path for volume in spec.volumes]
    for i, volume in enumerate(spec.volumes):
        at = f"spec.volumes[{i}]"
        yield from _volume(volume, at)
        if volume.mount_path in paths[:i]:
            yield Problem(f"{at}.mountPath", f"{volume.mount_path} is taken by another volume; mount elsewhere")


def _volume(volume: Volume, at: str) -> Iterator[Problem]:
    sources = list(volume.source())
    if len(sources) != 1:
        yield Problem(at, f"{volume.name} has {len(sources)} sources but needs exactly one, for example "
                      "persistentVolumeClaim: {claimName: NAME}")  # fmt: skip
    if not volume.mount_path.startswith("/") or ":" in volume.mount_path:
        yield Problem(f"{at}.mountPath", f"{volume.mount_path} is no absolute path without colons; use for example "
                      "/checkpoints")  # fmt: skip
    if reserved.is_mount(volume.mount_path):
        yield Problem(f"{at}.mountPath", f"{volume.mount_path} is Meshwright's; mount elsewhere, for example at /data")
    if volume.name.startswith(reserved.NAME_PREFIX):
        yield Problem(f"{at}.name", f"{volume.name}: names that begin with `{reserved.NAME_PREFIX}` are Meshwright's; "
                      "choose another")  # fmt: skip
