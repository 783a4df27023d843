"""The node program: wires the parts together and runs until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from devcluster.node import isolation, names
from devcluster.node.addresses import Block
from devcluster.node.admission import no_room
from devcluster.node.api import Api, Object
from devcluster.node.errors import NoLog
from devcluster.node.events import Recorder
from devcluster.node.fake import FakePod
from devcluster.node.kubeconfig import load
from devcluster.node.lifecycle import PodWorker
from devcluster.node.logs import LogRequest, read
from devcluster.node.model import Pod
from devcluster.node.nodes import ADDRESS, MODE_LABEL, NodeKeeper, heartbeat_interval, identities
from devcluster.node.podtable import PodTable
from devcluster.node.process import Machine, ProcessPod
from devcluster.node.reporter import PARALLEL_WRITES, Reporter
from devcluster.node.server import LogServer
from devcluster.node.settings import Mode, Settings
from devcluster.node.status import Terminated, Verdict, Waiting
from devcluster.node.support import ignored
from devcluster.node.watch import Reflector

_NAMES_DELAY: Final = 0.02  # many pods change at once; their names are written once
_REFRESH_SECONDS: Final = 60.0  # between two looks at the content of volumes, as with a kubelet
_SHUTDOWN_GRACE: Final = 2.0
_SHUTDOWN_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Runs the nodes that the settings describe, until SIGTERM or SIGINT."""
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Api(load(settings.kubeconfig)) as api:
        program = Program(settings, api)
        serving = asyncio.create_task(program.serve())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            await program.shut_down()
            serving.cancel()
            stopping.cancel()
            await asyncio.gather(serving, stopping, return_exceptions=True)


class Program:
    """All nodes of one program."""

    def __init__(self, settings: Settings, api: Api) -> None:
        self._settings, self._api = settings, api
        self._block = Block()
        self._writes = asyncio.Semaphore(PARALLEL_WRITES)
        self._recorder = Recorder(api)
        self._keepers: dict[str, NodeKeeper] = {}
        self._services: dict[str, names.HeadlessService] = {}
        self._records: tuple[names.Record, ...] = ()
        self._names_due: asyncio.TimerHandle | None = None
        self._server: LogServer | None = None
        self._table = PodTable({}, self._make_worker, self._names_changed)
        self._machine = self._make_machine() if settings.mode is Mode.PROCESS else None

    async def serve(self) -> None:
        """Registers the nodes, then carries pods for ever."""
        settings = self._settings
        port = 0
        if settings.tls_cert and settings.tls_key:
            self._server = LogServer(self._find_log, settings.tls_cert, settings.tls_key, settings.client_ca)
            port = await self._server.start(ADDRESS)
        interval = heartbeat_interval(settings.heartbeat_seconds, settings.count)
        for identity in identities(settings, port):
            self._keepers[identity.name] = NodeKeeper(self._api, identity, interval, self._writes)
        online = {name: keeper.on_line for name, keeper in self._keepers.items()}
        self._table = PodTable(online, self._make_worker, self._names_changed)
        await asyncio.gather(*(keeper.register() for keeper in self._keepers.values()))
        async with asyncio.TaskGroup() as group:
            for task in self._tasks():
                group.create_task(task)

    async def shut_down(self) -> None:
        """Ends all pods, says so if the API server listens, and stops."""
        if self._settings.mode is Mode.PROCESS:
            ends = [asyncio.create_task(worker.shut_down(_SHUTDOWN_GRACE)) for worker in self._table.workers]
            if ends:
                await asyncio.wait(ends, timeout=_SHUTDOWN_SECONDS)
        await self._table.close()
        if self._server:
            await self._server.stop()
        self._block.close()

    def _tasks(self) -> list[Coroutine[Any, Any, None]]:
        pods = Reflector(
            self._api,
            "/api/v1/pods",
            changed=self._table.see,
            gone=self._table.lose,
            selector={"fieldSelector": "spec.nodeName!="},
        )
        nodes = Reflector(
            self._api,
            "/api/v1/nodes",
            changed=self._see_node,
            gone=self._lose_node,
            selector={"labelSelector": f"{MODE_LABEL}={self._settings.mode}"},
        )
        tasks = [keeper.heartbeats() for keeper in self._keepers.values()]
        tasks += [self._recorder.run(), nodes.run(), pods.run(), self._say_when_ready(pods)]
        if self._machine:
            services = Reflector(self._api, "/api/v1/services", changed=self._see_service, gone=self._lose_service)
            tasks += [services.run(), self._refresh_volumes()]
        return tasks

    async def _say_when_ready(self, pods: Reflector) -> None:
        left = await asyncio.to_thread(self._pod_folders)
        await pods.synced.wait()
        known = {pod.uid for pod in self._table.pods}
        for folder in left:  # of pods that went while no program was there
            if folder.name not in known:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        for keeper in self._keepers.values():
            await keeper.usable.wait()
        print("ready", flush=True)

    def _pod_folders(self) -> list[Path]:
        pods = self._settings.state_dir / "pods"
        return list(pods.iterdir()) if pods.exists() else []

    def _make_worker(self, pod: Pod) -> PodWorker:
        keeper = self._keepers[pod.node]

        async def on_line() -> None:
            await keeper.on_line.wait()

        def admit(newest: Pod) -> Verdict | None:
            return no_room(newest, self._table.occupants(newest), keeper.node.capacity)

        reporter = Reporter(self._api, self._writes, on_line, pod)
        if self._machine is None:
            fake = FakePod(pod, self._block, keeper.node.address, keeper.node.capacity)
            return PodWorker(pod, fake, admit, reporter, self._recorder)
        runtime = ProcessPod(pod, keeper.node, self._machine)
        if warning := ignored(pod):
            self._recorder.warn(pod, "NotHonoured", warning)
        return PodWorker(pod, runtime, admit, reporter, self._recorder)

    def _make_machine(self) -> Machine:
        access = self._api.access
        return Machine(
            api=self._api,
            state_dir=self._settings.state_dir.resolve(),
            isolation=isolation.choose(self._settings.isolation, self._settings.state_dir),
            block=self._block,
            base_env=base_environment(self._settings.state_dir.resolve() / "bin"),
            records=lambda: self._records,
            service_env=kubernetes_service(access.host, access.port),
        )

    def _see_node(self, node: Object) -> None:
        keeper = self._keepers.get(node["metadata"]["name"])
        if keeper:
            was_lost = not keeper.on_line.is_set()
            keeper.observe(node)
            if was_lost and keeper.on_line.is_set():
                self._table.node_returned(keeper.node.name)

    def _lose_node(self, node: Object) -> None:
        keeper = self._keepers.get(node["metadata"]["name"])
        if keeper:
            keeper.forget()

    def _see_service(self, document: Object) -> None:
        service = names.parse_service(document)
        if service:
            self._services[document["metadata"]["uid"]] = service
            self._names_changed()

    def _lose_service(self, document: Object) -> None:
        if self._services.pop(document["metadata"]["uid"], None):
            self._names_changed()

    def _names_changed(self) -> None:
        if self._machine and self._names_due is None:
            self._names_due = asyncio.get_running_loop().call_later(_NAMES_DELAY, self._write_names)

    def _write_names(self) -> None:
        self._names_due = None
        records = names.records(self._table.pods, self._services.values())
        if records != self._records:
            self._records = records
            for worker in self._table.workers:
                if isinstance(worker.runtime, ProcessPod):
                    worker.runtime.write_hosts()

    async def _refresh_volumes(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            for worker in self._table.workers:
                if isinstance(worker.runtime, ProcessPod) and worker.state.sandbox:
                    with suppress(Exception):  # what has vanished meanwhile keeps its last content
                        await worker.runtime.refresh()

    def _find_log(self, namespace: str, pod: str, container: str, wanted: LogRequest) -> AsyncIterator[bytes]:
        worker = self._table.find(namespace, pod)
        if worker is None:
            raise NoLog(404, f'pod "{pod}" does not exist')
        if wanted.previous:  # nothing is ever restarted here
            raise NoLog(400, f'previous terminated container "{container}" in pod "{pod}" not found')
        if not isinstance(worker.runtime, ProcessPod):
            return _fake_log()
        state = worker.state.states.get(container)
        if isinstance(state, Waiting):
            raise NoLog(400, f'container "{container}" in pod "{pod}" is waiting to start: {state.reason}')
        log = worker.runtime.log_of(container)
        if log is None:
            # Nothing is said of it yet, or it ended without ever having run.
            told = "is terminated" if isinstance(state, Terminated) else "is waiting to start: ContainerCreating"
            raise NoLog(400, f'container "{container}" in pod "{pod}" {told}')
        return read(log[0], wanted, log[1])


async def _fake_log() -> AsyncIterator[bytes]:
    yield b"a fake pod runs nothing, so it has no log\n"


def base_environment(own_bin: Path) -> Mapping[str, str]:
    """What an image would set: `python` is the interpreter that runs this program, with its packages."""
    scripts = Path(sys.executable).parent
    path = [str(scripts), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    if not (scripts / "python").exists():
        own_bin.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (own_bin / "python").symlink_to(sys.executable)
        path.insert(0, str(own_bin))
    return {"PATH": ":".join(path), "HOME": os.path.expanduser("~")}


def kubernetes_service(host: str, port: int) -> Mapping[str, str]:
    """The variables of the Service `kubernetes`, by which clients in pods find the API server."""
    url = f"tcp://{host}:{port}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": url,
        "KUBERNETES_PORT_443_TCP": url,
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_443_TCP_PORT": str(port),
        "KUBERNETES_PORT_443_TCP_ADDR": host,
    }
