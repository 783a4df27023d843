"""`meshwright topology`, `plan` and `explain`: where jobs are, would be, and why they wait. Nothing is written."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from meshwright import settings
from meshwright.cli import fabrics, levels
from meshwright.cli.seen import Access, CannotRead, Seen
from meshwright.cli.sources import documents, inventory_of, see
from meshwright.picture.document import document
from meshwright.picture.inventory import InvalidObject, Inventory
from meshwright.picture.job_file import NoJob, job_of
from meshwright.picture.model import Picture
from meshwright.picture.siting import Rules, Siting
from meshwright.picture.status_text import status_document, status_text
from meshwright.picture.svg import svg
from meshwright.picture.text import job_text, topology_text
from meshwright.placement.errors import PlacementError
from meshwright.rendering.errors import InvalidProfile
from meshwright_api.errors import InvalidJob
from meshwright_api.job import TrainingJob, parse_job

COMMANDS: Final = ("topology", "plan", "explain")


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the three commands to a parser."""
    topology = commands.add_parser("topology", help="show the cluster's tree with free and busy GPUs, and a job in it")
    _add_source(topology)
    job = topology.add_mutually_exclusive_group()
    job.add_argument("--job", default="", metavar="NAME", help="draw the ranks of this job")
    job.add_argument("-f", "--file", default="", help="draw where the job of this file would start now")
    topology.add_argument("-o", "--output", choices=("text", "json", "svg"), default="text")
    plan = commands.add_parser("plan", help="say where a job would start now, or why it would not")
    _add_source(plan)
    plan.add_argument("-f", "--file", required=True, help="the job's manifest; - for standard input")
    plan.add_argument("-o", "--output", choices=("text", "json", "svg"), default="text")
    explain = commands.add_parser("explain", help="say why a job sits where it does, or why it waits")
    _add_source(explain)
    explain.add_argument("job", metavar="JOB", help="name of the job")
    explain.add_argument("-o", "--output", choices=("text", "json", "svg"), default="text")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", default="", metavar="FILE", help="read nodes, pods and jobs from this file, written "
                        "by `kubectl get nodes,pods,trainingjobs -A -o json`, and not from a cluster")  # fmt: skip
    levels.add_flags(parser)
    fabrics.add_flag(parser)
    parser.add_argument("--kubeconfig", default="", help="as for kubectl")
    parser.add_argument("--context", default="", help="as for kubectl")
    parser.add_argument("-n", "--namespace", default="", help="namespace of the job")


def run(arguments: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Runs one of the commands; returns 0, or 1 with a message if something cannot be read."""
    try:
        print(_run(arguments, err), file=out)
    except (CannotRead, InvalidObject, InvalidProfile, PlacementError) as error:
        print(f"meshwright {arguments.command}: {error}", file=err)
        return 1
    except BrokenPipeError:  # Whoever read our output has seen enough.
        sys.stderr.close()
    return 0


def _run(arguments: argparse.Namespace, err: TextIO) -> str:
    named = getattr(arguments, "job", "")
    seen = _seen(arguments, named)
    job = _planned(arguments.file, seen.namespace, err) if getattr(arguments, "file", "") else None
    if seen.inventory is None:
        if seen.job is not None and arguments.command == "explain" and arguments.output != "svg":
            own_words = status_text if arguments.output == "text" else status_document
            return own_words(_runnable(seen.job), seen.lacks)
        raise CannotRead(
            f"this needs the rights to {seen.lacks}, which you do not have; ask an administrator for them, or for the "
            "output of: kubectl get nodes,pods -A -o json, and give it with --nodes FILE"
        )
    if named:
        job = _runnable(seen.job) if seen.job else _found(seen.inventory, named, seen.namespace)
    if job and (note := seen.fabrics.note(job.spec.profile or "")):
        print(f"note: {note}", file=err)
    siting = _siting(arguments, seen)
    return _written(arguments, siting.job(job) if job else siting.cluster())


def _written(arguments: argparse.Namespace, picture: Picture) -> str:
    whole = arguments.command == "topology"
    if arguments.output == "svg":
        return svg(picture).rstrip("\n")
    if arguments.output == "json":
        return document(picture, whole=whole)
    return topology_text(picture) if whole else job_text(picture)


def _seen(arguments: argparse.Namespace, job: str) -> Seen:
    wanted = levels.chosen(arguments)
    known = fabrics.from_file(arguments.profiles_file) if arguments.profiles_file else fabrics.KnownProfiles()
    if not arguments.nodes:
        kubeconfig = arguments.kubeconfig or settings.default_kubeconfig(os.environ)
        return see(Access(kubeconfig, arguments.context, arguments.namespace), job, wanted, known)
    if wanted.from_kueue:
        raise CannotRead("Kueue's levels are in the cluster, not in a file; give them with --topology-levels")
    return Seen(inventory_of(arguments.nodes), arguments.namespace or "default", fabrics=known)


def _found(inventory: Inventory, name: str, namespace: str) -> TrainingJob:
    job = inventory.find(name, namespace)
    if job is None:
        raise CannotRead(f"the file has no TrainingJob {name} in namespace {namespace} whose spec can be run")
    return job


def _runnable(raw: dict[str, Any]) -> TrainingJob:
    """The job as placement reads it.

    Raises:
        CannotRead: its spec cannot be run.
    """
    try:
        return parse_job(raw)
    except InvalidJob as error:
        raise CannotRead(f"the operator cannot run this job: {error}") from error


def _planned(file: str, namespace: str, err: TextIO) -> TrainingJob:
    try:
        job, later = job_of(documents(file), namespace)
    except NoJob as error:
        raise CannotRead(f"{file} {error}") from error
    except InvalidJob as error:
        raise CannotRead(f"{file}: the operator cannot run this job: {error}") from error
    for problem in later:
        print(f"note: the operator of this version refuses {problem}", file=err)
    return job


def _siting(arguments: argparse.Namespace, seen: Seen) -> Siting:
    assert seen.inventory is not None
    wanted = levels.chosen(arguments)
    name, topology, guessed = levels.topology_of(wanted, seen.inventory.nodes, seen.kueue)
    rules = Rules(seen.priorities, seen.fabrics.profiles, seen.namespace_labels, now=datetime.now(UTC))
    return Siting(seen.inventory, topology, name, rules, guessed=guessed)
