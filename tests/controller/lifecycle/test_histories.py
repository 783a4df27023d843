"""Random histories of larger gangs, judged by the same promises as the exhaustive exploration of small ones."""

from __future__ import annotations

from itertools import islice

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controller.lifecycle.exploration import calm, check_rest
from tests.controller.lifecycle.simulation import Simulation
from tests.controller.lifecycle.world import Budgets, Setting, Step, World

CALM_STEPS = 400

settings_of_worlds = st.builds(
    Setting,
    name=st.just("random"),
    budgets=st.builds(
        Budgets,
        fails=st.integers(0, 4),
        deletions=st.integers(0, 3),
        node_losses=st.integers(0, 2),
        toggles=st.integers(0, 3),
        crashes=st.integers(0, 3),
        transfers=st.integers(0, 3),
        refusals=st.integers(0, 2),
        plan_deletions=st.integers(0, 1),
    ),
    pods=st.integers(3, 8),
    lag=st.integers(0, 5),
    late=st.booleans(),
    exits_on_stop=st.booleans(),
    max_restarts=st.sampled_from([0, 1, 2, 10]),
    force=st.booleans(),
)


def choose(simulation: Simulation, world: World, choice: int) -> Step | None:
    """One of the possible steps. Every other one is the leader's, or else a large gang would leave it no time."""
    leader, number = choice % 2, choice // 2
    if leader:
        steps = list(simulation.leader_steps(world))
        if steps:
            return steps[number % len(steps)]
    # Not counted beforehand: that would carry every one of them out.
    steps = list(islice(simulation.steps(world), number % 24 + 1))
    return steps[-1] if steps else None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(settings_of_worlds, st.lists(st.integers(0, 1 << 10), min_size=60, max_size=240))
def test_larger_gangs_keep_every_promise_and_come_to_rest(setting: Setting, choices: list[int]) -> None:
    simulation = Simulation(setting)
    world = simulation.start()
    for choice in choices:
        step = choose(simulation, world, choice)
        if step is None:
            break
        _, world = step
    for _ in range(CALM_STEPS):
        step = calm(simulation, world)
        if step is None:
            break
        _, world = step
    else:
        raise AssertionError("no rest in sight")
    check_rest(simulation, world)
