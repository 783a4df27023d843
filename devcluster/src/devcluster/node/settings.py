"""The command line of `python -m devcluster.node`, read once into values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from devcluster.node.quantity import parse_quantity


class Mode(StrEnum):
    """What a pod is on these nodes."""

    PROCESS = "process"
    FAKE = "fake"


class IsolationChoice(StrEnum):
    """How much of a container a process node is asked to give."""

    AUTO = "auto"
    NAMESPACES = "namespaces"
    USER_NAMESPACES = "user-namespaces"
    NONE = "none"


@dataclass(frozen=True)
class Settings:
    """Everything that can be chosen.

    Attributes:
        kubeconfig: Whose rights the program has; it needs those of a kubelet, or an administrator's.
        count: How many Nodes, named `<name_prefix>-0` and so on.
        cpus: Capacity of each Node (a quantity); also memory, pods, gpus (`nvidia.com/gpu`).
        state_dir: For pod folders and logs; this program's alone.
        heartbeat_seconds: Between two renewals of a Node's Lease; longer for very many nodes.
        tls_cert: Certificate and key of the log server; without them `kubectl logs` does not work.
        client_ca: Only clients with a certificate signed by this one may read logs.
        isolation: AUTO takes the best that the machine allows.
    """

    kubeconfig: Path
    mode: Mode
    state_dir: Path
    count: int = 1
    name_prefix: str = "node"
    cpus: str = "2"
    memory: str = "4Gi"
    pods: int = 110
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    heartbeat_seconds: float = 2.0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    isolation: IsolationChoice = IsolationChoice.AUTO


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _quantity(text: str) -> str:
    try:
        parse_quantity(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parse_arguments(argv: Sequence[str] | None = None) -> Settings:
    """Reads the command line; exits with a message when it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.node", description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--name-prefix", default="node")
    parser.add_argument("--cpus", type=_quantity, default="2")
    parser.add_argument("--memory", type=_quantity, default="4Gi")
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--label", type=_label, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--heartbeat-seconds", type=float, default=2.0)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--client-ca", type=Path)
    parser.add_argument("--isolation", type=IsolationChoice, choices=list(IsolationChoice), default="auto")
    given = vars(parser.parse_args(argv))
    if (given["tls_cert"] is None) != (given["tls_key"] is None):
        parser.error("--tls-cert and --tls-key go together")
    return Settings(labels=dict(given.pop("label")), **given)
