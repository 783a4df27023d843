from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from meshwright.metrics import Metrics, served


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def families(metrics: Metrics) -> Iterator[Metric]:
    return iter(text_string_to_metric_families(generate_latest(metrics.registry).decode()))


def test_names_and_units_follow_the_conventions(metrics: Metrics) -> None:
    names = [family.name for family in families(metrics)]
    assert names
    for family in families(metrics):
        assert re.fullmatch(r"(trainingjob|meshwright)_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


def test_no_label_grows_with_use(metrics: Metrics) -> None:
    """One series per job or pod would be thousands; and none of it a second process must not share."""
    collectors = [value for value in vars(metrics).values() if hasattr(value, "_labelnames")]
    labels = {label for collector in collectors for label in collector._labelnames}
    assert labels <= {
        "namespace",
        "phase",
        "cause",
        "charged",
        "outcome",
        "error",
        "verb",
        "resource",
        "code",
        "watch",
        "result",
    }
    Metrics()


def test_requests_are_counted_by_verb_resource_and_code(metrics: Metrics) -> None:
    metrics.api_request("create", "pods", 201, 0.01)
    metrics.api_request("create", "pods", 409, 0.01)
    samples = {
        tuple(sorted(s.labels.items())): s.value
        for family in families(metrics)
        for s in family.samples
        if s.name == "meshwright_api_requests_total"
    }
    assert samples == {
        (("code", "201"), ("resource", "pods"), ("verb", "create")): 1.0,
        (("code", "409"), ("resource", "pods"), ("verb", "create")): 1.0,
    }


def test_a_watch_is_measured_when_asked(metrics: Metrics) -> None:
    class Watch:
        name = "pods"
        relists = 2
        malformed = 1

        def age(self) -> float:
            return 3.0

    metrics.watch(Watch())
    text = generate_latest(metrics.registry).decode()
    assert 'meshwright_watch_age_seconds{watch="pods"} 3.0' in text
    assert 'meshwright_watch_relists{watch="pods"} 2.0' in text
    assert 'meshwright_watch_malformed{watch="pods"} 1.0' in text


def test_they_are_served(metrics: Metrics, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
    with served(metrics, "127.0.0.1", unused_tcp_port), urllib.request.urlopen(url) as answer:
        assert b"meshwright_build_info" in answer.read()
    with served(metrics, "127.0.0.1", unused_tcp_port):
        pass  # The port is free again.


def test_port_0_serves_nothing(metrics: Metrics) -> None:
    with served(metrics, "not an address", 0):
        assert metrics.registry
