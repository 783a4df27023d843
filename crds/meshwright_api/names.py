"""Every word that objects carry on the API server: group, labels, annotations, reasons, condition types.

Reference pages and tests read this module, so a word is written once, here, with what it means.
"""

from __future__ import annotations

import hashlib
from typing import Final

GROUP: Final = "meshwright.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TrainingJob"
PLURAL: Final = "trainingjobs"

LABEL_JOB: Final = f"{GROUP}/job"
"""Name of the TrainingJob a pod, Service or ConfigMap belongs to; for people and selectors, never for identity."""
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
"""UID of that TrainingJob: identity, together with the controller ownerReference."""
LABEL_ROLE: Final = f"{GROUP}/role"
"""Name of the role (`worker`, ...)."""
LABEL_INDEX: Final = f"{GROUP}/index"
"""Index of the pod in its role, from 0."""
LABEL_INCARNATION: Final = f"{GROUP}/incarnation"
"""Number of the pod's incarnation; one (role, index, incarnation) is created at most once."""
LABEL_COMPONENT: Final = f"{GROUP}/component"
"""What an object that is no pod of the gang is for: `plan`, `placement` or `fabric`."""

ANNOTATION_CONTAINER: Final = f"{GROUP}/container"
"""Of pods whose trained container is not called `trainer`: its name, since others may be injected beside it."""
ANNOTATION_PLAN: Final = f"{GROUP}/plan-sha256"
"""SHA-256 of the committed plan that an object was rendered from."""

ANNOTATION_PREEMPTION_POLICY: Final = f"{GROUP}/preemption-policy"
"""On a PriorityClass: whether gangs of that class may take the places of whole gangs of lower priority,
`PreemptLowerPriority` or `Never`. Without it the class's own preemptionPolicy, which kube-scheduler obeys too, says."""

ANNOTATION_PREEMPTIBLE: Final = f"{GROUP}/preemptible"
"""On a PriorityClass: `false` if the places of its gangs may be taken by nobody."""

ANNOTATION_ADDRESS: Final = f"{GROUP}/heartbeat-address"
"""On the leader's Lease: the URL at which agents reach the process that holds it."""

FINALIZER: Final = f"{GROUP}/compute-domains"
"""On a job with ComputeDomains, and on no other: they must be deleted after its pods, and by the operator."""

FIELD_MANAGER: Final = "meshwright"

TOKEN_AUDIENCE: Final = "meshwright"
"""Whom the token of a pod is for: nobody else accepts it, and the operator accepts no other from an agent."""

# Condition types of a TrainingJob.
ACCEPTED: Final = "Accepted"
"""The spec can be run. False: the message names the field, its value and a value that works."""
SCHEDULED: Final = "Scheduled"
"""The gang has its place. False: the message says what is missing, with counts."""
RUNNING: Final = "Running"
"""Every pod of the gang runs."""
SUSPENDING: Final = "Suspending"
"""`spec.suspend` is set and pods are still stopping."""
SUSPENDED: Final = "Suspended"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
"""Terminal; reason and message name the cause, the culprit and the budget."""

# Reasons (of conditions, incidents and events).
REASON_VALID: Final = "Valid"
REASON_INVALID_SPEC: Final = "InvalidSpec"
REASON_WAITING_FOR_CAPACITY: Final = "WaitingForCapacity"
REASON_WAITING_FOR_TURN: Final = "WaitingForTurn"
"""The gang would fit, but its nodes are kept for jobs ahead in the queue."""
REASON_PREEMPTED: Final = "Preempted"
"""The gang gave its places to one of higher priority, and is back in the queue."""
REASON_WAITING_FOR_OPERATOR: Final = "WaitingForSnapshot"
REASON_QUOTA_EXCEEDED: Final = "QuotaExceeded"
REASON_POD_REFUSED: Final = "PodRefused"
"""The API server refused a pod of ours; the message is the server's."""
REASON_UNKNOWN_PROFILE: Final = "UnknownProfile"
"""`spec.profile` names a profile that the administrator has not given; the message lists those there are."""
REASON_POD_SECURITY: Final = "PodSecurityConflict"
"""The namespace's Pod Security would refuse the gang's pods; the message names the field and the level."""
REASON_PORTS_TAKEN: Final = "PortsTaken"
"""Pods on the host network find no free ports on their nodes."""
REASON_PLACED: Final = "Placed"
REASON_STARTING: Final = "Starting"
REASON_ALL_PODS_RUNNING: Final = "AllPodsRunning"
REASON_RESTARTING: Final = "Restarting"
REASON_SUSPEND_REQUESTED: Final = "SuspendRequested"
REASON_RESUMED: Final = "Resumed"
REASON_COMPLETED: Final = "Completed"
REASON_RULE: Final = "FailurePolicyRule"
REASON_MAX_RESTARTS: Final = "MaxRestartsExceeded"
REASON_MAX_DISRUPTIONS: Final = "MaxDisruptionsExceeded"
REASON_ACTIVE_DEADLINE: Final = "ActiveDeadlineExceeded"

MAX_DNS_LABEL: Final = 63


def uid5(uid: str) -> str:
    """Five characters of a job's UID, so that a job that is made again under its name collides with nothing.

    Hashed, because the first characters of a UID need not be spread evenly.
    """
    return hashlib.sha256(uid.encode()).hexdigest()[:5]


def gang_name(job: str, uid: str) -> str:
    """The prefix of all derived names, and the name of the headless Service: `<job>-<uid5>`."""
    return f"{job}-{uid5(uid)}"


def pod_name(job: str, uid: str, role: str, index: int, incarnation: int) -> str:
    """`<job>-<uid5>-<role>-<index>-<incarnation>`; also the pod's hostname."""
    return f"{gang_name(job, uid)}-{role}-{index}-{incarnation}"


def parse_pod_name(name: str, job: str, uid: str) -> tuple[str, int, int] | None:
    """Role, index and incarnation of a pod of the job; None if no such pod could have that name.

    Read from the name, since labels can be changed on a living pod and its name cannot.
    """
    prefix = gang_name(job, uid) + "-"
    role, _, numbers = name.removeprefix(prefix).rpartition("-")
    role, _, index = role.rpartition("-")
    whole = all(text.isascii() and text.isdecimal() and len(text) < 10 for text in (index, numbers))
    return (role, int(index), int(numbers)) if name.startswith(prefix) and role and whole else None


def plan_name(job: str, uid: str, incarnation: int) -> str:
    """Name of the ConfigMap that bootstraps the pods of an incarnation."""
    return f"{gang_name(job, uid)}-plan-{incarnation}"


def variables_name(job: str, uid: str, incarnation: int) -> str:
    """Name of the ConfigMap with a profile's variables, for containers that read others from maps."""
    return f"{gang_name(job, uid)}-fabric-{incarnation}"


def compute_domain_name(job: str, uid: str, clique: str) -> str:
    """Name of the ComputeDomain of a job's pods in one NVLink domain, and of the claim template that comes with it."""
    return f"{gang_name(job, uid)}-{hashlib.sha256(clique.encode()).hexdigest()[:8]}"


def placement_name(job: str, uid: str, incarnation: int) -> str:
    """Name of the ConfigMap, read by the operator alone, with nodes and the frozen rendering of an incarnation."""
    return f"{gang_name(job, uid)}-placement-{incarnation}"
