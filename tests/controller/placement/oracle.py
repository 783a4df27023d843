"""An answer of its own to the question whether a gang fits, found by trying everything; for small clusters only.

It shares nothing with the solver: amounts are plain tuples, and places are searched, not filled.
"""

from __future__ import annotations

Amount = tuple[int, ...]


def fits(pods: int, request: Amount, nodes: tuple[Amount, ...]) -> bool:
    """Whether that many equal pods can be placed at once, with what each node has free."""
    if pods == 0:
        return True
    for i, free in enumerate(nodes):
        left = tuple(have - want for have, want in zip(free, request, strict=True))
        if all(amount >= 0 or want == 0 for amount, want in zip(left, request, strict=True)):
            rest = (*nodes[:i], left, *nodes[i + 1 :])
            if fits(pods - 1, request, rest):
                return True
    return False
