"""Which profile a job that names none gets: the one whose nodes are all that could take its pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshwright.placement.supply.eligibility import NodeRules, Requirement
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import Resources
from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.fabric.reading import Profiles


def chosen(
    profiles: Profiles, pods: Iterable[tuple[dict[str, Any], Resources]], nodes: Sequence[NodeCapacity]
) -> Profile | None:
    """The first profile, in the administrator's order, that is for every node that could take the job's pods.

    It adapts to where a job goes and never steers it: a job that may go to nodes of two kinds gets neither's profile,
    since with one of them half of the cluster would be closed to it. As with selectors of Kubernetes, empty `nodes` are
    all nodes, and without `nodes` a profile is for none: a job gets it by its name alone.

    Args:
        profiles: all of them.
        pods: spec of a pod of each role that the profile would be for, and what it asks for.
        nodes: every node.
    """
    asked = tuple(pods)
    return next((profile for profile in profiles.all if _is_for(profile, asked, nodes)), None)


def _is_for(
    profile: Profile, pods: tuple[tuple[dict[str, Any], Resources], ...], nodes: Sequence[NodeCapacity]
) -> bool:
    if profile.nodes is None:
        return False
    if not profile.expressions:
        return True
    wanted = tuple(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())).holds for e in profile.expressions
    )
    tolerations = (profile.template.get("spec") or {}).get("tolerations") or []
    found = False
    for spec, resources in pods:
        rules = NodeRules.parse({**spec, "tolerations": [*(spec.get("tolerations") or ()), *tolerations]})
        for node in nodes:
            its_own = all(holds(node.labels) for holds in wanted)
            # Of its own nodes one that takes the pods is enough, so that most nodes cost a look at their labels.
            if (its_own and found) or not resources.fits(node.allocatable) or rules.obstacle(node) is not None:
                continue
            if not its_own:
                return False
            found = True
    return found
