"""Nodes whose clocks are hours off, as their records show beside those of the other nodes."""

from __future__ import annotations

import duckdb
import numpy as np

from exporter.fleet.observations import Floats, Gap

OFF_SECONDS = 3600.0  # less is within what heartbeats of an hour leave open
AGREE_SECONDS = 1800.0  # by which the first and the last record may be off differently
USUAL_SHARE = 0.8  # of the nodes must begin, and end, within OFF_SECONDS of each other, for the rest to be judged
MIN_NODES = 5
NAMED = 5

_ENDS = """SELECT node, min(time), max(time) FROM (
    SELECT node, time FROM heartbeats UNION ALL SELECT node, time FROM incidents) GROUP BY node ORDER BY node"""
_OF_JOBS = """
WITH one AS (SELECT job, signature, node, min(time) AS time FROM incidents
             WHERE job IS NOT NULL AND role IN ('root', 'cascade') GROUP BY job, signature, node),
     own AS (SELECT *, median(time) OVER (PARTITION BY job, signature) AS usual,
             count(*) OVER (PARTITION BY job, signature) AS nodes FROM one)
SELECT node, median(time - usual) AS off FROM own WHERE nodes >= 3
GROUP BY node HAVING count(*) >= 2 AND abs(off) > ? ORDER BY node"""


def clocks_off(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    """A gap that names the nodes whose clocks must be hours off.

    A node's records begin and end hours before, or after, those of nearly all others; or its crashes lie hours from
    those of the other nodes of the same jobs.
    """
    rows = db.execute(_ENDS).fetchall()
    off = dict(
        zip((row[0] for row in rows), _shift(*(np.array([row[i] for row in rows]) for i in (1, 2))), strict=True)
    )
    off = {node: float(seconds) for node, seconds in off.items() if seconds}
    off |= {node: float(seconds) for node, seconds in db.execute(_OF_JOBS, [OFF_SECONDS]).fetchall()}
    if not off:
        return []
    named = ", ".join(f"{node} ({seconds / 3600:+.1f} h)" for node, seconds in sorted(off.items())[:NAMED])
    more = f" and {len(off) - NAMED} more" if len(off) > NAMED else ""
    what = f"clocks of {len(off)} nodes look hours off, so their crashes may meet the wrong facts: {named}{more}"
    return [Gap(kind="clock_off", count=len(off), what=what)]


def _shift(first: Floats, last: Floats) -> Floats:
    """By how many seconds each node's records are shifted; 0 where nothing is wrong, or this is not known."""
    if len(first) < MIN_NODES:
        return np.zeros(len(first))
    begin, end = first - np.median(first), last - np.median(last)
    usual = (np.abs(begin) <= OFF_SECONDS) & (np.abs(end) <= OFF_SECONDS)
    if usual.mean() < USUAL_SHARE:
        return np.zeros(len(first))
    shifted = (np.abs(begin) > OFF_SECONDS) & (np.abs(end) > OFF_SECONDS) & (np.abs(begin - end) <= AGREE_SECONDS)
    return np.where(shifted, (begin + end) / 2, 0.0)
