"""How often each cause occurred over time, and last week against the week before."""

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np

from exporter.fleet.history.schema import ROOTS
from exporter.fleet.observations import Window
from exporter.fleet.review.queries import DAY
from exporter.fleet.review.review_contents import Review
from exporter.fleet.statistics.ratio import rate_ratio

WEEK = 7 * DAY
Key = tuple[str, str]  # of a cause: its kind and id


def trends(db: duckdb.DuckDBPyConnection, window: Window, bins: int) -> dict[Key, list[int]]:
    """Root incidents of each cause in equal spans of the window."""
    rows = db.execute(
        f"""WITH {ROOTS} SELECT kind, key, list(least(floor((time - $start) / $step), $last)::INTEGER)
        FROM roots GROUP BY kind, key""",
        {"start": window.start, "end": window.end, "step": (window.end - window.start) / bins, "last": bins - 1},
    ).fetchall()
    return {(kind, key): np.bincount(bins_of_roots, minlength=bins).tolist() for kind, key, bins_of_roots in rows}


def week_on_week(db: duckdb.DuckDBPyConnection, end: float) -> dict[Key, tuple[int, int]]:
    """Root incidents of each cause in the last seven days before `end`, and in the seven days before those."""
    counts = trends(db, Window(start=end - 2 * WEEK, end=end), 2)
    return {key: (now, before) for key, (before, now) in counts.items()}


def compared(db: duckdb.DuckDBPyConnection, review: Review) -> tuple[Mapping[Key, tuple[int, int]], str]:
    """Counts of each cause now and before, and what they are of: the window and the one before, or the last two weeks.

    Empty where the records reach back over neither.
    """
    span = review.window.end - review.window.start
    if review.before is not None:
        unit = "week" if abs(span - WEEK) < DAY / 24 else "window"
        return {(c.kind, c.id): (c.incidents, c.before or 0) for c in review.causes}, f"on the {unit} before"
    if span >= 2 * WEEK:
        return week_on_week(db, review.window.end), "(last 7 days on the 7 before)"
    return {}, ""


def is_clear(now: int, before: int) -> bool:
    """Whether the counts of two equal spans differ by more than chance explains."""
    if not now + before:
        return False
    ratio = rate_ratio(float(now), np.array([float(now + before)]), np.array([1.0]))
    return ratio.low > 1 or ratio.high < 1


def sums(counts: Mapping[Key, tuple[int, int]]) -> tuple[int, int]:
    """Of all causes: now and before."""
    values: Sequence[tuple[int, int]] = list(counts.values())
    return sum(now for now, _ in values), sum(before for _, before in values)
