"""What a namespace's Pod Security level refuses of a pod, found before there is one.

The API server has the last word when a pod is created; but then the gang's plan is committed and part of it may run.
https://kubernetes.io/docs/concepts/security/pod-security-standards
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
"""What containers may add under `baseline`."""
_VOLUMES: Final = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""Kinds of volumes that `restricted` allows."""


def violations(pod: Mapping[str, Any], level: str) -> Iterator[str]:
    """Fields of a pod's spec that the level refuses, each with its value: `hostNetwork: true`."""
    if level in (BASELINE, RESTRICTED):
        yield from _baseline(pod)
    if level == RESTRICTED:
        yield from _restricted(pod)


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in ("initContainers", "containers"):
        for container in pod.get(kind) or ():
            yield f"{kind}[{container.get('name')}]", container


def _contexts(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for at, container in _containers(pod):
        yield f"{at}.securityContext", container.get("securityContext") or {}


def _baseline(pod: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"{field}: true"
    for volume in pod.get("volumes") or ():
        if volume.get("hostPath") is not None:
            yield f"volumes[{volume.get('name')}].hostPath: {volume['hostPath'].get('path')}"
    for at, container in _containers(pod):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield f"{at}.ports.hostPort: {port['hostPort']}"
    for at, context in _contexts(pod):
        if context.get("privileged"):
            yield f"{at}.privileged: true"
        for name in (context.get("capabilities") or {}).get("add") or ():
            if name not in _CAPABILITIES:
                yield f"{at}.capabilities.add: {name}"
        if context.get("procMount") not in (None, "", "Default"):
            yield f"{at}.procMount: {context['procMount']}"
    for at, context in (("securityContext", pod.get("securityContext") or {}), *_contexts(pod)):
        if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
            yield f"{at}.seccompProfile.type: Unconfined"


def _restricted(pod: Mapping[str, Any]) -> Iterator[str]:
    whole = pod.get("securityContext") or {}
    for volume in pod.get("volumes") or ():
        for kind in volume.keys() - _VOLUMES - {"name", "hostPath"}:
            yield f"volumes[{volume.get('name')}].{kind}"
    if whole.get("runAsUser") == 0:
        yield "securityContext.runAsUser: 0"
    for at, context in _contexts(pod):
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{at}.allowPrivilegeEscalation, which must be false"
        capabilities = context.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            yield f"{at}.capabilities.drop, which must have ALL"
        for name in capabilities.get("add") or ():
            if name in _CAPABILITIES - {"NET_BIND_SERVICE"}:
                yield f"{at}.capabilities.add: {name}"
        if context.get("runAsUser") == 0:
            yield f"{at}.runAsUser: 0"
        own = context.get("runAsNonRoot")
        if not (whole.get("runAsNonRoot") if own is None else own):
            yield f"{at}.runAsNonRoot, which must be true"
        if (context.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type") is None:
            yield f"{at}.seccompProfile, which must be RuntimeDefault or Localhost"
