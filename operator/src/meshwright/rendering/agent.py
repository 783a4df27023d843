"""The agent: one file of the standard library that starts, watches and reports the processes of a pod.

It comes with an init container, so that it need not be in the user's image, and wraps the trained command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meshwright.rendering.security import container_context
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.world import World
from meshwright_api import names
from meshwright_api.launch_plan import Heartbeat
from meshwright_api.reserved import AGENT_FOLDER, TOKEN_FOLDER

TOKEN_SECONDS: Final = 3600
"""Life of a token; the kubelet renews it in time."""
_PROGRAM: Final = f"{AGENT_FOLDER}/agent.pyz"
_VOLUME: Final = "meshwright-agent"
_TOKEN_VOLUME: Final = "meshwright-token"


def heartbeat(world: World, settings: RenderSettings, timeout_seconds: float) -> Heartbeat | None:
    """Where the job's agents report; None without agents, or without anybody who listens."""
    if not world.agent or not settings.heartbeat_url:
        return None
    return Heartbeat(
        url=settings.heartbeat_url,
        interval_seconds=settings.heartbeat_interval_seconds,
        timeout_seconds=timeout_seconds,
    )


def installer(settings: RenderSettings) -> dict[str, Any]:
    """The init container that puts the agent where the trained container finds it."""
    return {
        "name": _VOLUME,
        "image": settings.agent_image,
        "command": ["python", "-m", "meshwright_agent", "install", _PROGRAM],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _VOLUME, "mountPath": AGENT_FOLDER}],
        "securityContext": container_context(None),
    }


def wrapped(container: Mapping[str, Any]) -> dict[str, Any]:
    """The trained container with the agent around its command; its arguments stay where they are."""
    mounts = [
        {"name": _VOLUME, "mountPath": AGENT_FOLDER, "readOnly": True},
        {"name": _TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True},
    ]
    return {
        **container,
        "command": ["python3", _PROGRAM, "run", "--", *container["command"]],
        "volumeMounts": [*container["volumeMounts"], *mounts],
    }


def volumes() -> list[dict[str, Any]]:
    """The agent's file, and the token by which the operator knows the pod."""
    token = {"audience": names.TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [
        {"name": _VOLUME, "emptyDir": {}},
        {"name": _TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
