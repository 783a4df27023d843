"""The frozen plan: what is committed, stored, read back, and never mixed with anything else."""

from __future__ import annotations

import base64
import copy
import gzip
import random
from collections.abc import Callable
from typing import Any

import pytest

from meshwright.placement.model import Placed
from meshwright.placement.supply.resources import Resources
from meshwright.rendering import frozen as frozen_module
from meshwright.rendering import pod, world
from meshwright.rendering.frozen import PLACEMENT_FILE
from meshwright.rendering.gang import (
    FrozenPlan,
    PlanMismatch,
    RenderSettings,
    freeze,
    pod_manifest,
    request,
    reservation,
    service_manifest,
)
from meshwright_api import names
from tests.controller.rendering.jobs import TORCHRUN, UID, a_job, a_role, frozen

KIB = 1024


def test_what_is_stored_reads_back_the_same() -> None:
    plan = frozen(a_job(a_role(2, *TORCHRUN, gpus_per_pod=8), a_role(3, name="ps")), attempt=3, incarnation=2)
    again = FrozenPlan.load(plan.plan_config_map(), plan.placement_config_map(), plan.sha256)
    assert again == plan
    assert again.sha256 == plan.sha256
    assert [pod_manifest(again, *m) for m in again.members] == [pod_manifest(plan, *m) for m in plan.members]
    assert reservation(again) == reservation(plan)


def test_the_rest_of_a_gang_is_rendered_as_it_began_whatever_the_new_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that is upgraded in the middle of a start must not mix pods of two kinds."""
    before = frozen(a_job())
    maps = before.plan_config_map(), before.placement_config_map()
    pods = [pod_manifest(before, *member) for member in before.members]
    monkeypatch.setattr(pod, "environment", lambda *_: [{"name": "NEW", "value": "1"}])
    monkeypatch.setattr(world.World, "rendezvous", lambda _: None)
    after = FrozenPlan.load(*maps)
    assert [pod_manifest(after, *member) for member in after.members] == pods


def test_equal_jobs_have_equal_plans_and_every_difference_shows_in_the_hash() -> None:
    assert frozen(a_job()).sha256 == frozen(a_job()).sha256
    others = [
        frozen(a_job(), attempt=2),
        frozen(a_job(), incarnation=2),
        frozen(a_job(), pinned=False),
        frozen(a_job(), settings=RenderSettings(run_as_non_root=True)),
        frozen(a_job(a_role(3))),
        frozen(a_job(a_role(2, "python", "other.py"))),
        frozen(a_job(uid="other")),
    ]
    assert len({plan.sha256 for plan in (frozen(a_job()), *others)}) == 8


def test_the_hash_covers_where_pods_sit() -> None:
    job = a_job()
    here, there = (
        freeze(
            job,
            attempt=1,
            incarnation=1,
            request=request(job),
            placed=Placed({("worker", 0): "a", ("worker", 1): node}),
            settings=RenderSettings(),
        )
        for node in ("b", "c")
    )
    assert here.plan_text == there.plan_text
    assert here.sha256 != there.sha256


def test_both_maps_carry_the_hash_and_belong_to_the_job() -> None:
    plan = frozen(a_job(), incarnation=4)
    for config_map, component, name in (
        (plan.plan_config_map(), "plan", names.plan_name("demo", UID, 4)),
        (plan.placement_config_map(), "placement", names.placement_name("demo", UID, 4)),
    ):
        metadata = config_map["metadata"]
        assert metadata["name"] == name
        assert metadata["annotations"] == {names.ANNOTATION_PLAN: plan.sha256}
        assert metadata["labels"][names.LABEL_COMPONENT] == component
        assert metadata["labels"][names.LABEL_INCARNATION] == "4"
        assert metadata["ownerReferences"][0]["uid"] == UID
        assert config_map["immutable"] is True


def test_the_service_is_the_same_for_every_incarnation_and_finds_pods_before_they_are_ready() -> None:
    service = service_manifest(frozen(a_job()))
    assert service == service_manifest(frozen(a_job(), attempt=9, incarnation=9))
    assert service["metadata"]["name"] == pod_manifest(frozen(a_job()), "worker", 0)["spec"]["subdomain"]
    labels = pod_manifest(frozen(a_job()), "worker", 0)["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)


Maps = tuple[dict[str, Any], dict[str, Any]]


def _repack(placement: dict[str, Any], change: Callable[[str], str]) -> None:
    text = gzip.decompress(base64.b64decode(placement["data"][PLACEMENT_FILE])).decode()
    placement["data"][PLACEMENT_FILE] = base64.b64encode(gzip.compress(change(text).encode())).decode()


def _another_node(maps: Maps) -> None:
    _repack(maps[1], lambda text: text.replace("node-1", "node-x"))


def _another_image(maps: Maps) -> None:
    _repack(maps[1], lambda text: text.replace("pytorch/pytorch", "evil/image"))


def _another_plan(maps: Maps) -> None:
    maps[0]["data"]["plan.json"] = maps[0]["data"]["plan.json"].replace('"attempt":1', '"attempt":2')


def _another_placement(maps: Maps) -> None:
    maps[1].update(copy.deepcopy(frozen(a_job(a_role(3))).placement_config_map()))


def _cut_short(maps: Maps) -> None:
    packed = base64.b64decode(maps[1]["data"][PLACEMENT_FILE])
    maps[1]["data"][PLACEMENT_FILE] = base64.b64encode(packed[:-20]).decode()


def _no_base64(maps: Maps) -> None:
    maps[1]["data"][PLACEMENT_FILE] = "%"


def _no_gzip(maps: Maps) -> None:
    maps[1]["data"][PLACEMENT_FILE] = base64.b64encode(b"plain").decode()


def _no_data(maps: Maps) -> None:
    maps[0]["data"] = None


def _no_hash(maps: Maps) -> None:
    maps[0]["metadata"]["annotations"] = maps[1]["metadata"]["annotations"] = None


CHANGES = [_another_node, _another_image, _another_plan, _another_placement, _cut_short, _no_base64, _no_gzip,
           _no_data, _no_hash]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_stored_plan_that_was_changed_is_not_used(change: Callable[[Maps], None]) -> None:
    plan = frozen(a_job())
    maps = plan.plan_config_map(), plan.placement_config_map()
    change(maps)
    with pytest.raises(PlanMismatch):
        FrozenPlan.load(*maps)
    with pytest.raises(PlanMismatch):
        FrozenPlan.load(*maps, plan.sha256)


def test_a_map_that_unpacks_without_end_is_not_unpacked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = frozen(a_job())
    monkeypatch.setattr(frozen_module, "_MOST_BYTES", len(plan.placement_text) - 1)
    with pytest.raises(PlanMismatch, match="too large"):
        FrozenPlan.load(plan.plan_config_map(), plan.placement_config_map())


def test_a_plan_that_is_whole_but_was_never_committed_is_not_used() -> None:
    forged = frozen(a_job(a_role(9)))
    with pytest.raises(PlanMismatch, match="another plan than the committed one"):
        FrozenPlan.load(forged.plan_config_map(), forged.placement_config_map(), frozen(a_job()).sha256)


def test_a_plan_of_a_format_that_is_not_known_is_refused_and_says_so() -> None:
    plan = frozen(a_job())
    newer = FrozenPlan(**{**vars(plan), "placement_text": plan.placement_text.replace('"version":1', '"version":2')})
    with pytest.raises(PlanMismatch, match="version 2"):
        FrozenPlan.load(newer.plan_config_map(), newer.placement_config_map())


def test_a_reservation_is_what_was_asked_for_where_it_was_given() -> None:
    job = a_job(a_role(2, gpus_per_pod=8, container={"resources": {"requests": {"cpu": 4}}}))
    held = reservation(frozen(job, incarnation=6))
    assert (held.job_uid, held.incarnation) == (UID, 6)
    assert held.nodes == {("worker", 0): "node-0", ("worker", 1): "node-1"}
    assert held.requests == {"worker": Resources(cpu=4000, gpus=8, pods=1)}


def test_no_map_outgrows_its_limit_at_25000_pods() -> None:
    """K64: what pods mount stays small, and what the operator reads fits into one object."""
    chance = random.Random(7)
    addresses = chance.sample(range(2**24), 25_000)
    nodes = [f"ip-10-{a >> 16}-{a >> 8 & 255}-{a & 255}.ec2.internal" for a in addresses]
    job = a_job(a_role(24_000, *TORCHRUN, gpus_per_pod=8), *(a_role(100, name=f"role-{i}") for i in range(10)))
    asked = request(job)
    members = [member for role in asked.roles for member in role.members()]
    placed = Placed(dict(zip(members, nodes, strict=True)))
    plan = freeze(job, attempt=99, incarnation=99, request=asked, placed=placed, settings=RenderSettings())
    plan_map, placement_map = plan.plan_config_map(), plan.placement_config_map()
    assert len(plan_map["data"]["plan.json"]) <= 64 * KIB
    assert len(placement_map["data"][PLACEMENT_FILE]) <= 900 * KIB
    assert FrozenPlan.load(plan_map, placement_map).nodes == placed.nodes
