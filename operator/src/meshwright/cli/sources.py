"""Where the commands read from: a cluster, or files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from meshwright.cli.fabrics import KnownProfiles
from meshwright.cli.levels import Chosen
from meshwright.picture.inventory import InvalidObject, Inventory
from meshwright.placement.topology import Topology


class CannotRead(Exception):
    """Something that a command needs cannot be read; the message says what and what to do."""


@dataclass(frozen=True)
class Access:
    """The cluster that a person talks to, as kubectl would find it."""

    kubeconfig: str
    context: str
    namespace: str
    """Empty: the context's own."""


@dataclass(frozen=True)
class Seen:
    """What a person may see of a cluster."""

    inventory: Inventory | None
    """None if nodes or the pods of all namespaces may not be listed."""
    namespace: str
    """Of the job."""
    job: dict[str, Any] | None = None
    """The job that was asked for, as the API server has it."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of PriorityClasses, as far as they may be read; of the default class under the empty name."""
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By namespace, as far as they may be read."""
    fabrics: KnownProfiles = field(default_factory=KnownProfiles)
    """The fabric profiles."""
    kueue: Topology | None = None
    """Kueue's levels, if they were to be read."""
    lacks: str = ""
    """The rights that are missing for an inventory."""


def documents(file: str) -> list[object]:
    """The documents of a JSON or YAML file; `-` is standard input.

    Raises:
        CannotRead: there is no such file, or it is neither JSON nor YAML.
    """
    try:
        text = Path("/dev/stdin" if file == "-" else file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRead(f"cannot read {file}: {error}") from error
    try:
        # Large lists are JSON as a rule, which is read a hundred times faster as what it is.
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise CannotRead(f"{file} is neither JSON nor YAML: {error}") from error


def inventory_of(file: str) -> Inventory:
    """The nodes, pods and jobs of a file, as `kubectl get nodes,pods -A -o json` writes them.

    Raises:
        CannotRead: the file cannot be read, or has no nodes, or something in it is not as the API server has it.
    """
    objects = [document for document in documents(file) if isinstance(document, dict)]
    try:
        found = Inventory.of_objects(objects)
    except InvalidObject as error:
        raise CannotRead(f"{file}: {error}") from error
    if not found.nodes:
        raise CannotRead(f"{file} has no nodes; write it with: kubectl get nodes,pods -A -o json > {file}")
    return found


def see(access: Access, job: str, wanted: Chosen, fabrics: KnownProfiles) -> Seen:
    """What the cluster shows to this person: everything that placement looks at, and perhaps one job.

    Raises:
        CannotRead: the cluster cannot be reached, or there is no such job.
        InvalidProfile: a profile in it cannot be used.
    """
    # The client takes a second to import, and files need none.
    from meshwright.cli.looking import look
    from meshwright.cluster.errors import ClusterError

    try:
        return asyncio.run(look(access, job, wanted, fabrics))
    except ClusterError as error:
        raise CannotRead(f"cannot read from the cluster: {error}") from error
