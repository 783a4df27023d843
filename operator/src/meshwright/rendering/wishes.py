"""What a job's gang wants of the topology, from its mesh, its GPUs and `spec.placement`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from meshwright.placement.model import RoleRequest
from meshwright.placement.nesting.layout import PODS, Layout, Within, compact
from meshwright.placement.nesting.traffic import mesh_axes
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.resources import Resources
from meshwright.rendering.world import World
from meshwright_api.spec import TrainingJobSpec
from meshwright_api.wishes import Placement, PlacementAxis

_Kind = tuple[Resources, NodeRules, str, str]


def with_wishes(
    world: World, spec: TrainingJobSpec, roles: tuple[RoleRequest, ...]
) -> tuple[tuple[RoleRequest, ...], Layout | None]:
    """The roles with what each wants beside others, and the layout of those that matter most.

    The layout is about the pods with most GPUs that are alike: one pod without wishes, or pods without GPUs, want
    nothing. Other pods with GPUs are placed near them.

    Args:
        world: the gang.
        spec: the job's spec.
        roles: what the pods of each role need.
    """
    told = {role.name: role for role in spec.roles}
    roles = tuple(
        replace(role, near=told[role.role].near or "", spread=told[role.role].spread or "")
        if role.role in told
        else role
        for role in roles
    )
    main = _main(roles)
    wanted = spec.placement != Placement() or any(role.near or role.spread for role in roles)
    if not wanted and (world.pods == 1 or (world.trainer is None and not main[0].gpus)):
        return roles, None
    layout = _mesh(world, spec.placement) or _all_alike(roles, main, spec.placement)
    return tuple(_beside(role, roles, main) for role in roles), layout


def _mesh(world: World, placement: Placement) -> Layout | None:
    """The grid of pods under the mesh of ranks; it is one only where all pods hold equally many ranks."""
    if world.trainer is None or len({role.processes_per_pod for role in world.roles}) > 1:
        return None
    axes = mesh_axes((axis.name, axis.size) for axis in world.mesh())
    constraints = _constraints(placement, [axis.name for axis in axes])
    layout = Layout.of_mesh(axes, world.roles[0].processes_per_pod, constraints)
    return _with_rest(layout, placement, placement.spread)


def _all_alike(roles: tuple[RoleRequest, ...], main: _Kind, placement: Placement) -> Layout:
    pods = sum(role.replicas for role in roles if _kind(role) == main)
    return _with_rest(compact(pods, _constraints(placement, [PODS])), placement, main[3] or placement.spread)


def _constraints(placement: Placement, axes: Iterable[str]) -> list[Within]:
    everything = frozenset(axes)
    return [
        Within(everything if c.axis is PlacementAxis.PODS else frozenset({c.axis.value}), c.within, c.required)
        for c in placement.constraints
    ]


def _with_rest(layout: Layout, placement: Placement, spread: str | None) -> Layout:
    return replace(layout, exclusive=placement.exclusive or "", spread=spread or "", balanced=bool(placement.balanced))


def _kind(role: RoleRequest) -> _Kind:
    return role.resources, role.rules, role.near, role.spread


def _main(roles: tuple[RoleRequest, ...]) -> _Kind:
    """The kind of pods with the most GPUs; of equals the one that depends on no other, then the largest."""
    pods: Counter[_Kind] = Counter()
    for role in roles:
        pods[_kind(role)] += role.replicas
    return max(pods, key=lambda kind: (kind[0].gpus * pods[kind], not kind[2], pods[kind]))


def _beside(role: RoleRequest, roles: tuple[RoleRequest, ...], main: _Kind) -> RoleRequest:
    """Being near is mutual, and the main pods are placed first: so the others go near them."""
    if _kind(role) == main or role.near:
        return role
    first = next(r for r in roles if _kind(r) == main)
    wants_it = any(r.near == role.role for r in roles if _kind(r) == main)
    return replace(role, near=first.role) if wants_it or (role.resources.gpus and not role.spread) else role
