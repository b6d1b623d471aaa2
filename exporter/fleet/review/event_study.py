"""How much more often nodes crashed by days since each node's own change: the picture behind a rollout's finding."""

import math
from dataclasses import dataclass

import duckdb
import numpy as np

from exporter.fleet.history.schema import ROOTS, fact_pointer
from exporter.fleet.observations import Window
from exporter.fleet.review.queries import DAY
from exporter.fleet.statistics.ratio import Ratio, rate_ratio

BEFORE, AFTER = 8, 5  # steps shown at most


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStep:
    """One step of days since the change: crashes of changed nodes, and how many more than nodes that never changed."""

    day: float  # where it begins; below 0 before the change
    crashes: int
    expected: float
    ratio: Ratio


def event_study(
    db: duckdb.DuckDBPyConnection, crash: str, fact: str, value: str, window: Window
) -> tuple[float, tuple[StudyStep, ...]]:
    """The length of a step in days, and the steps. Nothing without changed nodes, others, or a crash of those.

    crash: a signature or root cause.
    """
    rows = db.execute(
        """SELECT node, min(time) FILTER (now = $value AND before != $value AND time > $start) AS since,
        bool_or(now = $value) AS has FROM (SELECT node, time, json_extract_string(facts, $fact) AS now,
            lag(json_extract_string(facts, $fact)) OVER (PARTITION BY node ORDER BY time) AS before
            FROM facts WHERE time < $end) WHERE now IS NOT NULL GROUP BY node""",
        {"start": window.start, "end": window.end, "fact": fact_pointer(fact), "value": value},
    ).fetchall()
    changed = {node: since for node, since, _ in rows if since is not None}
    others = {node for node, _, has in rows if not has}
    crashes = db.execute(
        f"WITH {ROOTS} SELECT node, time FROM roots WHERE signature = $crash OR root_cause = $crash",
        {"start": window.start, "end": window.end, "crash": crash},
    ).fetchall()
    days = np.arange(window.start, window.end, DAY)
    until = np.minimum(days + DAY, window.end)
    of_others = np.array([time for node, time in crashes if node in others])
    elsewhere = np.histogram(of_others, np.append(days, window.end))[0]
    if not changed or not elsewhere.any():
        return 1.0, ()
    since = np.array(list(changed.values()))
    length = max(math.ceil((window.end - float(np.median(since))) / DAY / AFTER), 1) * DAY
    own_time = np.array([time for node, time in crashes if node in changed])
    own = np.array([(time - changed[node]) / length for node, time in crashes if node in changed])
    steps = []
    for step in range(-BEFORE, AFTER):
        begin, end = (
            np.maximum(since + step * length, window.start),
            np.minimum(since + (step + 1) * length, window.end),
        )
        watched = float(np.maximum(end - begin, 0.0).sum())
        if watched < 0.25 * len(since) * length:
            continue  # of too few nodes to show
        # Of each day: a fleet that becomes worse by itself is not the change's doing.
        hits = np.histogram(own_time[(own >= step) & (own < step + 1)], np.append(days, window.end))[0]
        inside = np.minimum(end[:, None], until) - np.maximum(begin[:, None], days)
        odds = np.maximum(inside, 0.0).sum(axis=0) / (len(others) * (until - days))
        count = int(hits.sum())
        ratio = rate_ratio(float(count), (hits + elsewhere).astype(float), odds)
        expected = float((elsewhere * odds).sum())
        steps.append(StudyStep(day=step * length / DAY, crashes=count, expected=expected, ratio=ratio))
    return length / DAY, tuple(steps)
