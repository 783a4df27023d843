"""Where the commands read from: a cluster, or files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import yaml

from meshwright.cli.fabrics import KnownProfiles
from meshwright.cli.levels import Chosen
from meshwright.cli.seen import Access, CannotRead, Seen
from meshwright.picture.inventory import InvalidObject, Inventory


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
