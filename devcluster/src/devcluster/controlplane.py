"""Starts the programs of a control plane, in their order, and says when they work.

Identities. Static tokens for `admin`, the controllers, the scheduler and the node program, so that the audit log
tells them apart. RBAC is on, and service accounts get real tokens. The certificates come from the program itself
(`kube certificates`); kube/certificates.go lists the files in `pki/`.

Node endpoint. `kubectl logs` makes the API server call the node's daemon endpoint over HTTPS. Both sides
prove themselves: the node serves `pki/node.crt` (valid for 127.0.0.1) and asks for a client certificate that
`pki/ca.crt` signed; only the API server has one (`pki/api-client.crt`). So nobody else on the machine reads a pod's
log there. The node program is told its files by `--tls-cert`, `--tls-key` and `--client-ca`.

etcd listens on a Unix socket that only this user may open: whoever writes to etcd makes pods, and pods of process
nodes are processes of this user.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from devcluster import arguments
from devcluster.access import Others, answers, write_credentials, write_private
from devcluster.containers import network, users
from devcluster.errors import StartError
from devcluster.settings import Layout, Options, Ports
from devcluster.supervisor import Client
from devcluster.toolchain import Programs

ETCD, API = "etcd", "kube-apiserver"
CONTROLLERS, SCHEDULER = "kube-controller-manager", "kube-scheduler"
_ENVIRONMENT = {"PATH": os.defpath}  # no proxies, no ETCD_ variables: a cluster is the same for everybody


class ControlPlane:
    """The four programs of one cluster, run by its supervisor."""

    def __init__(self, layout: Layout, ports: Ports, options: Options, programs: Programs, client: Client) -> None:
        self._layout, self._ports, self._options, self._programs = layout, ports, options, programs
        self._client = client
        self.server = f"https://127.0.0.1:{ports.api}"

    def bring_up(self) -> None:
        """Starts all of it and waits until pods could be made and scheduled.

        Raises:
            StartError: A program ended or was not ready in time; the message has the end of its log.
        """
        layout, ports, options, programs = self._layout, self._ports, self._options, self._programs
        self._make_certificates()
        private = Others(users.groups(), f"https://{network.GATEWAY}:{ports.api}") if options.private_network else None
        write_credentials(layout, self.server, private)
        write_private(layout.directory / "audit-policy.json", json.dumps(arguments.AUDIT_POLICY))
        self._spawn(ETCD, programs.etcd, arguments.etcd(layout))
        self._wait("etcd listens", (layout.directory / arguments.ETCD_SOCKET).exists)  # else the API server tries late
        self._spawn(API, programs.apiserver, arguments.apiserver(layout, ports, options))
        self._wait("the API server is ready", self.api_ready)
        self._spawn(CONTROLLERS, programs.controllers, arguments.controllers(layout, ports, options))
        self._spawn(SCHEDULER, programs.scheduler, arguments.scheduler(layout, ports, options))
        self._wait("the controllers work", lambda: self.has("/api/v1/namespaces/default/serviceaccounts/default"))
        ready = f"https://127.0.0.1:{ports.scheduler}/readyz"
        self._wait("the scheduler is ready", lambda: answers(ready, layout))

    def api_ready(self) -> bool:
        """Whether the API server says so itself."""
        return self.has("/readyz")

    def has(self, path: str) -> bool:
        """Whether the API server answers a GET of that path with success."""
        return answers(self.server + path, self._layout)

    def restart_api(self, number: int) -> None:
        """Ends the API server by that signal and starts it again on its port; returns when it is ready."""
        self.end(API, number)
        self._spawn(API, self._programs.apiserver, arguments.apiserver(self._layout, self._ports, self._options))
        self._wait("the API server is ready", self.api_ready, watched=(API,))

    def end(self, name: str, number: int) -> None:
        """Ends one program by a signal (90 s are given to it) and waits until it is gone."""
        self._client.call("signal", name=name, number=number)
        if self._client.call("status")["programs"][name]["returncode"] is None:
            self._client.call("signal", name=name, number=signal.SIGCONT)  # a stopped program hears no SIGTERM
        wait(f"{name} is gone", lambda: self._client.returncode(name) is not None, 90)

    def _make_certificates(self) -> None:
        addresses = (network.GATEWAY, *network.every_node_address()) if self._options.private_network else ()
        argv = [str(self._programs.kube), "certificates", str(self._layout.pki), arguments.SERVICE_IP, *addresses]
        made = subprocess.run(argv, capture_output=True, text=True, check=False)
        if made.returncode:
            raise StartError(f"certificates could not be made: {made.stderr.strip()}")

    def _spawn(self, name: str, program: Path, argv: Sequence[str]) -> None:
        whole = [str(program), *argv, *self._options.extra_arguments.get(name, ())]
        self._client.call("spawn", name=name, argv=whole, env=_ENVIRONMENT, log=str(self._layout.log(name)), grace=0.0)

    def _wait(self, what: str, condition: Callable[[], bool], watched: Sequence[str] = ()) -> None:
        def check() -> None:
            for name in watched or self._client.call("status")["programs"]:
                code = self._client.returncode(name)
                if code is not None:
                    raise StartError(f"{name} ended with {code}:\n{tail(self._layout.log(name))}")

        wait(what, condition, self._options.start_seconds, check, f"Logs: {self._layout.logs}")


def wait(
    what: str, condition: Callable[[], bool], seconds: float, check: Callable[[], None] = lambda: None, hint: str = ""
) -> None:
    """Polls until the condition holds.

    Raises:
        StartError: It did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise StartError(f"not in {seconds:.0f} s: {what}. {hint}".strip())
        time.sleep(0.05)


def tail(log: Path, lines: int = 12) -> str:
    """The end of a log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
