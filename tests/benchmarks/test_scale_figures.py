"""The parts of the scale benchmarks that could be wrong without anybody noticing."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from benchmarks.figures import figure
from benchmarks.scale.__main__ import FULL, measures
from benchmarks.scale.api import Tally, added, running
from benchmarks.scale.ground import a_job, a_template
from benchmarks.scale.running import quantile
from meshwright_api.job import parse_job

README = Path(__file__).parents[2] / "benchmarks" / "README.md"


def line(kind: str, name: str, phase: str) -> bytes:
    """An event of a watch, in the order of fields in which the API server writes them."""
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "ownerReferences": [{"name": "gang"}]},
        "status": {"phase": phase},
    }
    return json.dumps({"type": kind, "object": pod}, separators=(",", ":")).encode()


def test_pods_are_counted_by_name_from_the_text_of_a_watch() -> None:
    assert added(line("ADDED", "a-0", "Pending")) == "a-0"
    assert added(line("MODIFIED", "a-0", "Running")) == ""
    assert running(line("ADDED", "a-0", "Pending")) == ""
    assert running(line("MODIFIED", "a-0", "Running")) == "a-0"
    assert running(line("DELETED", "a-0", "Running")) == ""
    assert added(b"") == running(b"") == ""


async def test_a_tally_counts_each_name_once_and_says_when_the_last_came() -> None:
    tally = Tally()
    waiting = asyncio.create_task(tally.reaches(2, 5))
    for name in ("a", "b", "a"):
        tally.add(name)
    assert await waiting == tally.last
    with pytest.raises(TimeoutError, match="2 of 3"):
        await tally.reaches(3, 0.01)


def test_quantiles_are_those_of_prometheus() -> None:
    """By Prometheus' own rule: linear within the bucket that holds the rank."""
    registry = CollectorRegistry()
    histogram = Histogram("t_seconds", "t", buckets=(1, 2, 4), registry=registry)
    for value in (0.5, 0.5, 1.5, 1.5, 1.5, 1.5, 3, 3, 3, 9):
        histogram.observe(value)
    text = generate_latest(registry).decode()
    assert quantile(text, "t_seconds", 0.2) == 1
    assert quantile(text, "t_seconds", 0.5) == 1 + 3 / 4
    assert quantile(text, "t_seconds", 0.9) == 4
    assert quantile(text, "t_seconds", 0.99) == 4, "beyond the last edge there is nothing to go by"
    with pytest.raises(ValueError, match="no other_seconds"):
        quantile(text, "other_seconds", 0.5)


def test_jobs_of_the_benchmarks_can_be_run() -> None:
    for job in (a_job("a", 5000, gpus=8), a_job("b", 8, template=a_template(kilobytes=1.0, cpu="10m"))):
        job["metadata"]["namespace"] = "x"
        assert parse_job(job).metadata.name


def test_the_readme_names_what_can_be_measured() -> None:
    text = README.read_text()
    assert all(f"`{name}`" in text for name in measures(FULL))


def test_a_figure_is_one_line_with_its_goal() -> None:
    made = json.loads(figure("x_ms", 1.23456, unit="ms", goal=2, pods=3))
    assert made == {"name": "x_ms", "value": 1.2346, "unit": "ms", "goal": 2, "better": "lower", "pods": 3}
    assert not re.search("goal", figure("x", 1.0))
