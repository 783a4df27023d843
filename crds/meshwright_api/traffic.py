"""How a placed gang uses the levels of the topology; told in the launch plan and in status."""

from __future__ import annotations

from meshwright_api.base import ApiModel


class LevelUse(ApiModel):
    """One level of the topology."""

    level: str
    """Name of the level: `spine`, `leaf`, `node`."""
    domains: int
    """Number of its domains that the gang is in."""
    crossing_bytes: int | None = None
    """Bytes that leave its domains in a step, all ranks together, for a reference model of the job's mesh: compare
    them with each other. Unset where the mesh is not known."""
    first_fit_bytes: int | None = None
    """The same if nodes were filled in the order of their names; unset where that would find no place."""
