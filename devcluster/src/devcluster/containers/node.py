"""`ContainerNode`: one real node, a kubelet with containerd and kube-proxy, in namespaces of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster import supervisor
from devcluster.containers import cgroups, configuration, network
from devcluster.containers.commands import PATH, python_environment, run
from devcluster.containers.requirements import NEW_NAMESPACES, NodePrograms
from devcluster.containers.users import PROXY_USER, user_of
from devcluster.controlplane import tail, wait
from devcluster.errors import StartError
from devcluster.images.preload import provide
from devcluster.settings import Layout

CONTAINERD, KUBELET, KUBE_PROXY = "containerd", "kubelet", "kube-proxy"
INSIDE = Path("/run/node")
"""The node's folder, as the node's programs see it."""
_INIT = Path(__file__).with_name("init.sh")
_ENVIRONMENT = {"PATH": PATH}


@dataclass(frozen=True)
class ContainerNodeSettings:
    """What a container node is told.

    Attributes:
        images: What the node has, as `images.node_images` makes it.
        labels: Labels of the node.
        gpus: `nvidia.com/gpu` that it offers, though no device is there.
        ready_seconds: How long to wait for it.
    """

    images: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    ready_seconds: float = 90.0


class ContainerNode:
    """One running node. Its processes are in a process namespace whose end is their end."""

    def __init__(self, layout: Layout, keeper: supervisor.Client, programs: NodePrograms, index: int) -> None:
        self.name, self.index = f"container-{index}", index
        self.folder = layout.directory / self.name
        self._layout, self._keeper, self._programs = layout, keeper, programs
        self._inner = supervisor.Client(self.folder)
        self._keeper_pid: int = keeper.call("status")["pid"]
        self._kubelet: list[str] = []

    @property
    def cgroup(self) -> str:
        """The control group of its pods."""
        return cgroups.name(self._keeper_pid, self.name)

    def start(self, settings: ContainerNodeSettings, is_ready: Callable[[], bool]) -> None:
        """Starts it and waits until the API server calls it Ready.

        Raises:
            StartError: A program of it ended or it was not ready in time; the message has the end of a log.
            CommandError: A command of its network failed.
            ImageError: Its folder is not on the file system of the images.
        """
        self.folder.mkdir(mode=0o755)
        provide(settings.images, self.folder / "containerd")
        self._write_files()
        cgroups.create(self.cgroup)
        self._boot()
        self._run_in_cluster(network.uplink_commands(self.index, self._init_pid()))
        for command in network.node_commands(self.index):
            self.run(*command)
        self._spawn(CONTAINERD, "/usr/bin/containerd", f"--config={INSIDE}/containerd.toml")
        self._wait("containerd listens", (self.folder / "containerd.sock").exists, settings.ready_seconds)
        kubeconfig = self._layout.kubeconfig(user_of(self.name))
        self._kubelet = configuration.kubelet_arguments(self.name, self.index, INSIDE, kubeconfig, settings.labels)
        self.start_kubelet()
        self._spawn(KUBE_PROXY, str(self._programs.kube_proxy), f"--config={INSIDE}/kube-proxy.json")
        self._wait(f"{self.name} is Ready", is_ready, settings.ready_seconds)

    def start_kubelet(self) -> None:
        """Starts its kubelet, after `kill_kubelet` too."""
        self._spawn(KUBELET, str(self._programs.kubelet), *self._kubelet)

    def kill_kubelet(self) -> None:
        """Ends its kubelet at once; pods go on."""
        self._inner.call("signal", name=KUBELET, number=signal.SIGKILL)
        wait("the kubelet is gone", lambda: self._inner.returncode(KUBELET) is not None, 20)

    def power_off(self) -> None:
        """Ends everything on it at once, pods included, as when a machine loses power."""
        self._keeper.call("signal", name=self.name, number=signal.SIGKILL)
        wait(f"{self.name} is gone", lambda: self._keeper.returncode(self.name) is not None, 20)

    def cut_off(self) -> None:
        """Takes its cable out: pods go on, and nobody hears of it."""
        self._run_in_cluster([network.link_command(self.index, "down")])

    def connect(self) -> None:
        """Puts the cable back."""
        self._run_in_cluster([network.link_command(self.index, "up")])

    def run(self, *command: str) -> str:
        """Runs a command in the node's namespaces; returns its output.

        Raises:
            CommandError: It failed.
        """
        return run([*network.in_namespaces_of(self._init_pid(), "net", "mount", "pid"), *command])

    def ctr(self, *command: str) -> str:
        """containerd's own client, among the images and containers of pods."""
        return self.run("ctr", f"--address={INSIDE}/containerd.sock", "--namespace=k8s.io", *command)

    def path(self, inside: Path) -> Path:
        """Where this machine finds a file that is mounted on the node alone."""
        return Path(f"/proc/{self._init_pid()}/root{inside}")

    def pod_log(self, pod: Mapping[str, Any], container: str = "trainer") -> str:
        """What a container wrote, as it lies on the node, whether or not the API server reaches it."""
        meta = pod["metadata"]
        folder = self.folder / "pod-logs" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / container
        return "".join(file.read_text(errors="replace") for file in sorted(folder.glob("*.log")))

    def log(self, program: str) -> Path:
        """The log of one of its programs."""
        return self.folder / f"{program}.log"

    def _write_files(self) -> None:
        folder = self.folder
        for name in ("cni", "addresses", "certificates", "plugins", "pod-logs", "kubelet"):
            (folder / name).mkdir(exist_ok=True)
        proxy = self._layout.kubeconfig(PROXY_USER)
        (folder / "containerd.toml").write_text(configuration.containerd(INSIDE))
        (folder / "cni" / "10-pods.conflist").write_text(configuration.pod_network(INSIDE, self.index))
        (folder / "resolv.conf").write_text("")
        (folder / "kubelet.json").write_text(configuration.kubelet(INSIDE, self._layout.pki, f"/{self.cgroup}"))
        (folder / "kube-proxy.json").write_text(configuration.kube_proxy(self.name, proxy))

    def _boot(self) -> None:
        argv = [*NEW_NAMESPACES, "--propagation=private", "sh", str(_INIT), sys.executable, str(self.folder)]
        log = self._layout.log(self.name)
        self._keeper.call("spawn", name=self.name, argv=argv, env=python_environment(), log=str(log), grace=0.0)

        def check() -> None:
            code = self._keeper.returncode(self.name)
            if code is not None:
                raise StartError(f"{self.name} ended with {code}:\n{tail(log)}")

        wait(f"{self.name} has its namespaces", self._inner.serves, 30, check, f"Log: {log}")

    def _init_pid(self) -> int:
        outer = self._keeper.call("status")["programs"][self.name]["pid"]
        return supervisor.children_of(outer)[0]

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        argv, log = [program, *arguments], str(self.log(name))
        self._inner.call("spawn", name=name, argv=argv, env=_ENVIRONMENT, log=log, grace=0.0)

    def _wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        def check() -> None:
            for name, program in self._inner.call("status")["programs"].items():
                if program["returncode"] is not None:
                    raise StartError(
                        f"{name} of {self.name} ended with {program['returncode']}:\n{tail(self.log(name))}"
                    )

        wait(what, condition, seconds, check, f"Logs: {self.folder}/*.log")

    def _run_in_cluster(self, commands: Sequence[Sequence[str]]) -> None:
        for command in commands:
            run([*network.in_namespaces_of(self._keeper_pid, "net"), *command])
