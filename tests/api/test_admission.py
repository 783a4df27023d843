"""Every rule on the real API server, from both sides; and the controller's own check says the same."""

from __future__ import annotations

import pytest

from meshwright_api import problems
from meshwright_api.crd.changes import LAUNCH_FIELDS, change_validations
from meshwright_api.crd.policies import key_validations, writer_validations
from meshwright_api.crd.rules import rules
from meshwright_api.crd.template_rules import template_validations
from tests.api.cases import CASES, SCHEMA, Case
from tests.api.client import Client
from tests.api.jobs import Json

pytestmark = pytest.mark.cluster


def own_verdict(job: Json) -> str:
    """What the controller's own check says; empty if the job can be run."""
    return "; ".join(map(str, problems(job["spec"], job["metadata"]["name"])))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_refused_by_the_server_and_by_the_controller(client: Client, case: Case) -> None:
    answer = client.create(case.bad, dry_run=True)
    assert not answer.allowed
    assert answer.code in (403, 422), answer.message
    for part in case.says:
        assert part in answer.message
    assert own_verdict(case.bad)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_neighbour_is_allowed_by_both(client: Client, case: Case) -> None:
    answer = client.create(case.good, dry_run=True)
    assert answer.allowed, answer.message
    assert own_verdict(case.good) == ""


def test_the_controller_names_the_same_things_as_the_server() -> None:
    """Whoever refuses, the message has field, value, limit and a value that works; we count roles, CEL names them."""
    lacking = {}
    for case in CASES:
        said = own_verdict(case.bad)
        lost = [part for part in case.says if part not in said and part != "worker"]
        if lost and case.rule != SCHEMA:
            lacking[str(case)] = (lost, said)
    assert lacking == {}


def test_every_rule_has_a_case() -> None:
    """Changes, keys and the writer have tables of their own, in test_changes, test_typos and test_writer."""
    elsewhere = {f"launch-field-{field}" for field in LAUNCH_FIELDS} | {"terminal"}
    elsewhere |= {v.name for v in (*key_validations(), *writer_validations())}
    named = {case.rule for case in CASES} - {SCHEMA}
    known = {rule.name for rule in rules()} | {v.name for v in (*template_validations(), *change_validations())}
    known |= {v.name for v in (*key_validations(), *writer_validations())}
    assert named == known - elsewhere
