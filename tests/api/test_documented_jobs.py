"""Every job that a page or an example shows is one that can be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshwright_api.job import parse_job

ROOT = Path(__file__).resolve().parents[2]


def shown() -> dict[str, dict[str, Any]]:
    """Every TrainingJob of the pages and the examples."""
    texts = {path.name: path.read_text() for path in ROOT.glob("examples/**/*.yaml")}
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL)
        texts |= {f"{page.name}-{number}": block for number, block in enumerate(blocks)}
    documents = {name: list(yaml.safe_load_all(text)) for name, text in texts.items()}
    return {
        f"{name}-{document['metadata']['name']}": document
        for name, found in documents.items()
        for document in found
        if isinstance(document, dict) and document.get("kind") == "TrainingJob"
    }


@pytest.mark.parametrize("name", shown())
def test_a_shown_job_can_be_run(name: str) -> None:
    parse_job(shown()[name])


def test_there_are_jobs_to_try() -> None:
    assert len(shown()) >= 5
