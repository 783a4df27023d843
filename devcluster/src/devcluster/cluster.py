"""`Cluster`: the handle of one running control plane and of the nodes that joined it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from devcluster import controlplane as plane
from devcluster.controlplane import Layout, Options, Ports
from devcluster.errors import AlreadyRunningError, ApiError, CommandError, NotRunningError, StartError
from devcluster.nodes import Mode, NodeProgram, NodeSettings, tail
from devcluster.supervisor import Client
from devcluster.toolchain import Programs, find_programs

_API, _ETCD = "kube-apiserver", "etcd"
_ENVIRONMENT = {"PATH": os.defpath}  # no proxies, no ETCD_ variables: a cluster is the same for everybody
_CONTROLLERS, _SCHEDULER = "kube-controller-manager", "kube-scheduler"


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
        supervisor: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self._layout, self._ports, self._options, self._programs = layout, ports, options, programs
        self._supervisor = supervisor
        self._client = Client(layout.directory)

    @classmethod
    def start(cls, directory: Path, *, programs: Programs | None = None, **options: Any) -> Cluster:
        """Starts a control plane and waits until it schedules.

        Args:
            directory: Where everything of it is kept; made if missing. What an earlier cluster left there is removed.
            programs: The programs to run; by default those that `toolchain.find_programs` finds.
            **options: Fields of `controlplane.Options`.

        Raises:
            ToolchainError: The programs were not built yet.
            AlreadyRunningError: A cluster runs in that directory.
            StartError: A program ended or was not ready in time; the message has the end of its log.
        """
        programs = programs or find_programs()
        layout, settings = Layout(Path(directory).absolute()), Options(**options)
        client = Client(layout.directory)
        supervisor = _start_supervisor(client, layout)
        try:
            _wait(
                lambda: bool(client.call("status")),
                time.monotonic() + 20,
                lambda: _check_supervisor(supervisor, layout),
            )
            _clear(layout)
            ports = Ports(*client.call("reserve", count=5)["ports"])
            cluster = cls(layout, ports, settings, programs, supervisor)
            cluster._bring_up()
        except BaseException:
            supervisor.terminate()
            supervisor.wait()
            raise
        return cluster

    @classmethod
    def attach(cls, directory: Path) -> Cluster:
        """The cluster that runs in `directory`, started by whomever.

        Raises:
            NotRunningError: None does.
        """
        layout = Layout(Path(directory).absolute())
        Client(layout.directory).call("status")
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
        return f"https://127.0.0.1:{self._ports.api}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._layout.kubeconfig(plane.ADMIN)

    @property
    def ca(self) -> Path:
        """The certificate that signed the API server's."""
        return self._layout.pki / "ca.crt"

    @property
    def kubectl_path(self) -> Path:
        """The kubectl program."""
        return self._programs.kubectl

    @property
    def audit_log(self) -> Path:
        """One JSON event per line: every call that changed something (see `controlplane.AUDIT_POLICY`)."""
        return self._layout.audit_log

    def token(self, user: str = plane.ADMIN) -> str:
        """The bearer token of a static user: `admin` or `devcluster-nodes`, both of them administrators."""
        config = json.loads(self._layout.kubeconfig(user).read_text())
        return str(config["users"][0]["user"]["token"])

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
        return json.loads(plane.request(self.server + path, self.ca, self.token(), method, body))

    def create_namespace(self, name: str) -> None:
        """Makes a namespace and waits for its default service account, without which pods are refused."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"{self.server}/api/v1/namespaces/{name}/serviceaccounts/default"
        self._wait_until(f"namespace {name} has its service account", lambda: self._answers(account))

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

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a fresh token of that service account, valid for a day; RBAC applies to it in full."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=24h").stdout.strip()
        path = self.directory / "service-accounts" / f"{namespace}.{name}.kubeconfig"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        plane.write_kubeconfig(path, self.server, self.ca, f"{namespace}:{name}", token, namespace)
        return path

    def pause_api(self) -> None:
        """Stops the API server in its tracks (SIGSTOP): calls hang, connections stay open."""
        self._client.call("signal", name=_API, number=signal.SIGSTOP)

    def resume_api(self) -> None:
        """Ends `pause_api`."""
        self._client.call("signal", name=_API, number=signal.SIGCONT)

    def restart_api(self, how: Literal["crash", "graceful"] = "crash") -> None:
        """Ends the API server and starts it again on the same port; returns when it is ready."""
        self.stop_program(_API, signal.SIGKILL if how == "crash" else signal.SIGTERM)
        self._spawn_api()
        self._wait_until("the API server is ready", self._api_ready)

    def stop_program(self, name: str, number: int = signal.SIGTERM) -> None:
        """Ends one program of the cluster by a signal and waits until it is gone."""
        self._client.call("signal", name=name, number=number)
        _wait(lambda: self._ended(name) is not None, time.monotonic() + 90, lambda: None)

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
        if self._supervisor:
            self._supervisor.wait()
        elif pid:
            _wait_for_end(pid)
        shutil.rmtree(self._layout.data, ignore_errors=True)

    def _bring_up(self) -> None:
        layout, programs = self._layout, self._programs
        made = subprocess.run(
            [programs.kube, "certificates", layout.pki, plane.SERVICE_IP], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise StartError(f"certificates could not be made: {made.stderr.strip()}")
        self._spawn(_ETCD, programs.etcd, plane.etcd_arguments(layout, self._ports))
        plane.write_credentials(layout, self.server)
        plane.write_private(layout.directory / "audit-policy.json", json.dumps(plane.AUDIT_POLICY))
        self._wait_until("etcd listens", lambda: plane.listens(self._ports.etcd))  # refused, it would be tried late
        self._spawn_api()
        self._wait_until("the API server is ready", self._api_ready)
        self._spawn(_CONTROLLERS, programs.controllers, plane.controllers_arguments(layout, self._ports, self._options))
        self._spawn(_SCHEDULER, programs.scheduler, plane.scheduler_arguments(layout, self._ports, self._options))
        account = f"{self.server}/api/v1/namespaces/default/serviceaccounts/default"
        self._wait_until("the controllers work", lambda: self._answers(account))
        self._wait_until(
            "the scheduler is ready", lambda: self._answers(f"https://127.0.0.1:{self._ports.scheduler}/readyz")
        )
        described = {"server": self.server, "ports": asdict(self._ports), "options": asdict(self._options)}
        described["programs"] = {name: str(path) for name, path in asdict(programs).items()}
        layout.description.write_text(json.dumps(described, indent=1))

    def _spawn_api(self) -> None:
        self._spawn(_API, self._programs.apiserver, plane.apiserver_arguments(self._layout, self._ports, self._options))

    def _spawn(self, name: str, program: Path, arguments: Sequence[str]) -> None:
        argv = [str(program), *arguments, *self._options.extra_arguments.get(name, ())]
        self._client.call("spawn", name=name, argv=argv, env=_ENVIRONMENT, log=str(self._layout.log(name)), grace=0.0)

    def _api_ready(self) -> bool:
        return self._answers(f"{self.server}/readyz")

    def _answers(self, url: str) -> bool:
        try:
            plane.request(url, self.ca, self.token())
        except (OSError, ApiError):
            return False
        return True

    def _wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            _wait(condition, time.monotonic() + self._options.start_seconds, self._check)
        except TimeoutError:
            raise StartError(f"not in {self._options.start_seconds:.0f} s: {what}. Logs: {self._layout.logs}") from None

    def _ended(self, name: str) -> int | None:
        return {program.name: program.returncode for program in self.programs()}[name]

    def _check(self) -> None:
        for program in self.programs():
            if program.returncode is not None:
                raise StartError(
                    f"{program.name} ended with {program.returncode}:\n{tail(self._layout.log(program.name))}"
                )


def _start_supervisor(client: Client, layout: Layout) -> subprocess.Popen[bytes]:
    try:
        client.call("status")
        raise AlreadyRunningError(f"a cluster runs in {layout.directory} already")
    except NotRunningError:
        pass
    layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    layout.logs.mkdir(exist_ok=True)
    with open(layout.log("supervisor"), "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "devcluster.supervisor", str(layout.directory), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the terminal's Ctrl-C is for the parent; its end is what counts here
        )


def _clear(layout: Layout) -> None:
    """Removes what an earlier cluster left; only its own things, in case the directory holds others."""
    for path in (layout.data, layout.pki, *layout.directory.glob("node-program-*")):
        shutil.rmtree(path, ignore_errors=True)
    for log in set(layout.logs.glob("*.log")) - {layout.log("supervisor")}:
        log.unlink()
    layout.description.unlink(missing_ok=True)
    layout.audit_log.unlink(missing_ok=True)
    layout.marker.write_text(
        "A cluster of `devcluster`. `devcluster --directory HERE down` ends it and removes this folder.\n"
    )


def _check_supervisor(supervisor: subprocess.Popen[bytes], layout: Layout) -> None:
    if supervisor.poll() is not None:
        raise StartError(f"the supervisor ended with {supervisor.returncode}:\n{tail(layout.log('supervisor'))}")


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


def _wait(condition: Callable[[], bool], deadline: float, check: Callable[[], None]) -> None:
    while True:
        try:
            if condition():
                return
        except NotRunningError:  # the supervisor does not listen yet
            pass
        check()
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)
