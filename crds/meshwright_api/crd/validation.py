"""One validation of a policy, and how text is written in CEL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Validation:
    """One validation of a policy."""

    name: str
    """What tests and docs call it."""
    expression: str
    """CEL; true if the object is in order."""
    message: str
    """What is wrong, if the expression below cannot be evaluated."""
    message_expression: str
    """CEL that makes the message: the field, its value, the limit and a value that works."""
    reason: str = "Invalid"
    """Reason of the API server's answer: Invalid or Forbidden."""

    def manifest(self) -> dict[str, str]:
        """The entry as it stands in the policy."""
        return {
            "expression": self.expression,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
        }


def text(value: str) -> str:
    """A CEL string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def texts(values: tuple[str, ...]) -> str:
    """A CEL list of string literals."""
    return f"[{', '.join(map(text, values))}]"
