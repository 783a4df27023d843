"""The real API server with the CRD and its policies installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devcluster.cluster import Cluster
from meshwright_api.crd.generate import outputs
from tests.api.client import Client, eventually
from tests.api.jobs import a_job, a_role, changed


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """A cluster that knows TrainingJobs and enforces their policies."""
    for _, text in outputs()[:2]:  # from the sources, not from the files: a test compares those with these
        cluster.kubectl("apply", "-f", "-", stdin=text)
    client = Client(cluster.server, cluster.ca, cluster.token())
    eventually(lambda: client.create(a_job(), dry_run=True).allowed, "the CRD is served")
    broken = (
        a_job(roles=[a_role(pod={"restartPolicy": "Always"})]),
        changed(a_job(), typo=1),
        a_job(name="3d"),
    )
    # Policies are enforced some time after they are stored.
    eventually(lambda: not any(client.create(job, dry_run=True).allowed for job in broken), "the policies are enforced")
    stranger = Client(cluster.server, cluster.ca, cluster.token(), impersonate="stranger")
    eventually(lambda: stranger.create(a_job(), dry_run=True).code == 403, "the API server answers strangers")
    client.close()
    stranger.close()
    return cluster


@pytest.fixture(scope="session")
def client(installed: Cluster) -> Iterator[Client]:
    """The administrator."""
    made = Client(installed.server, installed.ca, installed.token())
    yield made
    made.close()
