"""What a field of a later version is, in the tables of `features` and `trainer_features`."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright_api.keys import LIST


@dataclass(frozen=True, slots=True)
class Later:
    """A field that this version refuses."""

    path: tuple[str, ...]
    """Where it stands below `spec`; `[]` for every item of a list."""
    say: str
    """What to do instead."""
    works: tuple[str | int, ...] = ()
    """The values that this version has."""

    @property
    def words(self) -> bool:
        """Whether the field's values are words."""
        return any(isinstance(value, str) for value in self.works)

    @property
    def name(self) -> str:
        """`spec.queue.backend`."""
        return ".".join(("spec", *self.path)).replace(f".{LIST}", LIST)
