"""`$(VAR)` in env values, commands and arguments, to the letter of Kubernetes.

A known name is replaced, an unknown reference stays as it is, `$$` gives one `$` (so `$$(VAR)` gives `$(VAR)`),
and any other `$` stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces the references in `text`; what was replaced is not looked at again."""
    done: list[str] = []
    rest = text
    while True:
        before, dollar, after = rest.partition("$")
        done.append(before)
        if not dollar:
            return "".join(done)
        if after.startswith("$"):
            done.append("$")
            rest = after[1:]
        elif after.startswith("(") and ")" in after:
            name, _, rest = after[1:].partition(")")
            done.append(variables.get(name, f"$({name})"))
        else:
            done.append("$")
            rest = after


def expand_all(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Each word expanded; a word is never split."""
    return tuple(expand(word, variables) for word in words)
