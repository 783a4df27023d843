"""Whether a namespace's ResourceQuotas leave room for a whole gang, asked before its first pod is made.

The API server counts pod by pod, and would let a part of the gang in. What admission adds to pods later (the defaults
of a LimitRange) is not known here: there the API server has the last word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.placement.errors import InvalidQuantity
from meshwright.placement.queueing.claims import Claim
from meshwright.placement.reasons import amount
from meshwright.placement.supply.quantities import millis, units


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota."""

    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scopes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """(scope, operator, values): pods for which one of them does not hold are not counted."""

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Quota:
        """Reads a ResourceQuota; what is no quantity in it limits nothing."""
        spec, status = item.get("spec") or {}, item.get("status") or {}
        expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
        scopes = [(scope, "Exists", ()) for scope in spec.get("scopes") or ()]
        scopes += [(e["scopeName"], e["operator"], tuple(e.get("values") or ())) for e in expressions]
        return cls(
            name=str((item.get("metadata") or {}).get("name") or ""),
            # The status says what is in force; before the quota's controller has looked, the spec does.
            hard=_amounts(status.get("hard") or spec.get("hard") or {}),
            used=_amounts(status.get("used") or {}),
            scopes=tuple(scopes),
        )

    @property
    def counts_ended_pods(self) -> bool:
        """Whether a pod that has ended counts until it is removed."""
        return "count/pods" in self.hard

    def counts(self, claim: Claim) -> bool:
        """Whether it counts such pods; scopes that are not known here are left to the API server."""
        return all(_holds(claim, *scope) for scope in self.scopes)


def _holds(claim: Claim, scope: str, operator: str, values: tuple[str, ...]) -> bool:
    match scope:
        case "Terminating":
            return claim.deadline
        case "NotTerminating":
            return not claim.deadline
        case "BestEffort":
            return all(name in ("pods", "count/pods") for name, _ in claim.amounts)
        case "NotBestEffort":
            return any(name not in ("pods", "count/pods") for name, _ in claim.amounts)
        case "PriorityClass" if operator in ("In", "NotIn"):
            return (claim.priority_class in values) == (operator == "In")
        case "PriorityClass":
            return bool(claim.priority_class) == (operator == "Exists")
    return False


def _amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name, value in quantities.items():
        try:
            found[name] = millis(value) if name.rpartition(".")[2] == "cpu" else units(value)
        except InvalidQuantity:
            continue
    return found


Claims = tuple[tuple[Claim, int], ...]
"""Kinds of pods, and how many there are of each."""


def shortage(wanted: Claims, quotas: Iterable[Quota], given_back: Claims = (), promised: Claims = ()) -> str:
    """What the quotas lack for these pods, for people; empty if they allow them all.

    Args:
        wanted: the pods of the gang.
        quotas: those of its namespace.
        given_back: pods that are counted as used and go before the new ones come: the gang's own of before.
        promised: pods of other gangs that have been admitted and may not be counted yet.
    """
    lacking = []
    for quota in quotas:
        need, back, more = (_sum(quota, claims) for claims in (wanted, given_back, promised))
        for name in sorted(need.keys() & quota.hard.keys()):
            hard = quota.hard[name]
            left = max(0, hard - max(0, quota.used.get(name, 0) - back[name]) - more[name])
            if need[name] > left:
                what = name.removeprefix("requests.").removeprefix("limits.")
                wants, rest, total = (amount(what, value) for value in (need[name], left, hard))
                lacking.append(f"ResourceQuota {quota.name}: {wants} {name} needed, {rest} of {total} left")
    return "; ".join(lacking)


def _sum(quota: Quota, claims: Claims) -> Counter[str]:
    total: Counter[str] = Counter()
    for claim, count in claims:
        if quota.counts(claim):
            for name, value in claim.amounts:
                total[name] += value * count
    return total
