"""The contract: how containers start, end, and are ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from devcluster.node.testing import Object, Pods, conditions_of, state_of

pytestmark = pytest.mark.cluster
_KEEP = "devcluster.test/keep"


def _python(code: str) -> list[str]:
    return ["python3", "-u", "-c", code]


_ON_TERM = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: {}); print('up'); time.sleep(100)"
_EXITS_143_ON_TERM = _python(_ON_TERM.format("sys.exit(143)"))
_EXITS_0_ON_TERM = _python(_ON_TERM.format("(time.sleep(0.3), sys.exit(0))"))
_NO_HANDLER = _python("import time; print('up'); time.sleep(100)")


@contextmanager
def _kept(pods: Pods, name: str) -> Iterator[Callable[[], Object]]:
    """Lets the last status of a deleted pod be seen: a finalizer keeps the object when the kubelet is done with it."""

    def over() -> Object:
        done = lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed")  # noqa: E731
        return pods.wait_until(name, done, "is over")

    yield over
    pods.client.merge(pods.path(name), {"metadata": {"finalizers": None}})
    pods.wait_gone(name)


def test_init_containers_run_one_after_another_before_the_rest(pods: Pods) -> None:
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    stamp = "cat /shared/log 2>/dev/null; echo {0} >> /shared/log; sleep 0.2; echo {0}-done >> /shared/log"
    pods.create(
        "ordered",
        initContainers=[
            {"name": name, "command": ["sh", "-c", stamp.format(name)], **mount} for name in ("one", "two")
        ],
        containers=[{"name": "main", "command": ["cat", "/shared/log"], **mount}],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    pod = pods.finished("ordered")
    assert pods.log("ordered") == "one\none-done\ntwo\ntwo-done\n"
    assert pods.log("ordered", container="two") == "one\none-done\n"
    statuses = pod["status"]["initContainerStatuses"]
    assert [(one["name"], one["ready"]) for one in statuses] == [("one", True), ("two", True)]
    assert state_of(pod, "one")["reason"] == "Completed"


def test_a_failing_init_container_fails_the_pod(pods: Pods) -> None:
    pods.create(
        "unprepared",
        "true",
        initContainers=[
            {"name": "bad", "command": ["sh", "-c", "exit 4"]},
            {"name": "never", "command": ["true"]},
        ],
    )
    pod = pods.finished("unprepared")
    assert pod["status"]["phase"] == "Failed"
    assert (state_of(pod, "bad")["exitCode"], state_of(pod, "bad")["reason"]) == (4, "Error")
    assert state_of(pod, "never") == {"is": "waiting", "reason": "PodInitializing"}
    assert state_of(pod, "main") == {"is": "waiting", "reason": "PodInitializing"}
    assert conditions_of(pod)["Initialized"] == ("False", "ContainersNotInitialized")


def test_exit_codes_and_termination_messages(pods: Pods) -> None:
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    commands: dict[str, Any] = {
        "zero": {"command": ["sh", "-c", "echo well > /dev/termination-log"]},
        "three": {"command": ["sh", "-c", "echo to the log; exit 3"]},
        "segfault": {"command": _python("import ctypes; ctypes.string_at(0)")},
        "missing": {"command": ["/no/such/program"]},
        "not-in-path": {"command": ["no-such-program"]},
        "own-path": {"command": ["sh", "-c", "printf 0123456789 > /tmp/last-$0; exit 1", "words"]},
        "from-log": {"command": ["sh", "-c", "echo first; sleep 0.5; echo last >&2; exit 1"], **fallback},
        "file-wins": {"command": ["sh", "-c", "echo log; echo file > /dev/termination-log; exit 1"], **fallback},
        "no-error": {"command": ["sh", "-c", "echo log"], **fallback},
        "long-file": {"command": _python("open('/dev/termination-log', 'w').write('a' * 5000 + 'z')")},
        "long-log": {"command": _python("print('\\n'.join(f'line {i:04}' for i in range(1000))); exit(1)"), **fallback},
    }
    commands["own-path"]["terminationMessagePath"] = "/tmp/last-words"
    commands["own-path"]["command"][2] = "printf 0123456789 > /tmp/last-words; exit 1"
    pods.create("codes", containers=[{"name": name, **one} for name, one in commands.items()])
    pod = pods.finished("codes")
    assert pod["status"]["phase"] == "Failed"
    states = {name: state_of(pod, name) for name in commands}
    told = {name: (one["exitCode"], one["reason"], one.get("message", "")) for name, one in states.items()}
    assert "no such file or directory" in states["missing"]["message"]
    assert "executable file not found in $PATH" in states["not-in-path"]["message"]
    assert {name: told[name][:2] for name in ("missing", "not-in-path")} == {
        "missing": (128, "StartError"),
        "not-in-path": (128, "StartError"),
    }
    assert {name: one for name, one in told.items() if name not in ("missing", "not-in-path", "long-log")} == {
        "zero": (0, "Completed", "well\n"),
        "three": (3, "Error", ""),
        "segfault": (139, "Error", ""),
        "own-path": (1, "Error", "0123456789"),
        "from-log": (1, "Error", "first\nlast\n"),
        "file-wins": (1, "Error", "file\n"),
        "no-error": (0, "Completed", ""),
        "long-file": (0, "Completed", "a" * (12 * 1024 // len(commands))),  # shared out among the containers
    }
    lines = states["long-log"]["message"].splitlines()
    assert lines == [f"line {number:04}" for number in range(920, 1000)], "80 lines at most"
    for name in set(commands) - {"missing", "not-in-path"}:
        assert states[name]["startedAt"] <= states[name]["finishedAt"]


def test_deletion_sends_sigterm_and_sigkill_after_the_grace_period(pods: Pods) -> None:
    commands = {"polite": _EXITS_143_ON_TERM, "slow": _EXITS_0_ON_TERM, "deaf": _NO_HANDLER}
    pods.create(
        "stopped",
        containers=[{"name": name, "command": command} for name, command in commands.items()],
        metadata={"finalizers": [_KEEP]},
        terminationGracePeriodSeconds=3,
    )
    with _kept(pods, "stopped") as over:
        for name in commands:
            pods.wait_for_line("stopped", "up", name)
        began = time.monotonic()
        pods.delete("stopped")
        pod = over()
        took = time.monotonic() - began
    assert 2.9 < took < 30
    assert pod["status"]["phase"] == "Failed"
    # A container's main process has number 1: the kernel gives it no default action for SIGTERM.
    assert {name: state_of(pod, name)["exitCode"] for name in commands} == {"polite": 143, "slow": 0, "deaf": 137}
    assert {name: state_of(pod, name)["reason"] for name in commands} == {
        "polite": "Error",
        "slow": "Completed",
        "deaf": "Error",
    }


def test_a_clean_end_is_a_success_and_a_shorter_grace_period_comes_too_late(pods: Pods) -> None:
    keep = {"finalizers": [_KEEP]}
    pods.create("clean", *_EXITS_0_ON_TERM, metadata=keep, terminationGracePeriodSeconds=100)
    pods.create("deaf", *_NO_HANDLER, metadata=keep, terminationGracePeriodSeconds=6)
    with _kept(pods, "clean") as clean_over, _kept(pods, "deaf") as deaf_over:
        for name in ("clean", "deaf"):
            pods.wait_for_line(name, "up")
        began = time.monotonic()
        pods.delete("deaf")
        pods.wait_until("deaf", lambda pod: "deletionTimestamp" in pod["metadata"], "it is being deleted")
        time.sleep(1)
        pods.delete("deaf", grace=1)
        pods.delete("clean")
        assert clean_over()["status"]["phase"] == "Succeeded"
        assert state_of(deaf_over())["exitCode"] == 137
        assert time.monotonic() - began > 5.9


def test_the_end_of_the_main_process_ends_its_descendants(pods: Pods) -> None:
    # The background process would hold the log open and go on counting.
    script = "(while true; do echo still >> /shared/beat; sleep 0.05; done) & sleep 0.3; exit 0"
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    watch = "import os, time; a = os.path.getsize('/shared/beat'); time.sleep(0.5)\n"
    watch += "print('quiet' if os.path.getsize('/shared/beat') == a else 'alive')"
    pods.create(
        "family",
        initContainers=[{"name": "parent", "command": ["sh", "-c", script], **mount}],
        container={"command": _python(watch), **mount},
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    pods.finished("family")
    assert pods.log("family") == "quiet\n"


def test_a_pod_that_is_deleted_before_it_could_start_fails_and_goes(pods: Pods) -> None:
    volumes = [{"name": "never", "configMap": {"name": "never"}}]
    pods.create("unborn", "true", volumes=volumes, metadata={"finalizers": [_KEEP]})
    with _kept(pods, "unborn") as over:
        pods.wait_until("unborn", lambda pod: bool(pod["status"].get("containerStatuses")), "the node has seen it")
        pods.delete("unborn")
        pod = over()
    assert pod["status"]["phase"] == "Failed"
    state = state_of(pod)
    assert (state["exitCode"], state["reason"]) == (137, "ContainerStatusUnknown")


def test_forced_deletion_frees_the_name_at_once(pods: Pods) -> None:
    first = pods.create("again", *_EXITS_143_ON_TERM)
    pods.wait_for_line("again", "up")
    pods.delete("again", grace=0)
    pods.wait_gone("again")
    second = pods.create("again", "sh", "-c", "echo second")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert pods.finished("again")["status"]["phase"] == "Succeeded"
    assert pods.log("again") == "second\n"


def test_an_active_deadline_ends_the_pod(pods: Pods) -> None:
    pods.create("late", *_EXITS_143_ON_TERM, activeDeadlineSeconds=2)
    pod = pods.finished("late")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_node_without_room_refuses_pods_that_were_bound_to_it(pods: Pods, kubelet: Any) -> None:
    name = kubelet.nodes[0]
    resources = {"requests": {"cpu": str(kubelet.cpus + 1)}}
    pods.create("cpus", "true", nodeName=name, container={"resources": resources})
    pods.create("gpus", "true", nodeName=name, container={"resources": {"limits": {"nvidia.com/gpu": "5"}}})
    cpus, gpus = pods.finished("cpus")["status"], pods.finished("gpus")["status"]
    assert (cpus["phase"], cpus["reason"]) == ("Failed", "OutOfcpu")
    wanted = f"cpu, requested: {kubelet.cpus + 1}000, used: 0, capacity: {kubelet.cpus}000"
    assert cpus["message"] == f"Pod was rejected: Node didn't have enough resource: {wanted}"
    assert gpus["phase"] == "Failed"
    if kubelet.device_plugin:
        assert gpus["reason"] == "UnexpectedAdmissionError"
        assert "Requested: 5, Available: 4" in json.dumps(gpus)
    else:
        assert gpus["reason"] == "OutOfnvidia.com/gpu"


def test_working_dir_and_hostname(pods: Pods) -> None:
    pods.create(
        "placed",
        "sh",
        "-c",
        "pwd; hostname; cat /etc/hostname; echo $HOSTNAME",
        hostname="worker-3",
        container={"workingDir": "/made/for/this"},
    )
    pods.finished("placed")
    assert pods.log("placed").splitlines() == ["/made/for/this", "worker-3", "worker-3", "worker-3"]
