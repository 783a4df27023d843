"""The training loop, whole. What it calls is built in `session.py`."""

from __future__ import annotations

from enum import StrEnum

from meshwright_trainer.errors import Diverged
from meshwright_trainer.session import Session
from meshwright_trainer.state import TrainState

MOST_SKIPPED_IN_A_ROW = 50
"""So many steps without a finite gradient are no passing overflow any more."""


class Ending(StrEnum):
    """Why the loop ended."""

    FINISHED = "finished"
    TERMINATED = "terminated"


def train(session: Session) -> Ending:
    """Trains from where the checkpoints stand to the last step, or until the ranks agree to stop.

    Raises:
        Diverged: the gradient is not finite any more.
        meshwright_trainer.checkpoint.errors.CheckpointError: the state cannot be read, or not be kept.
    """
    steps = session.config.steps
    state = session.resume()
    session.report("started", state, resumed_from_step=state.step, world_size=session.launch.place.world_size)
    windows = session.windows(state)
    stopping = False
    while state.step < steps and not stopping:
        with session.meter.phase("data"):
            window = next(windows)
        result = session.step(window)
        state = state.after(result, session.config.batch.global_)
        _check_divergence(state)
        verdict = session.agreement.exchange(stop=session.stop.requested, save=session.cadence.clock_says())
        stopping = verdict.stop
        last = stopping or state.step == steps
        if last or state.step % session.log_every == 0:
            skipped = {"skipped": True} if result.skipped else {}
            session.report(
                "step",
                state,
                steps=steps,
                loss=result.loss,
                gradient_norm=result.norm,
                **result.sums,
                **skipped,
                **session.figures(state),
            )
        if session.cadence.evaluates(state.step) or state.step == steps:
            session.evaluate(state)
        if last or verdict.save or session.cadence.saves(state.step):
            session.save(state)
        session.report_durable()
    session.agreement.settle()
    session.flush()
    ending = Ending.FINISHED if state.step >= steps else Ending.TERMINATED
    session.report(ending, state)
    return ending


def _check_divergence(state: TrainState) -> None:
    if state.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
        raise Diverged(
            f"the gradient was not finite in the last {MOST_SKIPPED_IN_A_ROW} steps, step {state.step} is the last; "
            "lower optimizer.learningRate, or look at the data"
        )
