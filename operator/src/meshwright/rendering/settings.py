"""What rendering depends on beside the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.pod_security import POD_SECURITY_LABEL, RESTRICTED


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """The administrator's part of every pod."""

    run_as_non_root: bool = False
    """Sets `runAsNonRoot` where the template says nothing. Stock training images run as root and would not start."""

    trainer_image: str = ""
    """Image of the built-in trainer, where the template names none."""
    agent_image: str = ""
    """Image that the agent is copied from."""
    heartbeat_url: str = ""
    """Where agents report to; empty if nobody listens."""
    heartbeat_interval_seconds: float = 10.0
    """How often agents report."""
    isolate: bool = True
    """Whether a NetworkPolicy keeps other pods from the gang's."""
    scrapers: tuple[Mapping[str, Any], ...] = ()
    """NetworkPolicyPeers that may nevertheless read its metrics."""
    profile: Profile | None = None
    """What is laid under the job's templates."""
    pod_security: str = ""
    """The level that the namespace enforces; empty if it enforces none."""

    @classmethod
    def for_namespace(cls, labels: Mapping[str, str], pod_security: str = "") -> RenderSettings:
        """The settings for jobs of a namespace.

        Args:
            labels: of the namespace; one that enforces the restricted standard refuses pods that may run as root.
            pod_security: the chart's `jobs.podSecurity`; `restricted` asks for the same everywhere.
        """
        level = labels.get(POD_SECURITY_LABEL, "")
        return cls(run_as_non_root=RESTRICTED in (level, pod_security), pod_security=level)
