"""The files of ConfigMap, Secret, downward API and projected volumes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from devcluster.node.environment import Configs
from devcluster.node.errors import NotYet
from devcluster.node.fields import Site, field_value, resource_value
from devcluster.node.model import Pod
from devcluster.node.volume_model import DownwardItem, DownwardSource, KeyedSource, ProjectedVolume, TokenSource


@dataclass(frozen=True)
class File:
    """Content and permission bits."""

    content: bytes
    mode: int


Tokens = Mapping[TokenSource, str]


def configs_of(volume: ProjectedVolume) -> frozenset[tuple[str, str]]:
    """The ConfigMaps and Secrets that the volume shows."""
    return frozenset((one.kind, one.name) for one in volume.sources if isinstance(one, KeyedSource))


def tokens_of(volume: ProjectedVolume) -> tuple[TokenSource, ...]:
    """The tokens that the volume holds."""
    return tuple(one for one in volume.sources if isinstance(one, TokenSource))


def files(pod: Pod, site: Site, volume: ProjectedVolume, configs: Configs, tokens: Tokens) -> dict[str, File]:
    """Relative path to file; a later source wins over an earlier one.

    Raises:
        NotYet: Something that is not optional does not exist.
    """
    result: dict[str, File] = {}
    for source in volume.sources:
        match source:
            case KeyedSource():
                result |= _keyed(source, volume.default_mode, configs.get((source.kind, source.name)))
            case DownwardSource(items):
                result |= {item.path: _downward(pod, site, item, volume.default_mode) for item in items}
            case TokenSource(path):
                result[path] = File(tokens[source].encode(), volume.default_mode)
    return result


def _keyed(source: KeyedSource, default_mode: int, content: Mapping[str, bytes] | None) -> dict[str, File]:
    if content is None:
        if source.optional:
            return {}
        raise NotYet(f'{source.kind} "{source.name}" not found')
    if not source.items:
        return {key: File(value, default_mode) for key, value in content.items()}
    result: dict[str, File] = {}
    for item in source.items:
        if item.key in content:
            result[item.path] = File(content[item.key], default_mode if item.mode is None else item.mode)
        elif not source.optional:
            raise NotYet(f"references non-existent {source.kind} key: {item.key}")
    return result


def _downward(pod: Pod, site: Site, item: DownwardItem, default_mode: int) -> File:
    mode = default_mode if item.mode is None else item.mode
    if item.field:
        return File(field_value(pod, site, item.field).encode(), mode)
    return File(resource_value(pod.container(item.container), site, item.resource, item.divisor).encode(), mode)
