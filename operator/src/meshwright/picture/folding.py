"""Leaves out detail until a picture can be read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from meshwright.picture.census import summed
from meshwright.picture.model import Domain


def folded(root: Domain, most: int) -> Domain:
    """The tree down to the lowest level that has at most so many domains.

    The job's own domains are drawn further down, as long as they are no more than that. What is beside them is summed
    up as `n others`, so that the parts of every drawn domain add up to it.

    Args:
        root: the whole cluster in full detail.
        most: domains of one level that can be looked at together.
    """
    every, mine = Counter[int](), Counter[int]()
    _count(root, 0, every, mine)
    depths = range(1, max(every) + 1)
    whole = next((depth - 1 for depth in depths if every[depth] > most), max(every))
    own = next((depth - 1 for depth in depths if mine[depth] > most or not mine[depth]), max(every))
    return _fold(root, 0, whole, max(own, whole))


def without_repeats(root: Domain) -> Domain:
    """The tree without levels whose domains are all single nodes, such as NVLink where it ends at the node."""
    several = {domain.level for domain in root.walk() if domain.nodes != 1}
    return _skip(root, several) if several else root


def _skip(domain: Domain, several: set[str]) -> Domain:
    if domain.level not in several:
        while domain.children:
            domain = domain.children[0]
    return replace(domain, children=tuple(_skip(child, several) for child in domain.children))


def only_job(root: Domain) -> Domain:
    """The domains that the job is in, and nothing beside them."""
    return replace(root, children=tuple(only_job(child) for child in root.children if child.pods))


def _count(domain: Domain, depth: int, every: Counter[int], mine: Counter[int]) -> None:
    every[depth] += 1
    mine[depth] += domain.pods > 0
    for child in domain.children:
        _count(child, depth + 1, every, mine)


def _fold(domain: Domain, depth: int, whole: int, own: int) -> Domain:
    if not domain.children or depth >= own or (depth >= whole and not domain.pods):
        return replace(domain, children=())
    if depth < whole:
        return replace(domain, children=tuple(_fold(child, depth + 1, whole, own) for child in domain.children))
    shown = [_fold(child, depth + 1, whole, own) for child in domain.children if child.pods]
    rest = tuple(child for child in domain.children if not child.pods)
    if rest:
        name = "1 other" if len(rest) == 1 else f"{len(rest)} others"
        shown.append(replace(summed(rest[0].level, name, rest), children=()))
    return replace(domain, children=tuple(shown))
