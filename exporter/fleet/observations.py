"""Observations of a fleet: nodes, their facts over time, their incidents and the hours in which they were watched.

Only data lives here, as columns of arrays: a fleet of 100,000 nodes has millions of rows. Texts are numbered; -1 stands
for "not known". Times are Unix seconds, durations hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from exporter.fleet.window import Window as Window

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Texts = NDArray[np.object_]

NOT_KNOWN = -1
UNKNOWN = "unknown"


NOTES = frozenset({"busy_hours_missing", "jobs_not_visible", "values_left_out"})  # gaps of precision, not of sight


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Data that is missing or unusable: a kind for programs, a sentence for people."""

    kind: str
    count: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRows:
    """The facts of nodes, one row for each node and time from which on they hold.

    `codes[row, fact]` is the index of the value in `values[fact]`, -1 if it is not known. `location_globs` match facts that
    the site calls places, beside `rack`, `row`, `cage` and the like.
    """

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    node: Ints
    since: Floats
    codes: NDArray[np.int32]
    location_globs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """Heartbeats: the hours up to `end` in which a node was watched, and its GPU-busy hours (NaN if not known)."""

    node: Ints
    end: Floats
    hours: Floats
    busy: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Incidents:
    """Root incidents, one row each. `workload` has codes of the job's account, job_name and image."""

    node: Ints
    time: Floats
    signature: Ints
    job: Ints
    user: Ints
    id: Texts
    gpu: Texts
    workload: Mapping[str, Ints] = field(default_factory=dict)

    def take(self, rows: Ints | Bools) -> Incidents:
        """Some of the rows, in the given order."""
        return Incidents(
            node=self.node[rows], time=self.time[rows], signature=self.signature[rows], job=self.job[rows],
            user=self.user[rows], id=self.id[rows], gpu=self.gpu[rows],
            workload={kind: values[rows] for kind, values in self.workload.items()},
        )  # fmt: skip


GroupLevel = Literal["all", "verdict", "root_cause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureGroup:
    """Signatures that may share a reason: all, those of a verdict, or those that a root cause can explain.

    The catalogue fixes the members. The diagnosed cause of a crash does not count here: it follows from facts.
    """

    level: GroupLevel
    name: str
    signatures: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boots:
    """When nodes booted."""

    node: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    time: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All observations of a fleet over some time, and the gaps in them."""

    nodes: tuple[str, ...]
    signatures: tuple[str, ...]
    facts: FactRows
    beats: Beats
    incidents: Incidents
    vendors: Mapping[str, str] = field(default_factory=dict)  # of signatures
    groups: tuple[SignatureGroup, ...] = ()
    gaps: tuple[Gap, ...] = ()
    boots: Boots = field(default_factory=Boots)
    workload_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of user, job and `Incidents.workload`


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWindow:
    """The result of reading a source: the observations and the window asked for."""

    observed: Observed
    window: Window
    before: Window | None  # of the same length, just before, where the source reaches back so far
