"""Which weights a call may name, and the segments in which something was generated (protocol.md, Partial rollout)."""

from __future__ import annotations

from . import sessions
from .entries import Json, Problem, conflict
from .state import RunState, Session


class Abandoned(Problem):
    """The weights that a call names were abandoned by a rewind: an occupy discards its entry, others are refused."""

    def __init__(self, policy_version: int) -> None:
        super().__init__(409, "version_not_published", "the weights were abandoned", policy_version=policy_version)


def lineage_of(run: RunState, session: Session | None, named: int | None) -> int | None:
    """The lineage of the weights that a call names, or None if its session must name it first."""
    if session is not None:
        return sessions.lineage_of(run, session, named)
    return named if named is not None else run.lineage


def check_weights(run: RunState, version: int, lineage: int | None) -> None:
    """Refuses weights that there are not, or not any more."""
    if lineage is not None and run.is_abandoned(version, lineage):
        raise Abandoned(run.policy_version)
    if lineage is None or version > run.policy_version:
        raise conflict(
            "version_not_published", f"version {version} is not published", policy_version=run.policy_version
        )


def newest(version: int, named: list[Json]) -> int:
    """The newest of a version and those of the segments."""
    return max([version] + [int(segment["version"]) for segment in named])


def join(first: int, following: list[Json], named: list[Json]) -> list[Json]:
    """The segments behind the first, with those that a call names. One that is known may be named again."""
    joined = list(following)
    for segment in named:
        last = joined[-1] if joined else {"version": first, "from_token": 0}
        if segment in joined or segment == {"version": first, "from_token": 0}:
            continue
        if segment["version"] <= last["version"] or segment["from_token"] <= last["from_token"]:
            raise conflict("segment_out_of_order", "versions and tokens must rise")
        joined.append({"version": segment["version"], "from_token": segment["from_token"]})
    return joined
