"""The environment, command and arguments of a container."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.node.errors import NotYet
from devcluster.node.expansion import expand, expand_all
from devcluster.node.fields import Site, field_value, resource_value
from devcluster.node.model import Container, EnvVar, FieldRef, KeyRef, Pod, ResourceRef

Configs = Mapping[tuple[str, str], Mapping[str, bytes] | None]
"""(kind, name) of each ConfigMap or Secret that a pod names, to its entries; None: it does not exist."""


@dataclass(frozen=True)
class Execution:
    """What is executed, with nothing left to resolve."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def entries(kind: str, document: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of a ConfigMap's or Secret's JSON."""
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in (document.get("data") or {}).items()}
    text = {key: value.encode() for key, value in (document.get("data") or {}).items()}
    return text | {key: base64.b64decode(value) for key, value in (document.get("binaryData") or {}).items()}


def configs_of(container: Container) -> frozenset[tuple[str, str]]:
    """The ConfigMaps and Secrets that its environment needs."""
    keyed = {(var.source.kind, var.source.name) for var in container.env if isinstance(var.source, KeyRef)}
    return frozenset(keyed | {(one.kind, one.name) for one in container.env_from})


def execution(
    pod: Pod, container: Container, site: Site, configs: Configs, base: Mapping[str, str], services: Mapping[str, str]
) -> Execution:
    """Resolves a container's environment, then its command with it.

    Args:
        base: What an image and a container runtime would give (PATH, HOSTNAME); the container's own entries win.
        services: Service variables; they may be referred to, and the container's own entries win.

    Raises:
        NotYet: A ConfigMap, Secret or key that is not optional is missing.
    """
    env = _from_whole_configs(container, configs)
    for var in container.env:
        value = expand(var.value, {**services, **env}) if var.value else _sourced(pod, container, site, configs, var)
        if value is not None:
            env[var.name] = value
    env = {**services, **env}
    argv = expand_all((*container.command, *container.args), env)
    return Execution(argv, {**base, **env})


def _from_whole_configs(container: Container, configs: Configs) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.env_from:
        content = _config(configs, source.kind, source.name, source.optional)
        env |= {source.prefix + key: value.decode(errors="replace") for key, value in (content or {}).items()}
    return env


def _sourced(pod: Pod, container: Container, site: Site, configs: Configs, var: EnvVar) -> str | None:
    match var.source:
        case FieldRef(path):
            return field_value(pod, site, path)
        case ResourceRef(name, resource, divisor):
            return resource_value(pod.container(name) if name else container, site, resource, divisor)
        case KeyRef(kind, name, key, optional):
            content = _config(configs, kind, name, optional)
            if content is not None and key in content:
                return content[key].decode(errors="replace")
            if optional:
                return None
            raise _missing(f"couldn't find key {key} in {_KINDS[kind]} {pod.namespace}/{name}")
        case None:
            return ""


_KINDS = {"configmap": "ConfigMap", "secret": "Secret"}


def _config(configs: Configs, kind: str, name: str, optional: bool) -> Mapping[str, bytes] | None:
    content = configs.get((kind, name))
    if content is None and not optional:
        raise _missing(f'{kind} "{name}" not found')
    return content


def _missing(message: str) -> NotYet:
    return NotYet(message, waiting="CreateContainerConfigError", event="Failed")
