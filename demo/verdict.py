"""Whether the demo has shown what it claims: a function of facts, none of them the operator's word alone."""

from __future__ import annotations

import json
from dataclasses import dataclass

from meshwright_api.status import Incident, Phase


@dataclass(frozen=True)
class Evaluation:
    """What another program found on text that was not trained on; nats per byte."""

    step: int
    heldout_loss: float
    bigram_entropy: float
    unigram_entropy: float
    sample: str = ""
    sha256: str = ""
    """Of weights and optimizer state; empty where the example has no such hash."""


@dataclass(frozen=True)
class Facts:
    """What was seen, and by whom.

    Attributes:
        killed_uid: UID of the pod whose process the demo killed.
        last_checkpoint_before_kill: Read from the checkpoint folder after the process was gone.
        resumed_from_step: Said by the training script when it started again.
        evaluation: Made by another program from the final checkpoint.
        undisturbed_sha256: Hash of the final state of the same job that nobody killed; empty if that was not asked for.
    """

    phase: Phase | None
    attempts: int
    incidents: tuple[Incident, ...]
    killed_uid: str
    last_checkpoint_before_kill: int | None
    resumed_from_step: int | None
    evaluation: Evaluation | None
    undisturbed_sha256: str = ""


def problems(facts: Facts) -> list[str]:
    """Every claim that does not hold; empty if the demo has succeeded."""
    return [
        text
        for holds, text in (
            (facts.phase is Phase.SUCCEEDED, f"the job is {facts.phase}, not Succeeded"),
            (_learned(facts), _loss_text(facts)),
            (facts.attempts == 2, f"there were {facts.attempts} attempts, not the first and the one after the kill"),
            (len(facts.incidents) == 1, f"one kill made {len(facts.incidents)} incidents"),
            (_blamed(facts), f"no incident names the killed pod {facts.killed_uid or '(none was killed)'}"),
            (_resumed(facts), _resume_text(facts)),
            (_same_bits(facts), "the final weights are not those of the same job undisturbed"),
        )
        if not holds
    ]


def last_line(facts: Facts) -> str:
    """The facts as one line of JSON, the last that the demo prints."""
    evaluation = facts.evaluation
    return json.dumps(
        {
            "heldout_loss": evaluation.heldout_loss if evaluation else None,
            "bigram_entropy": evaluation.bigram_entropy if evaluation else None,
            "unigram_entropy": evaluation.unigram_entropy if evaluation else None,
            "attempts": facts.attempts,
            "steps": evaluation.step if evaluation else None,
            "resumed_from_step": facts.resumed_from_step,
            "last_checkpoint_before_kill": facts.last_checkpoint_before_kill,
            "sha256": (evaluation.sha256 or None) if evaluation else None,
            "undisturbed_sha256": facts.undisturbed_sha256 or None,
        }
    )


def _learned(facts: Facts) -> bool:
    return facts.evaluation is not None and facts.evaluation.heldout_loss < facts.evaluation.bigram_entropy


def _loss_text(facts: Facts) -> str:
    if facts.evaluation is None:
        return "the final checkpoint was not evaluated"
    return f"held-out loss {facts.evaluation.heldout_loss:.3f} is not below {facts.evaluation.bigram_entropy:.3f}"


def _blamed(facts: Facts) -> bool:
    return bool(facts.killed_uid) and any(one.culprit.pod_uid == facts.killed_uid for one in facts.incidents)


def _resumed(facts: Facts) -> bool:
    return facts.resumed_from_step is not None and facts.resumed_from_step == facts.last_checkpoint_before_kill


def _same_bits(facts: Facts) -> bool:
    ended = facts.evaluation.sha256 if facts.evaluation else ""
    return not facts.undisturbed_sha256 or facts.undisturbed_sha256 == ended


def _resume_text(facts: Facts) -> str:
    return (
        f"training went on from step {facts.resumed_from_step}, the last checkpoint before the kill was"
        f" {facts.last_checkpoint_before_kill}"
    )
