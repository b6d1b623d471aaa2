"""GPU-hours that crashed jobs lost. Pages, report, API, metrics and terminal all show these numbers."""

from dataclasses import dataclass
from typing import Any

import duckdb

from exporter.config.fleet import LostConfig
from exporter.fleet.history.schema import ROOTS
from exporter.fleet.observations import Window

LONGEST_RUN_HOURS = 30 * 24.0  # of a run: longer ones write checkpoints, and one wrong start would outweigh the fleet
# A job's node says itself when its jobs began: no node lengthens the runs of another one.
_LOST = f"""
WITH {ROOTS},
gpus AS (SELECT node, arg_max(try_cast(facts ->> '$.gpu_count' AS INTEGER), time) AS gpus FROM facts
    WHERE time < $end AND facts LIKE '%"gpu_count"%' GROUP BY node),
runs AS (SELECT node, job, started, least((time - started) / 3600, {LONGEST_RUN_HOURS}) AS ran FROM job_ends
    WHERE started IS NOT NULL),
lost AS (SELECT {{keys}} coalesce(job, ' ' || node) AS job, node, max(time) AS died FROM roots GROUP BY ALL)
SELECT {{keys}} sum(coalesce(gpus, 1) * ran), sum(coalesce(gpus, 1)) FILTER (ran IS NULL)
FROM lost LEFT JOIN gpus USING (node)
ASOF LEFT JOIN runs ON lost.node = runs.node AND lost.job = runs.job AND lost.died >= runs.started {{group}}
"""


@dataclass(frozen=True, slots=True)
class LostHours:
    """GPU-hours of crashed jobs. `measured`: from a job's start to its end. `assumed`: where the start is not known."""

    measured: float
    assumed: float
    config: LostConfig

    @property
    def hours(self) -> float:
        return self.measured + self.assumed

    @property
    def cost(self) -> str:
        """In the currency; empty without a price."""
        price = self.config.price
        return "" if price is None else f"{self.hours * price:,.0f} {self.config.currency}".strip()

    @property
    def note(self) -> str:
        """What the number rests on."""
        assumed = f"{self.assumed:,.0f} assumed at {self.config.assumed_hours:g} h a GPU and crash"
        if self.measured and self.assumed:
            basis = f"at most {self.measured:,.0f} by run times, {assumed}"
        else:
            basis = "at most, by run times" if self.measured else assumed
        return basis + (f"; {self.cost}" if self.cost else "")

    @property
    def sentence(self) -> str:
        return f"{self.hours:,.0f} GPU-hours lost ({self.note})"

    def to_json(self) -> dict[str, Any]:
        """The fields of the correlation's JSON."""
        return {
            "hours": self.hours, "measured_hours": self.measured,
            "assumed_hours_per_gpu_and_crash": self.config.assumed_hours,
            "cost": None if self.config.price is None else self.hours * self.config.price, "currency": self.config.currency,
        }  # fmt: skip


def lost_hours(db: duckdb.DuckDBPyConnection, window: Window, config: LostConfig) -> LostHours | None:
    """Of all root incidents in a window; None where no node's GPUs are known. A job counts once for each of its nodes."""
    if not _knows_gpus(db, window):
        return None
    row = db.execute(_LOST.format(keys="", group=""), {"start": window.start, "end": window.end}).fetchone()
    assert row is not None
    return _of(row, config)


def lost_by_cause(
    db: duckdb.DuckDBPyConnection, window: Window, config: LostConfig
) -> dict[tuple[str, str], LostHours] | None:
    """By kind and id; None where no node's GPUs are known. A job that two causes hit counts for both."""
    if not _knows_gpus(db, window):
        return None
    query = _LOST.format(keys="kind, key,", group="GROUP BY kind, key")
    rows = db.execute(query, {"start": window.start, "end": window.end}).fetchall()
    return {(kind, key): _of(sums, config) for kind, key, *sums in rows}


def _of(sums: Any, config: LostConfig) -> LostHours:
    measured, gpus = sums
    return LostHours(float(measured or 0), float(gpus or 0) * config.assumed_hours, config)


def _knows_gpus(db: duckdb.DuckDBPyConnection, window: Window) -> bool:
    query = """SELECT 1 FROM facts WHERE time < $end AND facts LIKE '%"gpu_count"%' LIMIT 1"""
    return db.execute(query, {"end": window.end}).fetchone() is not None
