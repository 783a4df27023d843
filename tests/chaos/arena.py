"""Where lives are lived: one control plane with fake nodes, and slots, each a namespace with an operator of its own.

Slots share nothing but the API server: each has its namespace, its nodes (picked by label), its Lease, its service
account with the rights of the chart, and its proxy. So many lives can run at once on one machine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devcluster.cluster import Cluster
from tests.chaos.admin import CORE, Admin
from tests.chaos.facts import Facts
from tests.chaos.installation import ACCOUNT, LEASE, install, install_kind
from tests.chaos.life import LIFE_LABEL, Life, Shape
from tests.chaos.observer import Observer, Scene
from tests.chaos.processes import Supervisor, Zygote
from tests.chaos.proxy import FaultProxy, Hook, Upstream

NODES_PER_SLOT = 3
_PREFIX = "chaos"

SETTINGS = {
    "metrics-port": "0",
    "heartbeat-port": "0",
    "liveness-port": "0",
    "log-format": "text",
    "resync-seconds": "2",
    "api-timeout-seconds": "10",
    "watch-silence-seconds": "20",
    "retry-cap-seconds": "2",
}
"""What differs from an installation: it notices and repeats in seconds what takes a cluster minutes."""

QUICK_LEASE = {
    "lease-duration-seconds": "6",
    "lease-renew-deadline-seconds": "4",
    "lease-retry-seconds": "0.7",
}
"""For lives in which an operator has to wait for the Lease of a dead or sleeping one."""


def start_cluster(directory: Path) -> Cluster:
    """A control plane that calls no node lost by itself: on a busy machine that would be a fault nobody planned."""
    return Cluster.start(directory, node_monitor_grace_seconds=120)


@dataclass
class Stage:
    """One operator behind its proxy."""

    proxy: FaultProxy
    operator: Supervisor


class Slot:
    """One namespace, its nodes, and whoever runs in it."""

    def __init__(self, arena: Arena, number: int) -> None:
        self.number = number
        self.namespace, self.home = _namespaces(number)
        self._arena = arena
        self._kubeconfig = json.loads(arena.cluster.kubeconfig_for_service_account(self.home, ACCOUNT).read_text())

    @property
    def scene(self) -> Scene:
        """What the judge sees of it."""
        return self._arena.observer.scenes[self.namespace]

    @property
    def admin(self) -> Admin:
        """The administrator."""
        return self._arena.admin

    def life(self, shape: Shape | None = None) -> Life:
        """A job to be lived here; what was recorded of the one before is forgotten."""
        self._arena.observer.read_audit()
        self.scene.clear()
        return Life(self.admin, self.scene, self.namespace, str(self.number), shape or Shape())

    @asynccontextmanager
    async def stage(
        self, label: str, *, hook: Hook | None = None, identity: str = "", settings: Mapping[str, str] | None = None
    ) -> AsyncIterator[Stage]:
        """Runs an operator here, behind a proxy, and keeps it running.

        Args:
            label: Names its log.
            hook: Steps in at counted calls.
            identity: Its name in the Lease. A restarted container keeps it; without one, every start is a stranger.
            settings: Further flags of the operator.
        """
        log = self._arena.logs / f"{label}.log"
        log.unlink(missing_ok=True)
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(FaultProxy(self._arena.upstream, hook=hook))
            argv = self._arguments(self._write_kubeconfig(label, proxy.url), identity, settings or {})
            operator = Supervisor(self._arena.zygote, argv, log)
            await stack.enter_async_context(operator)
            yield Stage(proxy, operator)

    def facts(self, life: Life, *stages: Stage, problems: list[str], leftovers: list[str], undisturbed: bool) -> Facts:
        """What is known of that life now."""
        self._arena.observer.read_audit()
        return Facts(
            operator=f"system:serviceaccount:{self.home}:{ACCOUNT}",
            audit=tuple(self.scene.audit),
            states=tuple(self.scene.states),
            ledgers=dict(life.ledgers),
            leftovers=tuple(leftovers),
            problems=tuple(problems),
            deserted=sum(stage.operator.deserted for stage in stages),
            undisturbed=undisturbed,
        )

    async def lease_holder(self) -> str:
        """Who leads, by the Lease."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.home}/leases/{LEASE}"
        lease = await self.admin.call("GET", path)
        return str((lease.get("spec") or {}).get("holderIdentity") or "")

    def _write_kubeconfig(self, label: str, url: str) -> Path:
        config = json.loads(json.dumps(self._kubeconfig))
        config["clusters"][0]["cluster"] = {"server": url}
        path = self._arena.logs / f"{label}.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def _arguments(self, kubeconfig: Path, identity: str, settings: Mapping[str, str]) -> list[str]:
        named = SETTINGS | {
            "kubeconfig": str(kubeconfig),
            "namespaces": self.namespace,
            "lease-namespace": self.home,
            "lease-name": LEASE,
        }
        named |= settings
        if identity:
            named["identity"] = identity
        return ["run", *(f"--{key}={value}" for key, value in named.items())]


class Arena:
    """The control plane, the nodes, and the slots."""

    def __init__(self, cluster: Cluster, slots: int) -> None:
        self.cluster = cluster
        self.logs = cluster.directory / "chaos"
        self.upstream = Upstream(cluster.server, cluster.ca)
        self.slots: list[Slot] = []
        self._count = slots
        self._free: asyncio.Queue[Slot] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self.logs.mkdir(exist_ok=True)
        self._stack = AsyncExitStack()
        admin = Admin(self.cluster.server, self.cluster.ca, self.cluster.token())
        self.admin = await self._stack.enter_async_context(admin)
        await asyncio.to_thread(install_kind, self.cluster)
        await self._make_nodes()
        for number in range(self._count):
            namespace, home = _namespaces(number)
            await asyncio.to_thread(install, self.cluster, home, namespace)
            self.slots.append(await asyncio.to_thread(Slot, self, number))
            self._free.put_nowait(self.slots[-1])
        self.observer = await self._stack.enter_async_context(Observer(self.admin, self.cluster.audit_log))
        self.zygote = await self._stack.enter_async_context(Zygote())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """A slot that nobody else uses."""
        slot = await self._free.get()
        try:
            yield slot
        finally:
            self._free.put_nowait(slot)

    async def _make_nodes(self) -> None:
        """Nodes are large: here nobody waits for room, and slots do not know of each other's reservations."""
        wanted = self._count * NODES_PER_SLOT
        there = {item["metadata"]["name"] for item in await self.admin.items(f"{CORE}/nodes")}
        if f"{_PREFIX}-0" not in there:
            await asyncio.to_thread(
                self.cluster.start_nodes,
                "fake",
                wanted,
                name_prefix=_PREFIX,
                cpus="256",
                memory="512Gi",
                heartbeat_seconds=10.0,
            )
        for index in range(wanted):
            labels = {LIFE_LABEL: str(index // NODES_PER_SLOT)}
            await self.admin.patch(f"{CORE}/nodes/{_PREFIX}-{index}", {"metadata": {"labels": labels}})


def _namespaces(number: int) -> tuple[str, str]:
    """Of a slot: where its jobs are, and where its operator lives."""
    return f"{_PREFIX}-{number}", f"{_PREFIX}-{number}-operator"
