"""Status patches, against the definition in RFC 7386."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from meshwright.status_patch import as_json, merge_patch
from meshwright_api.status import OpenIncident, Phase, PodCounts, TrainingJobStatus
from tests.controller.lifecycle.gangs import T0

leaves = st.none() | st.integers(0, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2)
values = st.recursive(
    leaves.filter(lambda v: v is not None),
    lambda v: st.dictionaries(st.text("xyz", min_size=1, max_size=1), v, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.text("xyz", min_size=1, max_size=1), values, max_size=4)


def apply_rfc7386(target: Any, patch: Any) -> Any:
    """MergePatch of RFC 7386, section 2, written down as it stands there."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = apply_rfc7386(target.get(name), value)
    return target


@given(documents, documents)
def test_applying_the_patch_to_the_old_gives_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert apply_rfc7386(old, merge_patch(old, new)) == new


@given(documents)
def test_nothing_changed_is_an_empty_patch(document: dict[str, Any]) -> None:
    assert merge_patch(document, document) == {}


def test_a_closed_incident_is_removed_and_counts_are_merged() -> None:
    incident = OpenIncident(attempt=1, opened_at=T0, trigger="ExitCode")
    old = TrainingJobStatus(phase=Phase.RESTARTING, incident=incident, pods=PodCounts(desired=2, running=2))
    new = old.model_copy(update={"incident": None, "pods": PodCounts(desired=2, running=1)})
    assert merge_patch(as_json(old), as_json(new)) == {"incident": None, "pods": {"running": 1}}
