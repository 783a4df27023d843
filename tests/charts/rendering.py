"""What helm makes of the chart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from devcluster.toolchain import find_programs

Json = dict[str, Any]
REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "meshwright"
GOLDEN = Path(__file__).parent / "golden"
NAMESPACE = "meshwright-system"
VARIANTS: dict[str, Json] = {
    "default": {},
    "namespaced": {
        "namespaces": ["team-a", "team-b"],
        "capacityReader": False,
        "replicas": 2,
        "image": {"digest": f"sha256:{'0' * 64}"},
        "settings": {"workers": 1_000_000, "resync-seconds": 0.5, "identity": "one"},
        "logging": {"decisions": {"enabled": True}},
        "jobs": {"podSecurity": "restricted", "trainerImage": "registry.example.com/trainer:7"},
        "profiles": [
            {"name": "ib", "preset": "SharedRDMA", "nodes": {"matchLabels": {"fabric": "ib"}}},
            {"name": "tcp", "preset": "TCP", "nodes": {}, "env": {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": None}},
        ],
        "podLabels": {"team": "platform"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
    },
    "least": {
        "crds": {"enabled": False},
        "policies": {"enabled": False},
        "rbac": {"create": False, "userRoles": False},
        "serviceAccount": {"create": False, "name": "theirs"},
        "priorityClasses": [],
        "metrics": {"service": False},
    },
}


def helm(*args: str, values: Json | None = None) -> subprocess.CompletedProcess[str]:
    """Runs helm without any cluster."""
    argv = [str(find_programs().helm), *args, *(("--values", "-") if values is not None else ())]
    return subprocess.run(argv, input=json.dumps(values or {}), text=True, capture_output=True, check=False)


def render(values: Json | None = None, *, release: str = "meshwright") -> list[Json]:
    """The chart's manifests."""
    done = helm("template", release, str(CHART), "--namespace", NAMESPACE, values=values or {})
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[Json], kind: str) -> list[Json]:
    return [document for document in documents if document["kind"] == kind]


def golden_text(variant: str) -> str:
    """What the variant renders to, without the files that are generated and compared elsewhere."""
    generated = {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    shown = [document for document in render(VARIANTS[variant]) if document["kind"] not in generated]
    return yaml.safe_dump_all(shown, sort_keys=False, width=120)


def main() -> None:
    """`python -m tests.charts.rendering`: writes the golden files anew, for a look at the difference."""
    GOLDEN.mkdir(exist_ok=True)
    for variant in VARIANTS:
        (GOLDEN / f"{variant}.yaml").write_text(golden_text(variant))


if __name__ == "__main__":
    main()
