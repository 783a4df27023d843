"""Whether a node has room for a pod that was bound to it, by whatever way: a kubelet checks this too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from devcluster.node.model import Pod
from devcluster.node.quantity import parse_quantity
from devcluster.node.status import Verdict

_MILLI: Final = {"cpu": 1000}  # kubelet's messages count CPUs in thousandths


def no_room(pod: Pod, others: Iterable[Pod], capacity: Mapping[str, str]) -> Verdict | None:
    """Why the node must refuse the pod, in a kubelet's words; None if there is room.

    Args:
        others: The pods that occupy the node now.
    """
    others = list(others)
    wanted = requests(pod)
    devices = [name for name in wanted if "/" in name]
    for name in (*devices, "pods", "cpu", "memory"):
        need = Decimal(1) if name == "pods" else wanted.get(name, Decimal(0))
        has = parse_quantity(capacity.get(name, "0"))
        used = Decimal(len(others)) if name == "pods" else _total(name, others)
        if need and need + used > has:
            return _refusal(name, need, used, has)
    return None


def requests(pod: Pod) -> dict[str, Decimal]:
    """What a pod occupies: its containers together, or the largest init container where that is more."""
    total: dict[str, Decimal] = {}
    for container in pod.containers:
        for name, quantity in {**container.limits, **container.requests}.items():
            total[name] = total.get(name, Decimal(0)) + parse_quantity(quantity)
    for container in pod.init_containers:
        for name, quantity in {**container.limits, **container.requests}.items():
            total[name] = max(total.get(name, Decimal(0)), parse_quantity(quantity))
    return total


def _total(name: str, pods: Iterable[Pod]) -> Decimal:
    return sum((requests(one).get(name, Decimal(0)) for one in pods), Decimal(0))


def _refusal(name: str, need: Decimal, used: Decimal, has: Decimal) -> Verdict:
    if "/" in name:
        message = (
            f"Allocate failed due to requested number of devices unavailable for {name}. "
            f"Requested: {need:f}, Available: {max(has - used, Decimal(0)):f}, which is unexpected"
        )
        return Verdict("UnexpectedAdmissionError", message)
    requested, occupied, all_of_it = (int(number * _MILLI.get(name, 1)) for number in (need, used, has))
    message = (
        f"Node didn't have enough resource: {name}, requested: {requested}, used: {occupied}, capacity: {all_of_it}"
    )
    return Verdict(f"OutOf{name}", message)
