"""Everything an administrator can set, once: a field is a flag (`--lease-name`) and a variable (`MESHWRIGHT_...`)."""

from __future__ import annotations

import argparse
import json
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_args

import yaml

from meshwright.logs import LogFormat
from meshwright.metrics import operator_version
from meshwright.placement.errors import InvalidTopology
from meshwright.placement.topology.levels import own_levels, with_bandwidth
from meshwright.placement.topology.presets import PRESETS
from meshwright.placement.topology.tree import Topology
from meshwright.rendering.errors import InvalidProfile
from meshwright.rendering.fabric.reading import Profiles, profiles_of
from meshwright.rendering.settings import RenderSettings

ENV_PREFIX: Final = "MESHWRIGHT_"
_SERVICE_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


_PEER: Final = frozenset({"namespaceSelector", "podSelector", "ipBlock"})
_A_PEER: Final = '[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]'
KUEUE: Final = "kueue"
"""The topology that is read from a Kueue `Topology` object."""

_POSITIVE: Final = (
    "api_concurrency",
    "api_timeout_seconds",
    "heartbeat_interval_seconds",
    "resync_seconds",
    "watch_silence_seconds",
    "workers",
)


class InvalidSettings(ValueError):
    """A setting has a value that cannot be used; the message names it and a value that can."""


def _setting(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this process runs."""

    kubeconfig: str = _setting("", "kubeconfig to use; without one, the pod's service account")
    context: str = _setting("", "context in the kubeconfig; by default its current one")
    namespaces: tuple[str, ...] = _setting((), "namespaces to serve, separated by commas; all when empty")
    capacity_reader: bool = _setting(
        True, "whether nodes and foreign pods may be read cluster-wide; without that, gangs cannot be placed"
    )

    lease_namespace: str = _setting("", "namespace of the leader's Lease; by default the pod's own")
    lease_name: str = _setting("meshwright-operator", "name of the leader's Lease")
    identity: str = _setting("", "name of this process in the Lease; by default the host's name and a random part")
    lease_duration_seconds: float = _setting(15.0, "how long a Lease lasts without renewal")
    lease_renew_deadline_seconds: float = _setting(10.0, "after how long without renewal the leader stops")
    lease_retry_seconds: float = _setting(2.0, "how often the Lease is renewed or tried for")

    bind_address: str = _setting("0.0.0.0", "address of the metrics and liveness servers")
    metrics_port: int = _setting(8080, "port of /metrics; 0 turns it off")
    liveness_port: int = _setting(8081, "port of /healthz; 0 turns it off")
    heartbeat_port: int = _setting(8082, "port that agents report to; 0 turns it off, and agents report to nobody")
    heartbeat_url: str = _setting(
        "",
        "where agents reach that port; by default the chart's Service, http://LEASE_NAME-heartbeat.NAMESPACE.svc:PORT",
    )
    heartbeat_host: str = _setting(
        "", "name or address at which agents reach this very process; by default POD_IP, else the host's name"
    )
    heartbeat_interval_seconds: float = _setting(10.0, "how often agents report")
    log_format: str = _setting("json", "how the log is written", choices=get_args(LogFormat))
    log_level: str = _setting("INFO", "least level that is logged")
    decision_log_dir: str = _setting("", "folder for observations, to be decided again by `meshwright replay`")

    api_concurrency: int = _setting(64, "requests to the API server in flight at once")
    api_timeout_seconds: float = _setting(30.0, "after how long a request counts as lost")
    workers: int = _setting(16, "jobs worked on at once")
    resync_seconds: float = _setting(60.0, "how often all jobs are listed and looked at again")
    progress_seconds: float = _setting(30.0, "least time between two status writes that only refresh counts")
    passing_seconds: float = _setting(
        3600.0, "for how long after its job was made a waiting gang may be passed by gangs behind it in the queue"
    )
    node_lost_seconds: float = _setting(10.0, "for how long a node must be not ready to be called lost")

    topology: str = _setting(
        "",
        "labels that say where nodes stand, so that gangs are placed by topology; without it they go by first fit",
        choices=("", *PRESETS, KUEUE),
    )
    topology_levels: tuple[str, ...] = _setting(
        (), "labels of levels of your own in place of a topology's name, farthest first, as NAME=LABEL,NAME=LABEL,..."
    )
    topology_bandwidth: tuple[str, ...] = _setting(
        (), "what a node has for traffic that leaves its domain of a level, as LEVEL=GB/s,..."
    )
    kueue_topology: str = _setting("", "name of the Kueue Topology to read with --topology=kueue, if there are several")
    jobs_pod_security: str = _setting(
        "baseline", "Pod Security level that pods of user templates are made for", choices=("baseline", "restricted")
    )
    isolate_jobs: bool = _setting(
        True, "whether a NetworkPolicy for each job keeps all but its own pods from opening connections to its pods"
    )
    metrics_scrapers: str = _setting(
        "", "who else may read the metrics of jobs' pods: NetworkPolicyPeers, as a JSON list"
    )
    profiles_file: str = _setting("", "YAML file of fabric profiles, as the chart writes it; read once, at the start")
    trainer_image: str = _setting(f"meshwright/trainer:{operator_version()}", "image of the built-in trainer")
    agent_image: str = _setting(f"meshwright/operator:{operator_version()}", "image that the agent is copied from")

    watch_silence_seconds: float = _setting(75.0, "after how long without a word a watch is opened anew")
    retry_first_seconds: float = _setting(0.1, "first delay after a failure")
    retry_cap_seconds: float = _setting(30.0, "longest delay after failures")

    def __post_init__(self) -> None:
        if not 0 < self.lease_retry_seconds < self.lease_renew_deadline_seconds < self.lease_duration_seconds:
            raise InvalidSettings(
                "lease times must grow: lease_retry_seconds < lease_renew_deadline_seconds < lease_duration_seconds, "
                f"not {self.lease_retry_seconds} < {self.lease_renew_deadline_seconds} < {self.lease_duration_seconds}"
            )
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise InvalidSettings(f"{name} must be positive, as {_default(name)} is, not {getattr(self, name)}")
        self.scrapers, self.levels  # noqa: B018  # Read now, so that a fault in them is found at the start.

    def rendering_for(self, namespace_labels: Mapping[str, str]) -> RenderSettings:
        """The administrator's part of every pod in a namespace with these labels."""
        return replace(
            RenderSettings.for_namespace(namespace_labels, self.jobs_pod_security),
            trainer_image=self.trainer_image,
            agent_image=self.agent_image,
            heartbeat_url=self.heartbeat_endpoint,
            heartbeat_interval_seconds=self.heartbeat_interval_seconds,
            isolate=self.isolate_jobs,
            scrapers=self.scrapers,
        )

    @cached_property
    def levels(self) -> Topology | None:
        """The topology's levels, none if gangs go by first fit; None if they are to be read from Kueue.

        Raises:
            InvalidSettings: they cannot be used.
        """
        if self.topology and self.topology_levels:
            raise InvalidSettings("topology and topology_levels cannot both be given; leave one out")
        if self.topology == KUEUE:
            return None
        try:
            known = PRESETS[self.topology] if self.topology else Topology()
            return with_bandwidth(
                own_levels(self.topology_levels) if self.topology_levels else known, self.topology_bandwidth
            )
        except InvalidTopology as error:
            raise InvalidSettings(f"topology {error}") from error

    @cached_property
    def scrapers(self) -> tuple[Mapping[str, Any], ...]:
        """The peers of `metrics_scrapers`."""
        try:
            peers = json.loads(self.metrics_scrapers or "[]")
        except ValueError as error:
            raise InvalidSettings(f"metrics_scrapers is no JSON: {error}; use for example {_A_PEER}") from error
        good = isinstance(peers, list) and all(
            isinstance(peer, dict) and peer and peer.keys() <= _PEER for peer in peers
        )
        if not good:
            known = ", ".join(sorted(_PEER))
            raise InvalidSettings(f"metrics_scrapers must be a list of peers with {known}; use for example {_A_PEER}")
        return tuple(peers)

    @cached_property
    def profiles(self) -> Profiles:
        """The profiles of `profiles_file`, read once.

        Raises:
            InvalidSettings: the file cannot be read, or one of its profiles cannot be used.
        """
        if not self.profiles_file:
            return Profiles()
        try:
            return profiles_of(yaml.safe_load(Path(self.profiles_file).read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, InvalidProfile) as error:
            raise InvalidSettings(f"profiles_file {self.profiles_file}: {error}") from error

    @property
    def heartbeat_endpoint(self) -> str:
        """The URL that launch plans give to agents; empty where nobody listens."""
        if not self.heartbeat_port:
            return self.heartbeat_url
        service = f"http://{self.lease_name}-heartbeat.{self.lease_namespace}.svc:{self.heartbeat_port}"
        return self.heartbeat_url or service

    @property
    def own_heartbeat_address(self) -> str:
        """The URL at which agents reach this very process; empty where it does not listen."""
        if not self.heartbeat_port:
            return ""
        host = f"[{self.heartbeat_host}]" if ":" in self.heartbeat_host else self.heartbeat_host
        return f"http://{host}:{self.heartbeat_port}"

    @property
    def watched(self) -> tuple[str | None, ...]:
        """The namespaces to watch; None stands for all."""
        return self.namespaces or (None,)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for every setting."""
    for spec in fields(Settings):
        flag, text = "--" + spec.name.replace("_", "-"), f"{spec.metadata['help']} (default: {_shown(spec)})"
        if spec.type == "bool":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            choices = spec.metadata["choices"] or None
            parser.add_argument(flag, default=None, help=text, choices=choices, metavar=None if choices else "VALUE")


def from_flags(arguments: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from parsed flags, then from the environment, then the defaults.

    Raises:
        InvalidSettings: A value cannot be used.
    """
    env = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for spec in fields(Settings):
        raw = getattr(arguments, spec.name, None)
        raw = env.get(ENV_PREFIX + spec.name.upper()) if raw is None else raw
        if raw is not None:
            values[spec.name] = _parse(spec, raw)
    values["kubeconfig"] = values.get("kubeconfig") or default_kubeconfig(env)
    values["identity"] = (
        values.get("identity") or f"{env.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    )
    values["heartbeat_host"] = values.get("heartbeat_host") or env.get("POD_IP") or socket.gethostname()
    values["lease_namespace"] = values.get("lease_namespace") or env.get("POD_NAMESPACE") or _own_namespace()
    return Settings(**values)


def parse(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from a command line alone."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return from_flags(parser.parse_args(argv), environment)


def _parse(spec: Field[Any], raw: Any) -> Any:
    kind = str(spec.type)
    if not isinstance(raw, str):
        return raw
    try:
        if kind == "bool":
            return {"true": True, "1": True, "false": False, "0": False}[raw.lower()]
        if kind == "tuple[str, ...]":
            return tuple(part.strip() for part in raw.split(",") if part.strip())
        if spec.metadata["choices"] and raw not in spec.metadata["choices"]:
            raise ValueError(raw)
        return {"int": int, "float": float}.get(kind, str)(raw)
    except (ValueError, KeyError) as error:
        raise InvalidSettings(f"{spec.name} cannot be {raw!r}; use for example {_shown(spec)}") from error


def _default(name: str) -> Any:
    return next(spec.default for spec in fields(Settings) if spec.name == name)


def _shown(spec: Field[Any]) -> str:
    return ",".join(spec.default) if isinstance(spec.default, tuple) else str(spec.default)


def default_kubeconfig(env: Mapping[str, str]) -> str:
    """As kubectl does: in a pod its service account, elsewhere KUBECONFIG or the file at home."""
    if env.get("KUBECONFIG"):
        return env["KUBECONFIG"]
    if env.get("KUBERNETES_SERVICE_HOST"):
        return ""
    return str(Path.home() / ".kube" / "config")


def _own_namespace() -> str:
    try:
        return _SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        return "default"
