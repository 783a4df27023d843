"""The generated files, as texts by their paths in the repository."""

from __future__ import annotations

from functools import cache

from meshwright_api.crd.definition import custom_resource_definition
from meshwright_api.crd.policies import policies
from meshwright_api.crd.text import manifest_text
from meshwright_api.names import GROUP, PLURAL

CRD_FILE = f"{PLURAL}.{GROUP}.yaml"
POLICIES_FILE = "policies.yaml"


@cache
def outputs() -> tuple[tuple[str, str], ...]:
    """Every generated file; the chart carries its own copies, since a chart is packed alone."""
    crd = manifest_text([custom_resource_definition()])
    policy = manifest_text(policies())
    return tuple(
        (f"{folder}/{name}", text)
        for folder in ("crds", "charts/meshwright/files")
        for name, text in ((CRD_FILE, crd), (POLICIES_FILE, policy))
    )
