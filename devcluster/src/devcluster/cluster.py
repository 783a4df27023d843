"""`Cluster`: the handle of one running control plane and of the nodes that joined it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from devcluster import access, arguments, supervisor
from devcluster.containers.nodes import ContainerNodes, prepare_network, remove_files
from devcluster.controlplane import API, ControlPlane, tail, wait
from devcluster.errors import AlreadyRunningError, CommandError, NotRunningError, StartError
from devcluster.nodes import Mode, NodeProgram, NodeSettings
from devcluster.ports import held
from devcluster.settings import ADMIN, Layout, Options, Ports
from devcluster.toolchain import Programs, find_programs


@dataclass(frozen=True)
class ProgramStatus:
    """One process of the cluster; `returncode` is None while it runs, negative if a signal ended it."""

    name: str
    pid: int
    returncode: int | None


class Cluster:
    """A control plane on this machine. Make one with `Cluster.start` or find one with `Cluster.attach`.

    A started cluster, its nodes and their pods end with the process that started it, however that ends, unless
    `detach` was called. Used as a context manager it stops at the end of the block.
    """

    def __init__(
        self,
        layout: Layout,
        ports: Ports,
        options: Options,
        programs: Programs,
        keeper: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self._layout, self._ports, self._options, self._programs = layout, ports, options, programs
        self._keeper = keeper
        self._client = supervisor.Client(layout.directory)
        self._plane = ControlPlane(layout, ports, options, programs, self._client)
        self._container_nodes: ContainerNodes | None = None

    @classmethod
    def start(cls, directory: Path, *, programs: Programs | None = None, **options: Any) -> Cluster:
        """Starts a control plane and waits until it schedules.

        Args:
            directory: Where everything of it is kept; made if missing. What an earlier cluster left there is removed.
            programs: The programs to run; by default those that `toolchain.find_programs` finds.
            **options: Fields of `settings.Options`.

        Raises:
            ToolchainError: The programs were not built yet.
            AlreadyRunningError: A cluster runs in that directory.
            StartError: A program ended or was not ready in time; the message has the end of its log.
        """
        programs = programs or find_programs()
        layout, settings = Layout(Path(directory).absolute()), Options(**options)
        client = supervisor.Client(layout.directory)
        if client.serves():
            raise AlreadyRunningError(f"a cluster runs in {layout.directory} already")
        layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        layout.logs.mkdir(exist_ok=True)
        private = settings.private_network
        keeper = supervisor.launch(layout.directory, layout.log("supervisor"), private_network=private)
        try:
            _wait_for_keeper(keeper, client, layout)
            _clear(layout)
            # A network of its own has its own ports; the same ones must be free outside until they are forwarded.
            count = len(fields(Ports))
            with held(count) if private else nullcontext([0] * count) as wanted:
                ports = Ports(*client.call("reserve", ports=wanted)["ports"])
                if private:
                    prepare_network(client, layout, list(asdict(ports).values()))
                cluster = cls(layout, ports, settings, programs, keeper)
                cluster._plane.bring_up()
            cluster._describe()
        except BaseException:
            keeper.terminate()
            keeper.wait()
            raise
        return cluster

    @classmethod
    def attach(cls, directory: Path) -> Cluster:
        """The cluster that runs in `directory`, started by whomever.

        Raises:
            NotRunningError: None does.
        """
        layout = Layout(Path(directory).absolute())
        supervisor.Client(layout.directory).call("status")
        try:
            described = json.loads(layout.description.read_text())
        except FileNotFoundError:
            raise NotRunningError(f"the cluster in {layout.directory} is still starting") from None
        return cls(
            layout,
            Ports(**described["ports"]),
            Options(**described["options"]),
            Programs(**{name: Path(path) for name, path in described["programs"].items()}),
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def directory(self) -> Path:
        """Where everything of the cluster is kept."""
        return self._layout.directory

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._plane.server

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._layout.kubeconfig(ADMIN)

    @property
    def ca(self) -> Path:
        """The certificate that signed the API server's."""
        return self._layout.ca

    @property
    def kubectl_path(self) -> Path:
        """The kubectl program."""
        return self._programs.kubectl

    @property
    def audit_log(self) -> Path:
        """One JSON event per line: every call that changed something (see `arguments.AUDIT_POLICY`)."""
        return self._layout.audit_log

    def token(self, user: str = ADMIN) -> str:
        """The bearer token of a static user: `admin` or `devcluster-nodes`, both of them administrators."""
        return access.read_token(self._layout, user)

    def programs(self) -> list[ProgramStatus]:
        """Every process that was started for the cluster, in the order of their start."""
        status = self._client.call("status")["programs"]
        return [ProgramStatus(name, state["pid"], state["returncode"]) for name, state in status.items()]

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the administrator.

        Raises:
            CommandError: It failed and `check` is true.
        """
        argv = [str(self._programs.kubectl), *args]
        return self._command(argv, stdin, check)

    def helm(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs helm as the administrator.

        Raises:
            CommandError: It failed and `check` is true.
        """
        return self._command([str(self._programs.helm), *args], stdin, check)

    def _command(self, argv: Sequence[str], stdin: str | None, check: bool) -> subprocess.CompletedProcess[str]:
        home = self.directory / "home"  # caches of commands; nothing of the caller's own settings is read or changed
        env = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(home / "kube"),
            "KUBECTL_KUBERC": "false",
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }
        done = subprocess.run(argv, input=stdin, env=env, text=True, capture_output=True, check=False)
        if check and done.returncode:
            raise CommandError(argv, done.returncode, done.stdout, done.stderr)
        return done

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One call of the API as the administrator, without the cost of a kubectl process; returns the decoded answer.

        Raises:
            ApiError: The server refused.
        """
        return json.loads(access.request(self.server + path, self.ca, self.token(), method, body))

    def create_namespace(self, name: str) -> None:
        """Makes a namespace and waits for its default service account, without which pods are refused."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait(f"namespace {name} has its service account", lambda: self._plane.has(account), 60)

    def start_nodes(
        self,
        mode: Mode = "process",
        count: int = 2,
        *,
        ready_seconds: float = 60.0,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> NodeProgram:
        """Starts a node program and waits until its nodes are Ready.

        Args:
            mode: `process` (pods are local processes) or `fake`.
            count: How many nodes it plays.
            ready_seconds: How long to wait.
            env: Its environment; by default this process's.
            **settings: Further fields of `nodes.NodeSettings`; a second program needs another `name_prefix`.

        Raises:
            StartError: It ended or was not ready in time.
        """
        wanted = NodeSettings(mode=mode, count=count, **settings)
        return NodeProgram.start(self._client, self._layout, wanted, os.environ if env is None else env, ready_seconds)

    @property
    def container_nodes(self) -> ContainerNodes:
        """The container nodes, real kubelets; the cluster must have been started with `private_network`.

        Raises:
            StartError: It was not.
        """
        if not self._options.private_network:
            raise StartError("container nodes join clusters that were started with private_network=True")
        if self._container_nodes is None:
            self._container_nodes = ContainerNodes(self._client, self._layout, self.request)
        return self._container_nodes

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a fresh token of that service account, valid for a day; RBAC applies to it in full."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=24h").stdout.strip()
        path = self.directory / "service-accounts" / f"{namespace}.{name}.kubeconfig"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        access.write_kubeconfig(path, self.server, self.ca, f"{namespace}:{name}", token, namespace)
        return path

    def pause_api(self) -> None:
        """Stops the API server in its tracks (SIGSTOP): calls hang, connections stay open."""
        self._client.call("signal", name=API, number=signal.SIGSTOP)

    def resume_api(self) -> None:
        """Ends `pause_api`."""
        self._client.call("signal", name=API, number=signal.SIGCONT)

    def restart_api(self, how: Literal["crash", "graceful"] = "crash") -> None:
        """Ends the API server and starts it again on the same port; returns when it is ready."""
        self._plane.restart_api(signal.SIGKILL if how == "crash" else signal.SIGTERM)

    def end_program(self, name: str, number: int = signal.SIGTERM) -> None:
        """Ends one program of the cluster, as `programs` names it, by a signal; returns when it is gone."""
        self._plane.end(name, number)

    def detach(self) -> None:
        """Lets the cluster outlive this process; `stop`, from any process, ends it."""
        self._client.call("detach")

    def stop(self) -> None:
        """Ends the nodes (with their pods), then the control plane; removes etcd's data, keeps the logs."""
        try:
            pid = self._client.call("status")["pid"]
            self._client.call("shutdown")
        except NotRunningError:
            pid = 0
        if self._keeper:
            self._keeper.wait()
        elif pid:
            _wait_for_end(pid)
        if pid and self._options.private_network:
            remove_files(self._layout, pid)
        shutil.rmtree(self._layout.data, ignore_errors=True)

    def _describe(self) -> None:
        described = {"server": self.server, "ports": asdict(self._ports), "options": asdict(self._options)}
        described["programs"] = {name: str(path) for name, path in asdict(self._programs).items()}
        self._layout.description.write_text(json.dumps(described, indent=1))


def _wait_for_keeper(keeper: subprocess.Popen[bytes], client: supervisor.Client, layout: Layout) -> None:
    def check() -> None:
        if keeper.poll() is not None:
            raise StartError(f"the supervisor ended with {keeper.returncode}:\n{tail(layout.log('supervisor'))}")

    wait("the supervisor listens", client.serves, 60, check)


def _clear(layout: Layout) -> None:
    """Removes what an earlier cluster left; only its own things, in case the directory holds others."""
    for path in (layout.data, layout.pki, *layout.directory.glob("node-program-*")):
        shutil.rmtree(path, ignore_errors=True)
    for log in set(layout.logs.glob("*.log")) - {layout.log("supervisor")}:
        log.unlink()
    sockets = [layout.directory / name for name in (arguments.ETCD_SOCKET, arguments.ETCD_PEER_SOCKET)]
    for file in (layout.description, layout.audit_log, *sockets):
        file.unlink(missing_ok=True)
    layout.marker.write_text(
        "A cluster of `devcluster`. `devcluster --directory HERE down` ends it and removes this folder.\n"
    )


def _wait_for_end(pid: int) -> None:
    """Waits for a process that need not be our child; a zombie that its parent has not collected has ended, too."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([process], [], [], 120)
    finally:
        os.close(process)
