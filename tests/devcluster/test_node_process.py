"""Process nodes beyond the contract: what they refuse, and what becomes of pods when their program ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.node.testing import Object, Pods, eventually, state_of

pytestmark = pytest.mark.cluster
MakePods = Callable[[str], Pods]
_DEAF = ["sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.1; done"]
# A child that has left its parent's session and process group, and whose parent has ended.
_DAEMON = (
    "(setsid sh -c 'echo $$ > /tmp/{0}; exec sleep 1000' &); while [ ! -s /tmp/{0} ]; do sleep 0.05; done; echo up; "
)
_ISOLATIONS = ["auto", "user-namespaces", "none"] if os.geteuid() == 0 else ["auto", "none"]


def _pid(pod: Object) -> int:
    """Its number outside of the container, which the container's ID is made of."""
    scheme, _, number = pod["status"]["containerStatuses"][0]["containerID"].partition("://")
    assert scheme == "process"
    return int(number)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def _pids_with(marker: str) -> set[int]:
    """The processes whose environment has a marker."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker.encode() in environment and _is_alive(int(entry.name)):
                found.add(int(entry.name))
    return found


@pytest.fixture
def program_and_pods(make_nodes: Any, make_pods: MakePods) -> tuple[Any, Pods]:
    return make_nodes("process", "alone"), make_pods("alone")


def test_what_cannot_be_run_is_refused_with_every_reason(program_and_pods: tuple[Any, Pods]) -> None:
    _, pods = program_and_pods
    pods.create(
        "impossible",
        restartPolicy="Always",
        initContainers=[{"name": "sidecar", "command": ["true"], "restartPolicy": "Always"}],
        container={"command": []},
        volumes=[{"name": "share", "nfs": {"server": "example.org", "path": "/"}}],
    )
    status = pods.finished("impossible")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "NotSupported")
    for part in ("restartPolicy Always", "container main has no command", "container sidecar", "share is of kind nfs"):
        assert part in status["message"]


def test_what_is_not_honoured_is_said_in_an_event(program_and_pods: tuple[Any, Pods]) -> None:
    _, pods = program_and_pods
    pods.create(
        "limited",
        "true",
        securityContext={"runAsUser": 1000},
        container={
            "resources": {"limits": {"memory": "1Mi"}},
            "readinessProbe": {"exec": {"command": ["false"]}},
        },
    )
    assert pods.finished("limited")["status"]["phase"] == "Succeeded"

    def warning() -> str | None:
        events = pods.client.request("GET", pods.path(kind="events"))["items"]
        return next((str(one["message"]) for one in events if one["reason"] == "NotHonoured"), None)

    message = eventually(warning, "a warning")
    wanted = "process nodes do not honour: spec.securityContext, main.readinessProbe, main.resources.limits"
    assert message == wanted


def test_exec_is_refused_in_words(program_and_pods: tuple[Any, Pods], cluster: Cluster) -> None:
    _, pods = program_and_pods
    pods.create("here", *_DEAF)
    pods.wait_for_line("here", "up")
    kubectl = [str(cluster.kubectl_path), "--kubeconfig", str(cluster.kubeconfig), "--namespace", pods.namespace]
    done = subprocess.run([*kubectl, "exec", "here", "--", "true"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "exec is not implemented" in done.stderr


def test_a_container_that_is_killed_from_outside_says_so(program_and_pods: tuple[Any, Pods]) -> None:
    _, pods = program_and_pods
    pods.create("victim", *_DEAF)
    pods.wait_for_line("victim", "up")
    os.kill(_pid(pods.wait("victim", "Running")), signal.SIGKILL)
    pod = pods.finished("victim")
    assert (pod["status"]["phase"], state_of(pod)["exitCode"], state_of(pod)["reason"]) == ("Failed", 137, "Error")


@pytest.mark.parametrize("isolation", _ISOLATIONS)
def test_no_process_outlives_the_program(make_nodes: Any, make_pods: MakePods, isolation: str) -> None:
    program = make_nodes("process", "mortal", f"--isolation={isolation}")
    pods = make_pods("mortal")
    marker = f"MARKER={pods.namespace}"
    env = [{"name": "MARKER", "value": pods.namespace}]
    script = _DAEMON.format(pods.namespace) + "exec sleep 1000"
    pods.create("family", container={"command": ["sh", "-c", script], "env": env})
    pods.wait_for_line("family", "up")
    before = _pids_with(marker)
    assert len(before) == 2, "the main process and its runaway child"
    program.stop(signal.SIGKILL)
    eventually(lambda: not _pids_with(marker), f"{before} are gone")
    Path("/tmp", pods.namespace).unlink()


@pytest.mark.parametrize("isolation", _ISOLATIONS)
def test_a_runaway_child_ends_with_its_container(make_nodes: Any, make_pods: MakePods, isolation: str) -> None:
    make_nodes("process", "tidy", f"--isolation={isolation}")
    pods = make_pods("tidy")
    env = [{"name": "MARKER", "value": pods.namespace}]
    pods.create("ends", container={"command": ["sh", "-c", _DAEMON.format(pods.namespace) + "exit 0"], "env": env})
    assert pods.finished("ends")["status"]["phase"] == "Succeeded"
    assert not _pids_with(f"MARKER={pods.namespace}")
    Path("/tmp", pods.namespace).unlink()


def test_after_a_crash_running_pods_are_lost_and_waiting_ones_start(program_and_pods: tuple[Any, Pods]) -> None:
    program, pods = program_and_pods
    pods.create("done", "sh", "-c", "echo kept; exit 3")
    pods.create("ran", *_DEAF, initContainers=[{"name": "before", "command": ["true"]}])
    pods.create("waits", "true", volumes=[{"name": "late", "configMap": {"name": "late"}}])
    pods.create("goes", *_DEAF)
    pods.finished("done")
    for name in ("ran", "goes"):
        pods.wait_for_line(name, "up")
    pods.wait_until("waits", lambda pod: bool(pod["status"].get("containerStatuses")), "the node has seen it")
    program.stop(signal.SIGKILL)
    pods.delete("goes")
    pods.make("configmaps", "late", data={})
    program.start()
    ran = pods.finished("ran")
    assert ran["status"]["phase"] == "Failed"
    assert (state_of(ran)["exitCode"], state_of(ran)["reason"]) == (137, "ContainerStatusUnknown")
    assert state_of(ran, "before")["reason"] == "Completed"
    pods.wait_gone("goes")
    assert pods.finished("waits")["status"]["phase"] == "Succeeded"
    assert state_of(pods.get("done"))["exitCode"] == 3
    assert pods.log("done") == "kept\n"


def test_on_sigterm_it_ends_its_pods_and_says_why(program_and_pods: tuple[Any, Pods]) -> None:
    program, pods = program_and_pods
    pods.create("polite", "sh", "-c", "trap 'exit 0' TERM; echo up; while true; do sleep 0.05; done")
    pods.create("deaf", *_DEAF)
    for name in ("polite", "deaf"):
        pods.wait_for_line(name, "up")
    assert program.stop() == 0
    for name, code in (("polite", 0), ("deaf", 137)):
        status = pods.get(name)["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
        assert state_of(pods.get(name))["exitCode"] == code


def test_addresses_are_unique_across_programs(make_nodes: Any, make_pods: MakePods) -> None:
    every = []
    for prefix in ("east", "west"):
        make_nodes("process", prefix)
        for name in ("a", "b"):
            make_pods(prefix).create(f"{prefix}-{name}", *_DEAF)
            every.append(f"{prefix}-{name}")
    pods = make_pods("east")
    addresses = {pods.wait(name, "Running")["status"]["podIP"] for name in every}
    assert len(addresses) == 4
    assert all(one.startswith("127.") for one in addresses)


class _Relay:
    """Passes connections on to the API server, until it is cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._pairs: list[socket.socket] = []
        self._up = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._up = False
        for one in self._pairs:
            _shut(one)
        self._pairs.clear()

    def mend(self) -> None:
        self._up = True

    def close(self) -> None:
        _shut(self._socket)
        self._socket.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            if not self._up:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _shut(sink)
    source.close()


@pytest.fixture
def relay(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[_Relay, Path]]:
    """A relay to the API server, and a kubeconfig that goes through it."""
    relay = _Relay(int(cluster.server.rsplit(":", 1)[1]))
    text = (cluster.directory / "kubeconfig-devcluster-nodes").read_text()
    document = json.loads(text)
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    yield relay, path
    relay.close()


def test_an_outage_of_the_api_server_loses_nothing(
    make_nodes: Any, make_pods: MakePods, relay: tuple[_Relay, Path], tmp_path: Path
) -> None:
    wire, kubeconfig = relay
    program = make_nodes("process", "faraway", kubeconfig=kubeconfig)
    pods = make_pods("faraway")
    flag = {"volumeMounts": [{"name": "flag", "mountPath": "/flag"}]}
    tmp_path.chmod(0o755)
    script = "echo up; while [ ! -e /flag/go ]; do sleep 0.05; done; exit 7"
    volumes = [{"name": "flag", "hostPath": {"path": str(tmp_path)}}]
    pods.create("ends", "sh", "-c", script, container=flag, volumes=volumes)
    pods.create("deleted", *_DEAF)
    for name in ("ends", "deleted"):
        pods.wait_for_line(name, "up")
    pid = _pid(pods.get("ends"))
    wire.cut()
    (tmp_path / "go").touch()
    eventually(lambda: not _is_alive(pid), "the container has ended")
    pods.delete("deleted")
    pods.create("new", "true")
    assert state_of(pods.get("ends"))["is"] == "running", "nobody can have said that it ended"
    assert program.process.poll() is None
    wire.mend()
    assert state_of(pods.finished("ends"))["exitCode"] == 7
    assert pods.finished("new")["status"]["phase"] == "Succeeded"
    pods.wait_gone("deleted")


def test_without_namespaces_paths_and_addresses_come_by_environment(make_nodes: Any, make_pods: MakePods) -> None:
    make_nodes("process", "plain", "--isolation=none")
    pods = make_pods("plain")
    pods.make("services", "gang", spec={"clusterIP": "None", "selector": {"a": "b"}, "publishNotReadyAddresses": True})
    pods.make("configmaps", "settings", data={"color": "blue"})
    code = (
        "import json, os; root = os.environ['DEVCLUSTER_ROOT']\n"
        "open(root + '/dev/termination-log', 'w').write('last words')\n"
        "print(json.dumps({'color': open(root + '/etc/settings/color').read(), 'master': os.environ['MASTER_ADDR'],\n"
        "  'end': os.environ['ENDPOINT'], 'hosts': open(os.environ['DEVCLUSTER_HOSTS']).read()}), flush=True)\n"
        "import time; time.sleep(100)\n"
    )
    for name in ("w-0", "w-1"):
        pods.create(
            name,
            container={
                "command": ["python3", "-c", code],
                "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings"}],
                "env": [
                    {"name": "MASTER_ADDR", "value": "w-0.gang"},
                    {"name": "ENDPOINT", "value": "tcp://w-1.gang:29"},
                ],
            },
            volumes=[{"name": "settings", "configMap": {"name": "settings"}}],
            metadata={"labels": {"a": "b"}, "finalizers": ["devcluster.test/keep"]},
            hostname=name,
            subdomain="gang",
        )
    addresses = {name: pods.wait(name, "Running")["status"]["podIP"] for name in ("w-0", "w-1")}
    for name in addresses:
        told = json.loads(eventually(partial(pods.log, name), f"{name} tells"))
        assert told["color"] == "blue"
        assert told["master"] == addresses["w-0"]
        assert told["end"] == f"tcp://{addresses['w-1']}:29"
        assert f"{addresses[name]}\t{name}.gang" in told["hosts"]
    pods.delete("w-0")
    ended = pods.finished("w-0")
    # Without a PID namespace SIGTERM has its usual effect on a program that does not handle it.
    assert (state_of(ended)["exitCode"], state_of(ended)["message"]) == (143, "last words")
    for name in addresses:
        pods.client.merge(pods.path(name), {"metadata": {"finalizers": None}})
