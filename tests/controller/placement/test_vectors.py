"""Public cases of topology placement, with independent right answers, through the program that answers them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
VECTORS = Path(__file__).parent / "vectors" / "placement.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(VECTORS.read_text())["cases"]}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the program says when it is not told what is expected."""
    asked = {"cases": [{k: v for k, v in case.items() if k != "expect"} for case in CASES.values()]}
    file = tmp_path_factory.mktemp("cases") / "cases.json"
    file.write_text(json.dumps(asked))
    command = [sys.executable, str(ROOT / "benchmarks" / "placement_cases.py"), str(file)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {answer["id"]: answer for answer in map(json.loads, lines)}


def test_there_is_an_answer_to_each_of_the_42_cases(answers: dict[str, dict[str, Any]]) -> None:
    assert len(answers) == 42
    assert answers.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_and_the_counts_are_the_published_ones(name: str, answers: dict[str, dict[str, Any]]) -> None:
    given, expected = answers[name], CASES[name]["expect"]
    told = ("fits", "largest_that_fits", "nodes_considered", "nodes_excluded")
    assert {key: given[key] for key in told if key in expected} == {k: expected[k] for k in told if k in expected}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"]["fits"]])
def test_the_place_breaks_no_rule(name: str, answers: dict[str, dict[str, Any]]) -> None:
    case, placed = CASES[name], {tuple(d["values"]): d["count"] for d in answers[name]["domains"]}
    request, levels = case["request"], case["levels"]
    assert sum(placed.values()) == request["count"]
    room = room_by_domain(case)
    assert all(count <= room[domain] for domain, count in placed.items())
    if request["mode"] == "required":
        assert len(at_level(placed, levels, request["level"])) == 1
    if piece := request["slice"]:
        for count in at_level(placed, levels, piece["level"]).values():
            assert count % piece["size"] == 0


def room_by_domain(case: dict[str, Any]) -> Counter[tuple[str, ...]]:
    """Pods that fit into each lowest domain, counted node by node from the case alone; CPU and memory are whole."""
    units = {"m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

    def number(quantity: object) -> float:
        text = str(quantity)
        suffix = next((s for s in units if text.endswith(s)), "")
        return float(text.removesuffix(suffix)) * units.get(suffix, 1)

    room: Counter[tuple[str, ...]] = Counter()
    for node in case["nodes"]:
        if not all(key in node["labels"] for key in case["levels"]) or node.get("unschedulable"):
            continue
        left = {name: number(quantity) for name, quantity in node["allocatable"].items()}
        for pod in case.get("existing_pods") or []:
            if pod["node"] == node["name"] and pod["phase"] not in ("Succeeded", "Failed"):
                for name, quantity in {**pod["requests"], "pods": 1}.items():
                    left[name] -= number(quantity)
        wanted = {**case["request"]["requests"], "pods": 1}
        fit = min(int(left.get(name, 0) / number(q) + 1e-9) for name, q in wanted.items())
        room[tuple(node["labels"][key] for key in case["levels"])] += max(0, fit)
    return room


def at_level(placed: dict[tuple[str, ...], int], levels: list[str], level: str) -> Counter[tuple[str, ...]]:
    """Pods by domain of a level."""
    found: Counter[tuple[str, ...]] = Counter()
    for domain, count in placed.items():
        found[domain[: levels.index(level) + 1]] += count
    return found
