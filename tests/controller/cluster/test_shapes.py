"""Passing over what nobody reads changes nothing of what is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright.cluster.shapes import WHOLE, NodeShape, PodShape, Reader, event_of, page_of


def test_bookkeeping_and_what_containers_run_are_passed_over() -> None:
    """That what is read is enough, `test_projection` checks for every object that it has."""
    metadata = {"uid": "u", "labels": {"a": "b"}}
    more = {"managedFields": [{"manager": "kubelet"}], "annotations": {"c": "d"}}
    spec = {"containers": [{"name": "c", "image": "i", "env": [{"name": "N"}], "resources": {}}], "volumes": []}
    pod = {"metadata": metadata | more, "spec": spec, "status": {"phase": "Running"}}
    assert Reader(PodShape).read(json.dumps(pod).encode()) == {
        "metadata": metadata | {"annotations": {}},
        "spec": {"containers": [{"name": "c", "resources": {}}]},
        "status": {"phase": "Running"},
    }
    status = {"allocatable": {"cpu": "4"}, "images": [{"names": ["i"]}]}
    read = Reader(NodeShape).read(json.dumps({"metadata": more, "status": status}).encode())
    assert read == {"metadata": {"annotations": {}}, "status": {"allocatable": {"cpu": "4"}}}


@pytest.mark.parametrize("odd", [{"metadata": 5}, {"spec": {"containers": "none"}}, {"spec": []}, [], 7, None])
def test_what_has_another_shape_is_read_whole_and_left_to_whoever_looks_at_it(odd: Any) -> None:
    assert Reader(PodShape).read(json.dumps(odd).encode()) == odd
    page, event = {"items": [odd, {"metadata": {"uid": "u"}}]}, {"type": "ADDED", "object": odd}
    assert Reader(page_of(PodShape)).read(json.dumps(page).encode()) == page
    assert Reader(event_of(PodShape)).read(json.dumps(event).encode()) == event


@pytest.mark.parametrize("text", [b"", b"{", b"<html>", b'{"type": "ADDED"', b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("reader", [WHOLE, Reader(PodShape)])
def test_what_is_no_json_is_said_to_be_none(text: bytes, reader: Reader) -> None:
    with pytest.raises(ValueError, match=r"."):
        reader.read(text)
