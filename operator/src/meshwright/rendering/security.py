"""Security defaults of pods, where the template says nothing.

Stock training images run as root, so these are what such an image survives: the runtime's seccomp profile, no
capabilities, no way to gain privileges. A template that asks for more is not touched; whether it may have it is for the
namespace's Pod Security to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pod_context(context: Mapping[str, Any] | None, *, run_as_non_root: bool) -> dict[str, Any]:
    """The pod's security context with our defaults."""
    filled = {"seccompProfile": {"type": "RuntimeDefault"}} | _given(context)
    return {"runAsNonRoot": True} | filled if run_as_non_root else filled


def container_context(context: Mapping[str, Any] | None) -> dict[str, Any]:
    """A container's security context with our defaults."""
    given = _given(context)
    capabilities = _given(given.get("capabilities"))
    filled = {**given, "capabilities": {"drop": ["ALL"]} | capabilities}
    # The API server refuses to combine these, and the template's wish is plain.
    powerful = given.get("privileged") or {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(capabilities.get("add") or ())
    return filled if powerful else {"allowPrivilegeEscalation": False} | filled


def _given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (values or {}).items() if value is not None}
