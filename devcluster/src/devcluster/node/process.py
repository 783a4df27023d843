"""Pods as processes of this machine."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from devcluster.node import projection, volumes
from devcluster.node.addresses import Block
from devcluster.node.api import Api, until_answered
from devcluster.node.environment import Configs, Execution, configs_of, entries, execution
from devcluster.node.errors import ApiError, NotYet
from devcluster.node.expansion import expand
from devcluster.node.fields import Site
from devcluster.node.keeper import ProcessContainer, launch
from devcluster.node.model import Container, Pod, VolumeMount
from devcluster.node.names import Record, hosts_file, with_addresses
from devcluster.node.nodes import NodeIdentity
from devcluster.node.runtime import Adopted, RunningContainer
from devcluster.node.sandbox.launch import NONE
from devcluster.node.status import Verdict
from devcluster.node.support import unsupported
from devcluster.node.volume_model import (
    ClaimVolume,
    EmptyDirVolume,
    HostPathVolume,
    ProjectedVolume,
    TokenSource,
    UnsupportedVolume,
    Volume,
)

NETWORK: Final = 127
_TOKEN_LIFE_USED: Final = 0.8  # a token is replaced after this part of its life, as by a kubelet


@dataclass
class Machine:
    """What all process pods of this program share.

    Attributes:
        base_env: What an image and its runtime would set.
        records: The names that can be resolved now.
    """

    api: Api
    state_dir: Path
    isolation: str
    block: Block
    base_env: Mapping[str, str]
    records: Callable[[], Iterable[Record]]
    service_env: Mapping[str, str] = field(default_factory=dict)


class ProcessPod:
    """The runtime of one process pod."""

    def __init__(self, pod: Pod, node: NodeIdentity, machine: Machine) -> None:
        self._pod, self._node, self._machine = pod, node, machine
        self._folder = machine.state_dir / "pods" / pod.uid
        self._site: Site | None = None
        self._sources: dict[str, Path] = {}
        self._tokens: dict[TokenSource, tuple[str, float]] = {}
        self._containers: dict[str, ProcessContainer] = {}

    def refusal(self) -> Verdict | None:
        """What these nodes cannot do for the pod."""
        return unsupported(self._pod)

    async def prepare(self) -> Site:
        """Writes the volumes, takes an address, writes /etc/hosts."""
        await self.refresh()
        if self._site is None:
            address = self._node.address if self._pod.host_network else self._machine.block.take(NETWORK)
            self._site = self._site_at(address)
        self.write_hosts()
        return self._site

    async def refresh(self) -> None:
        """Brings the volumes' content up to date."""
        for name, volume in self._pod.volumes.items():
            self._sources[name] = await self._source(name, volume)

    async def start(self, container: Container) -> RunningContainer:
        """Resolves the environment and starts the process."""
        assert self._site is not None, "prepare comes before start"
        configs = await self._configs(configs_of(container))
        folder = self._folder / "containers" / container.name
        (folder / "root").mkdir(parents=True, exist_ok=True)
        base = {**self._machine.base_env, "HOSTNAME": self._pod.hostname}
        run = execution(self._pod, container, self._site, configs, base, self._machine.service_env)
        if self._machine.isolation == NONE:
            run = self._with_addresses(run)
        mounts = [self._mount(one, run.env) for one in container.mounts]
        taken = {one["target"] for one in mounts}
        mounts += [one for one in self._own_mounts(container, folder) if one["target"] not in taken]
        started = await launch(self._machine.isolation, container, run, mounts, folder, self._pod.hostname)
        self._containers[container.name] = started
        return started

    def log_of(self, container: str) -> tuple[Path, Callable[[], bool]] | None:
        """A container's log file, and whether it has ended."""
        path = self._folder / "containers" / container / "log"
        if not path.exists():
            return None
        return path, lambda: container not in self._containers or self._containers[container].ended.done()

    def adopt(self) -> Adopted | None:
        """No process outlives the program that started it."""
        return None

    def changed(self, pod: Pod) -> None:
        """Keeps the newest version, for what is resolved later."""
        self._pod = pod

    def write_hosts(self) -> None:
        """Brings /etc/hosts up to date."""
        if self._site:
            api_host = self._machine.api.access.host
            text = hosts_file(self._pod, self._site.pod_ip, self._machine.records(), api_host)
            self._folder.mkdir(parents=True, exist_ok=True)
            volumes.overwrite(self._folder / "hosts", text)

    async def remove(self) -> None:
        """Frees the address and the folder."""
        if self._site and not self._pod.host_network:
            self._machine.block.give_back(self._site.pod_ip)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _with_addresses(self, run: Execution) -> Execution:
        peers = tuple(self._machine.records())
        argv = [with_addresses(one, self._pod, peers) for one in run.argv]
        env = {name: with_addresses(value, self._pod, peers) for name, value in run.env.items()}
        # Only variables are waited for: in a command something that looks like a peer's name may be anything.
        missing = {name for _, names in env.values() for name in names}
        if missing:
            raise NotYet(f"no address yet: {', '.join(sorted(missing))}", waiting="CreateContainerConfigError")
        return Execution(tuple(text for text, _ in argv), {name: text for name, (text, _) in env.items()})

    def _site_at(self, address: str) -> Site:
        return Site(address, self._node.address, self._node.capacity)

    async def _source(self, name: str, volume: Volume) -> Path:
        folder = self._folder / "volumes" / name
        match volume:
            case ProjectedVolume():
                configs = await self._configs(projection.configs_of(volume))
                tokens = {one: await self._token(one) for one in projection.tokens_of(volume)}
                site = self._site or self._site_at("")
                volumes.publish(folder, projection.files(self._pod, site, volume, configs, tokens))
                return folder
            case EmptyDirVolume():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o777)
                return folder
            case HostPathVolume():
                return volumes.host_path(volume)
            case ClaimVolume(claim):
                return await self._claimed(claim)
            case UnsupportedVolume(kind):
                raise NotYet(f"volumes of kind {kind} are not supported")

    async def _claimed(self, claim: str) -> Path:
        path = f"/api/v1/namespaces/{self._pod.namespace}/persistentvolumeclaims/{claim}"
        bound = await self._get(path, f'persistentvolumeclaim "{claim}" not found')
        name = bound["spec"].get("volumeName")
        if not name or bound["status"].get("phase") != "Bound":
            raise NotYet(f'persistentvolumeclaim "{claim}" is not bound')
        spec = (await self._get(f"/api/v1/persistentvolumes/{name}", f'persistentvolume "{name}" not found'))["spec"]
        if "hostPath" in spec:
            return volumes.host_path(HostPathVolume(spec["hostPath"]["path"], spec["hostPath"].get("type") or ""))
        if "local" in spec:
            return volumes.host_path(HostPathVolume(spec["local"]["path"], "Directory"))
        raise NotYet(f'persistentvolume "{name}" is neither hostPath nor local')

    async def _get(self, path: str, missing: str) -> dict[str, Any]:
        try:
            return await until_answered(lambda: self._machine.api.request("GET", path))
        except ApiError as error:
            raise NotYet(missing if error.status == 404 else str(error)) from None

    async def _configs(self, wanted: Iterable[tuple[str, str]]) -> Configs:
        return {(kind, name): await self._config(kind, name) for kind, name in wanted}

    async def _config(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        path = f"/api/v1/namespaces/{self._pod.namespace}/{kind}s/{name}"
        try:
            return entries(kind, await until_answered(lambda: self._machine.api.request("GET", path)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise NotYet(str(error)) from None

    async def _token(self, source: TokenSource) -> str:
        token, good_until = self._tokens.get(source, ("", 0.0))
        if time.time() < good_until:
            return token
        account = f"/api/v1/namespaces/{self._pod.namespace}/serviceaccounts/{self._pod.service_account}/token"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self._pod.name, "uid": self._pod.uid}
        spec: dict[str, Any] = {"expirationSeconds": source.expiration_seconds, "boundObjectRef": bound}
        if source.audience:
            spec["audiences"] = [source.audience]
        try:
            answer = await until_answered(lambda: self._machine.api.request("POST", account, {"spec": spec}))
        except ApiError as error:
            raise NotYet(f"failed to fetch token: {error.message}") from None
        token = str(answer["status"]["token"])
        self._tokens[source] = token, time.time() + _TOKEN_LIFE_USED * source.expiration_seconds
        return token

    def _mount(self, mount: VolumeMount, env: Mapping[str, str]) -> dict[str, Any]:
        volume, source = self._pod.volumes[mount.volume], self._sources[mount.volume]
        inner = expand(mount.sub_path_expr, env) if mount.sub_path_expr else mount.sub_path
        read_only = mount.read_only or isinstance(volume, ProjectedVolume)
        read_only = read_only or (isinstance(volume, ClaimVolume) and volume.read_only)
        return {
            "source": str(volumes.sub_path(source, inner) if inner else source),
            "target": "/" + mount.path.strip("/"),
            "read_only": read_only,
        }

    def _own_mounts(self, container: Container, folder: Path) -> list[dict[str, Any]]:
        """The small files that a kubelet and a container runtime put into a container."""
        files = {"/etc/hosts": self._folder / "hosts"}
        if Path("/etc/hostname").exists():
            files["/etc/hostname"] = self._folder / "hostname"
            files["/etc/hostname"].write_text(self._pod.hostname + "\n")
        if self._machine.isolation != NONE and Path("/etc/nsswitch.conf").exists():
            files["/etc/nsswitch.conf"] = self._folder / "nsswitch.conf"
            files["/etc/nsswitch.conf"].write_text(_names_from_files(Path("/etc/nsswitch.conf").read_text()))
        if container.message_path:
            files[container.message_path] = folder / "termination-log"
            files[container.message_path].touch(0o666)
        return [{"source": str(path), "target": target, "read_only": False} for target, path in files.items()]


def _names_from_files(nsswitch: str) -> str:
    """Lets names be looked up in /etc/hosts first: a resolver service would read the machine's instead of the pod's."""
    lines = [line for line in nsswitch.splitlines() if not line.lstrip().startswith("hosts:")]
    return "\n".join([*lines, "hosts: files dns", ""])
