"""Heartbeats by node and day: what pages and reviews ask, in a hundredth of the rows.

A row holds the hours of a node's heartbeats that end on a UTC day, the first and last of them, and the silences before and
between them. It is made anew from the heartbeats whenever one of them is stored, in the same transaction.
"""

import duckdb

from exporter.fleet.history.retention import RAN

DAY = 86400
SILENT_SECONDS = 1800.0  # without a heartbeat, which the daemon writes every five minutes by default

TABLE = """
CREATE TABLE IF NOT EXISTS watched_days (
    node VARCHAR, day BIGINT, hours DOUBLE, gpu_busy_hours DOUBLE, beats BIGINT, busy_beats BIGINT,
    first DOUBLE, last DOUBLE, silences STRUCT(since DOUBLE, until DOUBLE)[]);
"""
# Of a row's hours those in a window; within a day they are taken as evenly spread.
SHARE = """CASE WHEN last > first THEN greatest(least(last, $end) - greatest(first, $start), 0) / (last - first)
    ELSE 1 END"""
IN_WINDOW = f"day BETWEEN floor($start / {DAY}) AND floor($end / {DAY}) + 31 AND last > $start AND first < $end"

_NEW = f"""
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT node, floor(time / {DAY})::BIGINT AS day
    FROM new_heartbeats;
INSERT INTO touched SELECT DISTINCT t.node, w.day FROM touched AS t
    ASOF JOIN watched_days AS w ON t.node = w.node AND w.day > t.day WHERE (t.node, w.day) NOT IN (FROM touched)"""
_OF_SPAN = f"""
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT node, floor(time / {DAY})::BIGINT AS day FROM heartbeat_rows
    WHERE time >= ? AND time < ?"""
PASS_ROWS = 2_000_000  # a window function over all heartbeats would need gigabytes
_DELETE = "DELETE FROM watched_days AS w USING touched AS t WHERE w.node = t.node AND w.day = t.day"
_INSERT = f"""
INSERT INTO watched_days BY NAME
SELECT node, day, sum(hours) AS hours, sum(gpu_busy_hours) AS gpu_busy_hours, count(*) AS beats,
    count(gpu_busy_hours) AS busy_beats, min(time - hours * 3600) AS first, max(time) AS last,
    coalesce(list({{'since': before, 'until': time - hours * 3600}} ORDER BY time)
        FILTER (time - hours * 3600 - before > {SILENT_SECONDS}), []) AS silences, {RAN} AS received
FROM (SELECT b.*, t.day, greatest(t.before, lag(b.time) OVER (PARTITION BY b.node ORDER BY b.time)) AS before
    FROM heartbeat_rows AS b JOIN (
        SELECT t.node, t.day, w.last AS before FROM touched AS t
        ASOF LEFT JOIN watched_days AS w ON t.node = w.node AND w.day < t.day) AS t
    ON b.node = t.node AND floor(b.time / {DAY})::BIGINT = t.day
    WHERE b.time >= ? AND b.time < ? AND b.time <= (SELECT horizon FROM about))
GROUP BY node, day ORDER BY day, node"""


def roll_up(db: duckdb.DuckDBPyConnection) -> None:
    """Make the rows of the heartbeats that were just inserted anew."""
    db.execute(_NEW)
    low, high = db.execute("SELECT min(day), max(day) FROM touched").fetchone() or (None, None)
    if low is not None:
        db.execute(_DELETE)
        db.execute(_INSERT, [low * DAY, (high + 1) * DAY])


def roll_up_all(db: duckdb.DuckDBPyConnection) -> None:
    """Make all rows anew, some days at a time. Takes as long as there are heartbeats, whatever their times are."""
    db.execute("DELETE FROM watched_days")
    days = db.execute(
        f"SELECT floor(time / {DAY})::BIGINT, count(*) FROM heartbeat_rows GROUP BY 1 ORDER BY 1"
    ).fetchall()
    begin, rows = None, 0
    for at, (day, count) in enumerate(days, 1):
        begin, rows = day if begin is None else begin, rows + count
        if rows >= PASS_ROWS or at == len(days):
            span = [begin * DAY, (day + 1) * DAY]
            db.execute(_OF_SPAN, span)
            db.execute(_INSERT, span)
            begin, rows = None, 0
