"""For tests of pods: a quick client, pods that are easy to make and to wait for, node programs of any kind."""

from __future__ import annotations

import ctypes
import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode, urlsplit

from devcluster.cluster import Cluster

T = TypeVar("T")
Object = dict[str, Any]
WAIT_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1
_NO_LOG_YET = ("waiting to start", "is not available")  # not made yet; made, and not yet known to the kubelet


class Refused(Exception):
    """The API server said no."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code}: {body[:500]}")
        self.code, self.body = code, body


class Client:
    """Requests over one connection, since a test makes many."""

    def __init__(self, cluster: Cluster) -> None:
        self._token, self._address = cluster.token(), urlsplit(cluster.server)
        self._tls = ssl.create_default_context(cafile=str(cluster.ca))
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address.netloc, context=self._tls, timeout=60)

    def text(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> str:
        """The answer as it is."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):  # it was closed meanwhile, as by an API server's restart
            self._connection.close()
            self._connection = self._connect()
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return text

    def lines(self, method: str, path: str) -> Iterator[str]:
        """The lines of an answer as they come; nothing else can be asked meanwhile."""
        self._connection.request(method, path, headers={"Authorization": f"Bearer {self._token}"})
        answer = self._connection.getresponse()
        while line := answer.readline():
            yield line.decode()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer."""
        return json.loads(self.text(method, path, body))

    def merge(self, path: str, body: Any) -> Any:
        """A merge patch."""
        return json.loads(self.text("PATCH", path, body, "application/merge-patch+json"))

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def eventually(condition: Callable[[], T | None], what: str = "", seconds: float = WAIT_SECONDS) -> T:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.03)
    return value


@dataclass(frozen=True)
class Gates:
    """Lets a test say when its pods go on: they wait for files in a folder that they share with it."""

    folder: Path
    volume: ClassVar[str] = "gates"

    @property
    def volumes(self) -> list[Object]:
        """For a pod's `volumes`."""
        return [{"name": self.volume, "hostPath": {"path": str(self.folder), "type": "Directory"}}]

    @property
    def mounts(self) -> Object:
        """To be merged into a container."""
        return {"volumeMounts": [{"name": self.volume, "mountPath": "/gates"}]}

    def wait(self, gate: str) -> str:
        """Shell code that waits until the gate is open."""
        return f"while [ ! -e /gates/{gate} ]; do sleep 0.05; done"

    def open(self, gate: str) -> None:
        """Lets whoever waits for it go on."""
        (self.folder / gate).touch()


@dataclass
class Pods:
    """Makes pods in one namespace, on one kind of node; `pod` are fields that each has unless it says otherwise."""

    client: Client
    namespace: str
    selector: Mapping[str, str]
    image: str = "example.org/any:1"
    pod: Mapping[str, Any] = field(default_factory=dict)

    def path(self, name: str = "", kind: str = "pods") -> str:
        """The address of one object of the namespace, or of all of a kind."""
        return f"/api/v1/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def make(self, kind: str, name: str, **content: Any) -> Object:
        """Any namespaced object of the core API."""
        created: Object = self.client.request("POST", self.path(kind=kind), {"metadata": {"name": name}, **content})
        return created

    def create(
        self,
        name: str,
        *command: str,
        containers: Sequence[Object] = (),
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod of one container `main` that runs `command`, or of the given containers (an image is added)."""
        main = {"name": "main", "command": list(command)} | spec.pop("container", {})
        every = [{"image": self.image, **one} for one in containers or [main]]
        for one in spec.get("initContainers", ()):
            one.setdefault("image", self.image)
        body = {
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": dict(self.selector),
                "terminationGracePeriodSeconds": 1,
                "containers": every,
                **self.pod,
                **spec,
            },
        }
        created: Object = self.client.request("POST", self.path(), body)
        return created

    def get(self, name: str) -> Object:
        """The pod as it is now."""
        found: Object = self.client.request("GET", self.path(name))
        return found

    def exists(self, name: str) -> bool:
        """Whether there is such a pod."""
        try:
            self.get(name)
        except Refused as error:
            if error.code != 404:
                raise
            return False
        return True

    def wait(self, name: str, *phases: str, seconds: float = WAIT_SECONDS) -> Object:
        """The pod once it is in one of these phases."""

        def there() -> Object | None:
            pod = self.get(name)
            return pod if pod["status"]["phase"] in phases else None

        try:
            return eventually(there, f"{name} in {phases}", seconds)
        except AssertionError:
            raise AssertionError(f"{name} is not in {phases}: {json.dumps(self.get(name)['status'])}") from None

    def wait_until(self, name: str, condition: Callable[[Object], bool], what: str) -> Object:
        """The pod once the condition holds."""
        return eventually(lambda: pod if condition(pod := self.get(name)) else None, what)

    def finished(self, name: str, seconds: float = WAIT_SECONDS) -> Object:
        """The pod once its phase is final."""
        return self.wait(name, "Succeeded", "Failed", seconds=seconds)

    def log(self, name: str, **query: Any) -> str:
        """A container's log; `query` as in the API."""
        return self.client.text("GET", self.path(name) + "/log?" + urlencode(query))

    def wait_for_line(self, name: str, line: str, container: str = "main") -> None:
        """Waits until a container's log has that line."""

        def there() -> bool:
            try:
                return line in self.log(name, container=container).splitlines()
            except Refused as error:
                # 404: it was just bound, and its kubelet has not heard of it.
                if error.code != 404 and not any(text in error.body for text in _NO_LOG_YET):
                    raise
                return False

        eventually(there, f"{container} of {name} says {line!r}")

    def delete(self, name: str, grace: int | None = None) -> None:
        """Asks for its deletion, with its own grace period by default."""
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        self.client.request("DELETE", self.path(name), body)

    def wait_gone(self, name: str, seconds: float = WAIT_SECONDS) -> None:
        """Waits until it is out of the API."""
        eventually(lambda: not self.exists(name), f"{name} is gone", seconds)


def state_of(pod: Object, container: str = "main") -> Object:
    """A container's state, with its kind under the key `is`."""
    status = pod["status"]
    every = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    state = next(one["state"] for one in every if one["name"] == container)
    kind = next(iter(state))
    return {"is": kind, **state[kind]}


def conditions_of(pod: Object) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return {one["type"]: (one["status"], one.get("reason", "")) for one in pod["status"]["conditions"]}


@dataclass
class NodeProcess:
    """A node program that a test runs itself."""

    argv: list[str]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self, *, wait: bool = True) -> None:
        """Starts it, and waits until it says `ready`."""
        with self.log.open("ab") as output:
            before = self.log.stat().st_size
            self.process = subprocess.Popen(
                self.argv, stdout=output, stderr=output, preexec_fn=_die_with_parent, start_new_session=True
            )
        if wait:
            eventually(lambda: self._is_ready(before), f"the node program is ready: {self.argv}", 180)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)

    def _is_ready(self, before: int) -> bool:
        text = self.log.read_bytes()[before:].decode()
        assert self.process.poll() is None, text
        return "ready" in text.splitlines()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def node_program(
    cluster: Cluster, folder: Path, mode: str, prefix: str, *arguments: str, kubeconfig: Path | None = None
) -> NodeProcess:
    """A node program of the cluster, not started yet. Its nodes are called PREFIX-0 and so on."""
    kubeconfig = kubeconfig or cluster.directory / "kubeconfig-devcluster-nodes"
    pki = cluster.directory / "pki"
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "devcluster.node", f"--kubeconfig={kubeconfig}", f"--mode={mode}"]
    argv += [f"--state-dir={folder}/state", f"--name-prefix={prefix}", f"--label=under-test={prefix}"]
    argv += [f"--tls-cert={pki}/node.crt", f"--tls-key={pki}/node.key", f"--client-ca={pki}/ca.crt", *arguments]
    return NodeProcess(argv, folder / "log")
