"""`Promises`: pods of gangs that were admitted, as long as the namespace's quota may not count them yet."""

from __future__ import annotations

from collections.abc import Iterable

from meshwright.lifecycle.model import Pod
from meshwright.placement.model import GangRequest
from meshwright.placement.queueing.quota import Claims, Quota, shortage


class Promises:
    """Two gangs of which the quota allows one would otherwise both be let in, and both stay halves."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, Claims]] = {}

    def shortage(self, request: GangRequest, quotas: Iterable[Quota], pods: Iterable[Pod]) -> str:
        """What the quotas lack for the gang; empty if they allow all of it.

        Args:
            request: the gang.
            quotas: those of its namespace.
            pods: its own of before, which give way to the new ones.
        """
        claims = {role.role: role.claim for role in request.roles}
        mine = [pod.identity.role for pod in pods if not pod.ended]
        given_back = tuple((claims[role], 1) for role in mine if role in claims)
        promised = tuple(
            claim
            for uid, (namespace, made) in self._made.items()
            if namespace == request.namespace and uid != request.job_uid
            for claim in made
        )
        return shortage(_claims(request), quotas, given_back, promised)

    def make(self, request: GangRequest) -> None:
        """The gang was admitted."""
        self._made[request.job_uid] = (request.namespace, _claims(request))

    def kept(self, job_uid: str) -> bool:
        """All its pods were made, or none will be; returns whether they had been promised."""
        return self._made.pop(job_uid, None) is not None

    def clear(self) -> None:
        """Others admit now."""
        self._made.clear()


def _claims(request: GangRequest) -> Claims:
    return tuple((role.claim, role.replicas) for role in request.roles if role.replicas)
