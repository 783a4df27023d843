"""Why a gang waits, in counts: never the name of a node, of a job or of a pod, which may be another tenant's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from meshwright.placement.model import GangRequest, Refused, RoleRequest, Snapshot
from meshwright.placement.supply.resources import GPU, NOTHING, ONE_EACH, Resources
from meshwright_api import names

_MANY = 1_000_000
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def refusal(gang: GangRequest, snapshot: Snapshot) -> Refused:
    """What is missing for the first kind of pods that does not fit, node by node, by cause."""
    free = snapshot.free_for(gang)
    sentences = []
    for role in gang.roles:
        room, census = _counted(role, snapshot, free, shared=gang.job_uid not in snapshot.own)
        if room < role.replicas:
            pods = "1 pod of role" if role.replicas == 1 else f"{role.replicas} pods of role"
            need = "needs" if role.replicas == 1 else "each need"
            sentences.append(
                f"{pods} {role.role} {need} {describe(role.resources)}; there is room for {room}: {census}"
            )
    if not sentences:
        sentences.append(f"each role alone would fit, but not all {gang.size} pods of the gang together")
    return Refused(names.REASON_WAITING_FOR_CAPACITY, "; ".join(sentences))


def turn(ahead: int) -> Refused:
    """The gang would fit, but only on nodes that are kept for gangs before it."""
    message = f"would fit now, but its nodes are kept for {_jobs(ahead)} ahead in the queue"
    return Refused(names.REASON_WAITING_FOR_TURN, message)


def ahead_of(refused: Refused, ahead: int) -> Refused:
    """The same with the place in the queue."""
    if not ahead or refused.reason == names.REASON_WAITING_FOR_TURN:
        return refused
    return replace(refused, message=f"{refused.message}; {_jobs(ahead)} ahead in the queue")


def makes_room(refused: Refused, victims: int) -> Refused:
    """The same while gangs of lower priority end for it."""
    return replace(refused, message=f"{refused.message}; {_jobs(victims)} of lower priority will make room")


def yielded() -> Refused:
    """The gang must give its places back."""
    return Refused(names.REASON_WAITING_FOR_TURN, "gives its places to a job of higher priority")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def describe(resources: Resources) -> str:
    """An amount for people: `8 nvidia.com/gpu, 96 cpu, 1Ti memory`."""
    amounts = {name: value for name, value in resources.items() if value > 0 and name != "pods"}
    ordered = [GPU, *(name for name in amounts if name != GPU)]
    return ", ".join(_amount_of(name, amounts[name]) for name in ordered if name in amounts) or "no resources"


def _amount_of(name: str, value: int) -> str:
    return name if name.startswith(ONE_EACH) else f"{amount(name, value)} {name}"


def _counted(role: RoleRequest, snapshot: Snapshot, free: Mapping[str, Resources], *, shared: bool) -> tuple[int, str]:
    """The room for pods of a role, and the census; counted once for all gangs that see the same nodes free."""
    key = role.resources, role.rules
    if shared and key in snapshot.counts:
        return snapshot.counts[key]
    open_to_it = (node for node in snapshot.takers(role.rules) if node.name not in snapshot.held)
    room = sum(role.resources.times_in(free[node.name], _MANY) for node in open_to_it)
    counted = room, _census(role, snapshot, free)
    if shared:
        snapshot.counts[key] = counted
    return counted


def _census(role: RoleRequest, snapshot: Snapshot, free: Mapping[str, Resources]) -> str:
    """Counts every node under one cause."""
    if not snapshot.nodes:
        return "the cluster has no nodes"
    states = Counter(
        (node.allocatable, NOTHING if node.name in snapshot.held else free[node.name], node.name in snapshot.held)
        for node in snapshot.takers(role.rules)
    )
    causes: Counter[str] = Counter()
    # Most nodes of a cluster are in one of a few states; each is judged once.
    for state, count in states.items():
        causes[_cause(role.resources, *state)] += count
    causes.update({str(obstacle): count for obstacle, count in snapshot.obstacles(role.rules).items()})
    total = "1 node" if len(snapshot.nodes) == 1 else f"{len(snapshot.nodes)} nodes"
    return f"of {total} " + ", ".join(f"{count} {cause}" for cause, count in causes.most_common())


def _cause(wanted: Resources, allocatable: Resources, free: Resources, held: bool) -> str:
    if held:
        return "kept for jobs ahead"
    if short := wanted.short_of(allocatable):
        return f"too small ({', '.join(short)})"
    if short := wanted.short_of(free):
        return f"busy ({', '.join(short)})"
    return "with room"


def amount(name: str, value: int) -> str:
    """An amount of one resource for people: `96`, `500m`, `1Ti`."""
    if name == "cpu":
        return f"{value / 1000:g}" if value % 1000 == 0 or value > 1000 else f"{value}m"
    if name != "memory" and "storage" not in name and not name.startswith("hugepages-"):
        return str(value)
    power = 0
    while value % 1024 == 0 and value and power < len(_BINARY) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power]}"
