"""From a spec to what decisions need of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.lifecycle.model import Job, Policy, RoleSize, Rule
from meshwright_api import names
from meshwright_api.job import TrainingJob
from meshwright_api.resolve import Resolved, resolve
from meshwright_api.spec import Agent
from meshwright_api.trainer_defaults import MESH_AXES

DEFAULT_GRACE_SECONDS = 30


def policy_of(job: TrainingJob) -> Policy:
    """The policy of a job that can be run."""
    spec, resolved = job.spec, resolve(job.spec)
    failure = spec.failure_policy
    return Policy(
        roles=tuple(RoleSize(role.name, role.replicas, _grace(role.template)) for role in resolved.roles),
        suspend=spec.suspend,
        max_restarts=failure.max_restarts,
        window_seconds=failure.window_seconds,
        max_disruptions=failure.max_disruptions,
        evidence_seconds=failure.evidence_seconds,
        rules=tuple(Rule(rule.action.value, rule.role or "", rule.exit_codes, rule.reasons) for rule in failure.rules),
        force_delete_on_lost_node=failure.force_delete_on_lost_node,
        startup_deadline_seconds=spec.health.startup_deadline_seconds,
        bind_deadline_seconds=spec.health.bind_deadline_seconds,
        ttl_seconds=spec.ttl_seconds_after_finished,
        active_deadline_seconds=spec.active_deadline_seconds,
        clean_pods=spec.clean_pod_policy.value,
        success=spec.success_policy.value,
        mesh=mesh_text(resolved),
        agent=resolved.agent is Agent.INJECT,
    )


def mesh_text(resolved: Resolved) -> str:
    """The mesh for people: `pipeline=4 data=4`, without the axes along which there is one rank."""
    axes = resolved.trainer["parallelism"] if resolved.trainer else {"data": resolved.world_size}
    wide = [f"{axis}={axes[axis]}" for axis in MESH_AXES if axes.get(axis, 1) > 1]
    return " ".join(wide) or "data=1"


def readable_job(job: TrainingJob) -> Job:
    """The job as a decision reads it, when its spec can be run."""
    meta = job.metadata
    return Job(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        policy=policy_of(job),
        deleting=meta.deletion_timestamp is not None,
        holds_domains=names.FINALIZER in meta.finalizers,
    )


def _grace(template: Mapping[str, Any]) -> int:
    spec = template.get("spec")
    grace = spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None
    return grace if isinstance(grace, int) and grace >= 0 else DEFAULT_GRACE_SECONDS
