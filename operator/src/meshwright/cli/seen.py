"""Whom a command talks to, and what it may see there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.cli.fabrics import KnownProfiles
from meshwright.picture.inventory import Inventory
from meshwright.placement.topology.tree import Topology


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
