"""Puts the server together."""

from __future__ import annotations

from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import PodCache
from meshwright.cluster.lease import Leadership
from meshwright.heartbeats.directory import Directory
from meshwright.heartbeats.identity import Identities
from meshwright.heartbeats.keys import MasterKey, secret_name
from meshwright.heartbeats.server import HeartbeatServer, Observer
from meshwright.jobs import Jobs
from meshwright.progress import ProgressBoard
from meshwright.settings import Settings


def heartbeat_server(
    settings: Settings,
    api: ApiServer,
    jobs: Jobs,
    pods: PodCache,
    leadership: Leadership,
    board: ProgressBoard,
    observer: Observer,
) -> HeartbeatServer:
    """The server of one life of the operator."""
    return HeartbeatServer(
        Directory(api, jobs, pods),
        Identities(api),
        MasterKey(api, settings.lease_namespace, secret_name(settings.lease_name)),
        leadership,
        board,
        observer,
        interval_seconds=settings.heartbeat_interval_seconds,
    )
