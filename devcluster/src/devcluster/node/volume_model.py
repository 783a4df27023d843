"""Volumes of a pod as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """One `items` entry: this key becomes that file; `mode` None means the volume's default."""

    key: str
    path: str
    mode: int | None


@dataclass(frozen=True)
class KeyedSource:
    """A ConfigMap or Secret (`kind`) as files; no items means every key."""

    kind: str
    name: str
    items: tuple[Item, ...]
    optional: bool


@dataclass(frozen=True)
class DownwardItem:
    """One file that holds a field (`field`) or a request or limit (`resource`) of the pod."""

    path: str
    field: str
    container: str
    resource: str
    divisor: str
    mode: int | None


@dataclass(frozen=True)
class DownwardSource:
    """The pod's own metadata as files."""

    items: tuple[DownwardItem, ...]


@dataclass(frozen=True)
class TokenSource:
    """A service-account token for one audience (empty: the API server's)."""

    path: str
    audience: str
    expiration_seconds: int


ProjectedSource = KeyedSource | DownwardSource | TokenSource


@dataclass(frozen=True)
class ProjectedVolume:
    """A folder of files made by this program. ConfigMap, Secret and downward API volumes are such with one source."""

    sources: tuple[ProjectedSource, ...]
    default_mode: int


@dataclass(frozen=True)
class EmptyDirVolume:
    """A folder that lives as long as the pod."""


@dataclass(frozen=True)
class HostPathVolume:
    """A path of this machine; `kind` is the `type` that it must have."""

    path: str
    kind: str


@dataclass(frozen=True)
class ClaimVolume:
    """A persistent volume claim."""

    claim: str
    read_only: bool


@dataclass(frozen=True)
class UnsupportedVolume:
    """A kind of volume that these nodes cannot give."""

    kind: str


Volume = ProjectedVolume | EmptyDirVolume | HostPathVolume | ClaimVolume | UnsupportedVolume
_DEFAULT_MODE = 0o644


def parse_volume(document: Object) -> Volume:
    """A volume of a pod's spec."""
    match document:
        case {"configMap": source}:
            return ProjectedVolume((_keyed("configmap", source),), source.get("defaultMode", _DEFAULT_MODE))
        case {"secret": source}:
            named = {**source, "name": source.get("secretName", "")}
            return ProjectedVolume((_keyed("secret", named),), source.get("defaultMode", _DEFAULT_MODE))
        case {"downwardAPI": source}:
            return ProjectedVolume((_downward(source),), source.get("defaultMode", _DEFAULT_MODE))
        case {"projected": source}:
            return _projected(source)
        case {"emptyDir": _}:
            return EmptyDirVolume()
        case {"hostPath": source}:
            return HostPathVolume(source["path"], source.get("type") or "")
        case {"persistentVolumeClaim": source}:
            return ClaimVolume(source["claimName"], bool(source.get("readOnly")))
        case _:
            return UnsupportedVolume(next((key for key in document if key != "name"), "emptyDir"))


def _projected(document: Object) -> Volume:
    sources: list[ProjectedSource] = []
    for source in document.get("sources") or ():
        match source:
            case {"configMap": inner}:
                sources.append(_keyed("configmap", inner))
            case {"secret": inner}:
                sources.append(_keyed("secret", inner))
            case {"downwardAPI": inner}:
                sources.append(_downward(inner))
            case {"serviceAccountToken": inner}:
                lifetime = inner.get("expirationSeconds") or 3600
                sources.append(TokenSource(inner["path"], inner.get("audience", ""), lifetime))
            case _:
                return UnsupportedVolume(f"projected {next(iter(source), 'source')}")
    return ProjectedVolume(tuple(sources), document.get("defaultMode", _DEFAULT_MODE))


def _keyed(kind: str, document: Object) -> KeyedSource:
    items = tuple(Item(one["key"], one["path"], one.get("mode")) for one in document.get("items") or ())
    return KeyedSource(kind, document.get("name", ""), items, bool(document.get("optional")))


def _downward(document: Object) -> DownwardSource:
    return DownwardSource(tuple(_downward_item(one) for one in document.get("items") or ()))


def _downward_item(document: Object) -> DownwardItem:
    resource = document.get("resourceFieldRef") or {}
    return DownwardItem(
        path=document["path"],
        field=(document.get("fieldRef") or {}).get("fieldPath", ""),
        container=resource.get("containerName", ""),
        resource=resource.get("resource", ""),
        divisor=str(resource.get("divisor") or "0"),
        mode=document.get("mode"),
    )
