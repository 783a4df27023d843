"""What tests against a stub API server share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshwright import logs
from tests.controller.cluster.stub_kube import StubKube


@pytest.fixture(autouse=True)
def no_secrets_left_over() -> Iterator[None]:
    """Tokens of one test must not be blotted out of the next one's log."""
    yield
    logs._known.clear()


@pytest.fixture
def stub() -> Iterator[StubKube]:
    server = StubKube().start()
    yield server
    server.stop()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[..., str]:
    """Writes a kubeconfig for a server; further arguments are fields of its user."""

    def write(server: str, **user: Any) -> str:
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    return write
