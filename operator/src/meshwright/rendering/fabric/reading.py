"""Profiles from an administrator's file: presets worked in, and everything that is wrong said with its name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from meshwright.rendering.errors import InvalidProfile, UnknownProfile
from meshwright.rendering.fabric.presets import PRESETS
from meshwright.rendering.fabric.profile import Nics, NodeSelector, Profile
from meshwright_api import reserved
from meshwright_api.keys import alias_of
from meshwright_api.quantity import parse
from meshwright_api.reading import as_json, read

MULTUS: Final = "k8s.v1.cni.cncf.io/networks"
_POD_FIELDS: Final = {
    **reserved.POD_FIELDS,
    "affinity": "say which nodes the profile is for in `nodes`",
    "restartPolicy": "a gang restarts as a whole",
    "hostNetwork": "say `hostNetwork: true` in the profile itself, so that ports are given out",
}


@dataclass(frozen=True)
class Profiles:
    """All profiles of a cluster, in the administrator's order."""

    all: tuple[Profile, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in that order."""
        return tuple(profile.name for profile in self.all)

    def named(self, name: str) -> Profile:
        """The profile that a job asks for.

        Raises:
            UnknownProfile: there is none of that name.
        """
        found = next((profile for profile in self.all if profile.name == name), None)
        if found is None:
            there = f"use one of {', '.join(self.names)}" if self.all else "this cluster has none; leave it out"
            raise UnknownProfile(f"spec.profile: there is no profile {name}; {there}")
        return found


def profiles_of(document: object) -> Profiles:
    """The profiles of a document: a list of them, or an object with that list as `profiles`.

    Raises:
        InvalidProfile: one of them cannot be used; the message names it, the field, and what to do.
    """
    entries = document.get("profiles") if isinstance(document, Mapping) else document
    if not isinstance(entries, list | tuple):
        raise InvalidProfile("profiles must be a list, for example [{name: tcp, preset: TCP}]")
    found = tuple(_profile(entry, i) for i, entry in enumerate(entries))
    for i, profile in enumerate(found):
        if profile.name in (other.name for other in found[:i]):
            raise InvalidProfile(f"profiles[{i}].name: {profile.name} is there twice; give each a name of its own")
    return Profiles(found)


def _profile(entry: object, index: int) -> Profile:
    at = f"profiles[{index}]"
    if not isinstance(entry, Mapping):
        raise InvalidProfile(f"{at} must be an object, for example {{name: tcp, preset: TCP}}")
    own = {key: value for key, value in entry.items() if key != "preset"}
    preset = entry.get("preset")
    if preset is not None and preset not in PRESETS:
        raise InvalidProfile(f"{at}.preset: there is no preset {preset}; use one of {', '.join(PRESETS)}")
    raw = _adapted(own, PRESETS[preset] if preset is not None else {})
    for model, value, where in ((Profile, raw, at), (NodeSelector, raw.get("nodes"), f"{at}.nodes"),
                                (Nics, raw.get("nics"), f"{at}.nics")):  # fmt: skip
        _known_keys(model, value, where)
    try:
        profile = read(Profile, raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, (at, *first["loc"])))
        raise InvalidProfile(f"{where}: {first['msg']}, but it is {first['input']!r:.80}") from error
    for problem in _problems(profile):
        raise InvalidProfile(f"{at} ({profile.name}): {problem}")
    return profile


def _adapted(own: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """The preset with what the profile says itself; objects are merged, null takes away."""
    merged = dict(preset)
    for key, value in own.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = _adapted(value, below if isinstance(below, Mapping) else {})
        else:
            merged[key] = value
    return merged


def _known_keys(model: type[BaseModel], value: object, at: str) -> None:
    known = [alias_of(model, name) for name in model.model_fields]
    for key in value if isinstance(value, Mapping) else ():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InvalidProfile(f"{at}.{key}: no such field; {meant}known here: {', '.join(known)}")


def _problems(profile: Profile) -> Iterator[str]:
    for name in profile.env:
        if reserved.is_env(name):
            yield f"env.{name} is Meshwright's to set; leave it out"
    if profile.nics is not None:
        yield from _network_problems(profile, profile.nics)
    for name in profile.huge_pages:
        if len(profile.huge_pages) > 1:
            yield f"hugePages.{name}: only one size can be mounted; give one"
    yield from _amount_problems(profile)
    yield from _template_problems(profile.template)


def _amount_problems(profile: Profile) -> Iterator[str]:
    amounts: dict[str, object] = {f"resources.{name}": amount for name, amount in profile.resources.items()}
    amounts |= {f"hugePages.{name}": amount for name, amount in profile.huge_pages.items()}
    if profile.shared_memory is not None:
        amounts["sharedMemory"] = profile.shared_memory
    for field, amount in amounts.items():
        if (number := parse(amount)) is None or number < 0:
            yield f"{field}: {as_json(amount):.80} is no amount; give a number with a suffix or none, as in 1 or 64Gi"


def _network_problems(profile: Profile, nics: Nics) -> Iterator[str]:
    if len(nics.networks) not in (1, nics.count):
        yield (
            f"nics.networks: {len(nics.networks)} networks for {nics.count} adapters; give one for all, or one for each"
        )
    if nics.resource in profile.resources:
        yield f"resources.{nics.resource}: nics counts them already; leave it out"
    if MULTUS in profile.annotations:
        yield f"annotations.{MULTUS}: nics writes it; give the networks in nics.networks, or leave nics out"


def _template_problems(template: Mapping[str, Any]) -> Iterator[str]:
    for key in template.keys() - {"metadata", "spec"}:
        yield f"template.{key}: no such field; known here: metadata, spec"
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        yield "template: metadata and spec must be objects, as in a pod template"
        return
    for key in metadata.keys() - {"labels", "annotations"}:
        yield f"template.metadata.{key}: only labels and annotations can be given"
    for field, instead in _POD_FIELDS.items():
        if spec.get(field) is not None:
            yield f"template.spec.{field} must be left out: {instead}"
    yield from _container_problems(spec.get("containers") or ())


def _container_problems(containers: object) -> Iterator[str]:
    entries: Sequence[object] = containers if isinstance(containers, list | tuple) else [containers]
    for container in entries:
        if not isinstance(container, Mapping) or container.get("name") != reserved.TRAINER:
            yield (
                "template.spec.containers: only `trainer`, which stands for the trained container, can be given; give "
                "a sidecar as an initContainer with restartPolicy: Always, so that pods end without it"
            )
            return
    if len(entries) > 1:
        yield "template.spec.containers: trainer is there twice; give it once"
    for container in _mappings(entries):
        for field in ("env", "command", "args"):
            if container.get(field) is not None:
                instead = "give variables as `env` of the profile" if field == "env" else "it is the job's to say"
                yield f"template.spec.containers[trainer].{field} must be left out: {instead}"


def _mappings(entries: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in entries if isinstance(entry, Mapping))
