"""How generated manifests are written: stable, without anchors, with the line that says where they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

HEADER = "# Generated from crds/meshwright_api by `python -m meshwright_api generate`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: they save nothing worth having and confuse readers and tools."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def manifest_text(documents: Iterable[dict[str, Any]]) -> str:
    """The YAML text of some manifests."""
    return HEADER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
