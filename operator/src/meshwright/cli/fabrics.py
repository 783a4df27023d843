"""The fabric profiles that the commands count in: of a file, or of the ConfigMap that the chart makes of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from meshwright.rendering.errors import InvalidProfile
from meshwright.rendering.fabric.reading import Profiles, profiles_of
from meshwright.settings import ENV_PREFIX

SELECTOR: Final = "app.kubernetes.io/name=meshwright,app.kubernetes.io/component=operator"
"""Labels of what the chart makes."""
KEY: Final = "profiles.yaml"
"""Key of the profiles in their ConfigMap."""
_GIVE: Final = "give the operator's profiles with --profiles-file FILE"


@dataclass(frozen=True)
class KnownProfiles:
    """The profiles of a cluster, as far as they are known."""

    profiles: Profiles | None = None
    """None if nobody knows them."""
    problem: str = ""
    """Why not, and what to do; empty if there is only nowhere to look for them."""

    def note(self, named: str) -> str:
        """What to tell of a job that names this profile, or none; empty if all is known.

        Args:
            named: its `spec.profile`, empty for none.
        """
        if self.profiles is not None or not (named or self.problem):
            return ""
        whose = f"of profile {named}" if named else "of fabric profiles"
        return f"what pods get {whose} is left out of account: {self.problem or _GIVE}"


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds the operator's setting of that name."""
    parser.add_argument(
        "--profiles-file",
        default=os.environ.get(f"{ENV_PREFIX}PROFILES_FILE", ""),
        metavar="FILE",
        help="fabric profiles, as the operator has them; by default those of the chart's ConfigMap in the cluster",
    )


def from_file(file: str) -> KnownProfiles:
    """The profiles of a file.

    Raises:
        InvalidProfile: it cannot be read, or a profile in it cannot be used.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProfile(f"cannot read {file}: {error}") from error
    return KnownProfiles(_parsed(text, file))


def from_config_maps(found: Iterable[Mapping[str, Any]]) -> KnownProfiles:
    """The profiles of the chart's ConfigMaps; none if no ConfigMap has any.

    Raises:
        InvalidProfile: a profile cannot be used.
    """
    texts = {text: _name(each) for each in found if (text := (each.get("data") or {}).get(KEY))}
    if len(texts) > 1:
        return KnownProfiles(problem=f"{' and '.join(sorted(texts.values()))} differ; {_GIVE}")
    return next((KnownProfiles(_parsed(text, name)) for text, name in texts.items()), KnownProfiles(Profiles()))


def denied() -> KnownProfiles:
    """ConfigMaps may not be listed."""
    return KnownProfiles(problem=f"you have no right to list configmaps cluster-wide; {_GIVE}")


def _parsed(text: str, where: str) -> Profiles:
    try:
        return profiles_of(yaml.safe_load(text))
    except (yaml.YAMLError, InvalidProfile) as error:
        raise InvalidProfile(f"{where}: {error}") from error


def _name(config_map: Mapping[str, Any]) -> str:
    metadata = config_map.get("metadata") or {}
    return f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
