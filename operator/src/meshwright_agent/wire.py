"""The messages: what processes tell their agent, and what agents tell each other and the operator.

The operator reads them with this module too, so there is one definition. Fields that a reader does not know are
ignored; a known field of the wrong kind spoils its whole message, so that no half of a message is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from typing import Any

from meshwright_agent.errors import Malformed

MAX_PROGRESS = 8 * 1024
"""Bytes of a datagram from a process to its agent."""
MAX_REPORT = 64 * 1024
"""Bytes of a report to the operator, and of its answer."""
MAX_WORD = 64
"""Characters of the trainer's own word for what it does."""
_MAX_WHOLE = 2**53
"""The largest whole number that every reader of JSON has exactly."""


@dataclass(frozen=True)
class Checkpoint:
    """A durable checkpoint."""

    step: int
    """Optimizer steps that are in it."""
    time: float
    """When it was committed, in seconds since 1970."""

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return {"step": self.step, "time": self.time}


@dataclass(frozen=True)
class Progress:
    """How far the training is; None for what was not said."""

    step: int | None = None
    """Optimizer steps done since the beginning of the training."""
    steps: int | None = None
    """Optimizer steps in all."""
    loss: float | None = None
    """Training loss of the last logged step; may be infinite or not a number."""
    tokens_per_second: float | None = None
    """Tokens per second over all ranks."""
    mfu: float | None = None
    """Model FLOPs utilisation, a fraction."""
    eta_seconds: float | None = None
    """Estimated seconds until the last step."""
    checkpoint: Checkpoint | None = None
    """The last durable checkpoint."""
    phase: str | None = None
    """The trainer's own word for what it does."""

    @classmethod
    def read(cls, document: object) -> Progress:
        """Checks what a process or an agent said.

        Raises:
            Malformed: a known field is of the wrong kind.
        """
        source = _object(document, "progress")
        checkpoint = source.get("checkpoint")
        return cls(
            step=_whole(source, "step"),
            steps=_whole(source, "steps"),
            loss=_number(source, "loss", finite=False),
            tokens_per_second=_number(source, "tokensPerSecond"),
            mfu=_number(source, "mfu"),
            eta_seconds=_number(source, "etaSeconds"),
            checkpoint=None if checkpoint is None else _checkpoint(_object(checkpoint, "checkpoint")),
            phase=_word(source, "phase"),
        )

    def over(self, older: Progress) -> Progress:
        """What is known after this was said: fields that it leaves out keep their older value."""
        said = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        return replace(older, **said)

    def to_json(self) -> dict[str, Any]:
        """As it is sent, without what was not said."""
        document = {
            "step": self.step,
            "steps": self.steps,
            "loss": self.loss,
            "tokensPerSecond": self.tokens_per_second,
            "mfu": self.mfu,
            "etaSeconds": self.eta_seconds,
            "checkpoint": self.checkpoint and self.checkpoint.to_json(),
            "phase": self.phase,
        }
        return {key: value for key, value in document.items() if value is not None}


@dataclass(frozen=True)
class Report:
    """What one agent knows: of its own pod, or, where rank 0's agent speaks, of all pods of the job."""

    attempt: int
    """The attempt of the plan that the pod works by."""
    incarnation: int
    """The pod's own incarnation."""
    role: str
    """The pod's role."""
    index: int
    """The pod's index in its role."""
    pod: str
    """The pod's name."""
    heard: int = 1
    """Pods that are heard in this report."""
    min_step: int | None = None
    """The least step of any pod that is heard."""
    max_step: int | None = None
    """The greatest step of any pod that is heard."""
    progress: Progress = Progress()
    """How far the training is."""

    @classmethod
    def parse(cls, text: bytes) -> Report:
        """Reads a report.

        Raises:
            Malformed: it is none; the message names the field.
        """
        source = parse_object(text, MAX_REPORT)
        return cls(
            attempt=_required(_whole(source, "attempt"), "attempt"),
            incarnation=_required(_whole(source, "incarnation"), "incarnation"),
            role=_required(_word(source, "role", 253), "role"),
            index=_required(_whole(source, "index"), "index"),
            pod=_required(_word(source, "pod", 253), "pod"),
            heard=_required(_whole(source, "heard"), "heard"),
            min_step=_whole(source, "minStep"),
            max_step=_whole(source, "maxStep"),
            progress=Progress.read(source.get("progress", {})),
        )

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "attempt": self.attempt,
            "incarnation": self.incarnation,
            "role": self.role,
            "index": self.index,
            "pod": self.pod,
            "heard": self.heard,
            "minStep": self.min_step,
            "maxStep": self.max_step,
            "progress": self.progress.to_json(),
        }


@dataclass(frozen=True)
class Answer:
    """What the operator, or rank 0's agent on its behalf, answers to a report."""

    attempt: int
    """The job's newest attempt; an agent of an older one has been overtaken."""
    plan_sha256: str = ""
    """Hash of the newest plan, which can be fetched."""
    rank0_ip: str = ""
    """Address of the pod of rank 0; empty where it is not known."""
    key: str = ""
    """With which the agents of this attempt prove themselves to each other, in hexadecimal; only the operator says."""
    interval_seconds: float | None = None
    """How often to report, where it differs from the plan."""

    @classmethod
    def parse(cls, text: bytes) -> Answer:
        """Reads an answer.

        Raises:
            Malformed: it is none; the message names the field.
        """
        source = parse_object(text, MAX_REPORT)
        rank0 = _object(source.get("rank0") or {}, "rank0")
        return cls(
            attempt=_required(_whole(source, "attempt"), "attempt"),
            plan_sha256=_word(source, "planSHA256") or "",
            rank0_ip=_word(rank0, "ip") or "",
            key=_hexadecimal(source, "key"),
            interval_seconds=_number(source, "intervalSeconds"),
        )

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "attempt": self.attempt,
            "planSHA256": self.plan_sha256,
            "rank0": {"ip": self.rank0_ip},
            "key": self.key,
            "intervalSeconds": self.interval_seconds,
        }


def parse_object(text: bytes, limit: int) -> Mapping[str, Any]:
    """The JSON object in a message.

    Raises:
        Malformed: it is larger than `limit` bytes, or no JSON object.
    """
    if len(text) > limit:
        raise Malformed(f"the message has {len(text)} bytes; the most are {limit}")
    try:
        return _object(json.loads(text), "the message")
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the message is not JSON: {error}") from error


def dump(document: Mapping[str, Any]) -> bytes:
    """The bytes of a message."""
    return json.dumps(document, separators=(",", ":")).encode()


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{name} must be a JSON object, not {type(value).__name__}")
    return value


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise Malformed(f"{name} is missing")
    return value


def _whole(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_WHOLE:
        raise Malformed(f"{name} must be a whole number from 0, such as 120")
    return value


def _number(source: Mapping[str, Any], name: str, *, finite: bool = True) -> float | None:
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Malformed(f"{name} must be a number")
    try:
        number = float(value)
    except OverflowError:
        raise Malformed(f"{name} is too large") from None
    if finite and not (math.isfinite(number) and number >= 0):
        raise Malformed(f"{name} must be a finite number from 0")
    return number


def _word(source: Mapping[str, Any], name: str, limit: int = MAX_WORD) -> str | None:
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > limit or not value.isprintable():
        raise Malformed(f"{name} must be a printable text of at most {limit} characters")
    return value


def _hexadecimal(source: Mapping[str, Any], name: str) -> str:
    value = _word(source, name) or ""
    try:
        bytes.fromhex(value)
    except ValueError:
        raise Malformed(f"{name} must be hexadecimal") from None
    return value


def _checkpoint(source: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(_required(_whole(source, "step"), "checkpoint.step"), _moment(source.get("time")))


def _moment(value: object) -> float:
    """Seconds since 1970, from a number of them or a text such as 2026-11-29T20:00:00Z."""
    if isinstance(value, str):
        try:
            # Python 3.9 does not read the Z.
            moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            raise Malformed("checkpoint.time must be seconds since 1970 or a text as 2026-11-29T20:00:00Z") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    number = _number({"checkpoint.time": value}, "checkpoint.time")
    if number is None or number > 253402300799:  # The year 9999.
        raise Malformed("checkpoint.time must be seconds since 1970 or a text as 2026-11-29T20:00:00Z")
    return number
