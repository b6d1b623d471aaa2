"""The queries of a review: from the tables `incidents`, `facts` and `watched_days` to plain rows."""

import json
from collections.abc import Mapping, Sequence

import duckdb
import numpy as np

from exporter.core.decoding.jobs import party
from exporter.core.diagnosis.unknown_clusters import UnknownClusters
from exporter.core.model import UNRECOGNISED
from exporter.fleet.history.schema import IS_ROOT, NODES, ROOTS, fact_pointer
from exporter.fleet.history.watched import IN_WINDOW, SHARE
from exporter.fleet.observations import NOT_KNOWN, FactRows, Incidents, Window
from exporter.fleet.review.lost_hours import LostHours
from exporter.fleet.review.review_contents import Deaths, OverTime, SilentNode, Totals, UnrecognisedCrash
from exporter.fleet.statistics.origins import RACKS, neighbourhoods, origins

DAY = 86400.0
SILENT_SECONDS = DAY  # without a heartbeat: longer than a reboot or a firmware update takes
VERDICTS = ("infrastructure", "workload", "unclear")
DEATH_BEFORE, DEATH_AFTER = DAY, 600.0  # seconds around a job's end in which an incident of it explains its death
MAX_UNRECOGNISED = 20_000  # records read for clusters; what is beyond is the oldest
MAX_BINS = 45


def totals(db: duckdb.DuckDBPyConnection, window: Window, exposure: str, lost: LostHours | None) -> Totals:
    count, nodes, jobs, unexplained = _row(
        db,
        f"WITH {ROOTS} SELECT count(*), count(DISTINCT node), count(DISTINCT job), "
        "count(*) FILTER (unexplained) FROM roots",
        window,
    )
    return Totals(
        incidents=count, origins=_origins(db, window), nodes_crashed=nodes, jobs=jobs, without_cause=unexplained,
        lost=lost, hours=hours(db, window, exposure),
    )  # fmt: skip


def deaths(db: duckdb.DuckDBPyConnection, window: Window) -> Deaths | None:
    """The failed jobs of a window by what explains them, on any node: another one may have read the job's log."""
    rows = db.execute(
        """WITH ends AS (SELECT job, max(time) AS time, min(CASE outcome WHEN 'explained' THEN 0 WHEN 'unrecognised' THEN 1
            ELSE 2 END) AS best FROM job_ends WHERE time >= $start AND time < $end GROUP BY job),
        seen AS (SELECT e.job, min(CASE WHEN i.signature = $unrecognised THEN 1 ELSE 0 END) AS best
            FROM ends AS e JOIN incidents AS i ON i.job = e.job AND i.time BETWEEN e.time - $before AND e.time + $after
            WHERE coalesce(i.severity, '') != 'info' GROUP BY e.job)
        SELECT least(ends.best, coalesce(seen.best, 2)), count(*) FROM ends LEFT JOIN seen USING (job) GROUP BY 1""",
        {
            "start": window.start, "end": window.end, "unrecognised": UNRECOGNISED,
            "before": DEATH_BEFORE, "after": DEATH_AFTER,
        },
    ).fetchall()  # fmt: skip
    counts = dict(rows)
    counted = Deaths(explained=counts.get(0, 0), unrecognised=counts.get(1, 0), no_line=counts.get(2, 0))
    return counted if rows else None


def causes(
    db: duckdb.DuckDBPyConnection, window: Window, windows: int
) -> list[tuple[str, str, str, str, int, int, list[int]]]:
    """Kind, id, verdict, domain, nodes and jobs of this window, and the counts of `windows` windows, this one last."""
    span = window.end - window.start
    rows = db.execute(
        f"""WITH {ROOTS}, binned AS (SELECT *, least(floor((time - $start) / $span), $last)::INTEGER AS bin FROM roots)
        SELECT kind, key, coalesce(mode(fault) FILTER (bin = $last), mode(fault)), mode(domain),
        count(DISTINCT node) FILTER (bin = $last), count(DISTINCT job) FILTER (bin = $last), list(bin)
        FROM binned GROUP BY kind, key""",
        {"start": window.end - windows * span, "end": window.end, "span": span, "last": windows - 1},
    ).fetchall()
    causes = []
    for *fields, bins in rows:
        causes.append((*fields, np.bincount(bins, minlength=windows).tolist()))
    return sorted(causes, key=lambda row: (-row[6][-1], -row[4], row[0], row[1]))


def over_time(db: duckdb.DuckDBPyConnection, window: Window, oldest: float) -> OverTime:
    """Root incidents by day and verdict, from up to five windows earlier on."""
    span = window.end - window.start
    begin = max(window.end - 6 * span, min(oldest, window.start))
    bin_ = max(DAY if span > 2 * DAY else span / 24, (window.end - begin) / MAX_BINS)
    bin_ = np.ceil(bin_ / DAY) * DAY if bin_ > DAY else bin_
    count = max(int(np.ceil((window.end - begin) / bin_ - 0.1)), 1)
    start = window.end - count * bin_
    rows = db.execute(
        f"WITH {ROOTS} SELECT fault, least(floor((time - $start) / $bin), $last)::INTEGER, count(*) FROM roots GROUP BY 1, 2",
        {"start": start, "end": window.end, "bin": bin_, "last": count - 1},
    ).fetchall()
    by = {verdict: [0] * count for verdict in VERDICTS}
    for fault, at, n in rows:
        by[fault][at] = n
    return OverTime(
        edges=tuple(float(start + i * bin_) for i in range(count + 1)),
        by_verdict=tuple((verdict, tuple(by[verdict])) for verdict in VERDICTS),
    )


def first_seen(db: duckdb.DuckDBPyConnection, window: Window) -> list[tuple[str, str, int, int, float, float | None]]:
    """Of each signature in the window: its verdict, count and nodes; when first in the window, and when last before it."""
    return db.execute(
        f"""WITH {ROOTS}, last AS (SELECT signature, max(time) AS before FROM incidents WHERE time < $start GROUP BY signature)
        SELECT signature, mode(fault), count(*), count(DISTINCT node), min(time), any_value(last.before)
        FROM roots LEFT JOIN last USING (signature) GROUP BY signature ORDER BY 3 DESC, 1""",
        {"start": window.start, "end": window.end},
    ).fetchall()


def unrecognised(db: duckdb.DuckDBPyConnection, window: Window) -> tuple[UnrecognisedCrash, ...]:
    """Clusters of unrecognised crashes, those on most nodes first. New: not seen before the window."""
    rows = db.execute(
        """SELECT time, record FROM incidents WHERE signature = ? AND time < ? AND coalesce(role, '') != 'context'
        ORDER BY time DESC LIMIT ?""",
        [UNRECOGNISED, window.end, MAX_UNRECOGNISED],
    ).fetchall()
    inside, earlier = UnknownClusters(), UnknownClusters()
    for time, text in rows:
        try:
            record = json.loads(text or "{}")
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            (inside if time >= window.start else earlier).add(record, time)
    seen = {(c.kind, c.type, c.template) for c in earlier.clusters()}
    return tuple(
        UnrecognisedCrash(
            template=c.template, count=c.count, nodes=len(c.nodes), jobs=len(c.jobs), first=c.first, last=c.last,
            is_new=bool(seen) and (c.kind, c.type, c.template) not in seen, path=c.path, line=c.line,
            examples=tuple(c.examples),
        )
        for c in inside.clusters()
    )  # fmt: skip


def nodes_watched(db: duckdb.DuckDBPyConnection, window: Window) -> int:
    return int(_row(db, f"SELECT count(*) FROM ({NODES})", window)[0])


def silent_nodes(db: duckdb.DuckDBPyConnection, window: Window) -> tuple[SilentNode, ...]:
    """Nodes that sent heartbeats in this window or the one before, and none in its last day; the longest silent first."""
    rows = db.execute(
        f"""SELECT node, max(least(last, $end)) AS seen FROM watched_days WHERE {IN_WINDOW} GROUP BY node
        HAVING seen < $silent ORDER BY seen, node""",
        {"start": 2 * window.start - window.end, "end": window.end, "silent": window.end - SILENT_SECONDS},
    ).fetchall()
    return tuple(SilentNode(node=node, last_seen=last) for node, last in rows)


OLDEST = "coalesce((SELECT min(first) FROM watched_days), (SELECT min(time) FROM incidents))"
REACH = 0.1  # of the window before may be missing, as the correlator has it


def oldest(db: duckdb.DuckDBPyConnection) -> float | None:
    """Since when anything was watched."""
    row = db.execute(f"SELECT {OLDEST}").fetchone()
    return float(row[0]) if row and row[0] is not None else None


def exposure_of(db: duckdb.DuckDBPyConnection, window: Window) -> str:
    """`gpu_busy_hours` where every heartbeat has them, else `observed_hours`; `assumed_hours` without heartbeats."""
    count, busy = _row(db, f"SELECT sum(beats), sum(busy_beats) FROM watched_days WHERE {IN_WINDOW}", window)
    return "assumed_hours" if not count else "gpu_busy_hours" if busy == count else "observed_hours"


def hours(db: duckdb.DuckDBPyConnection, window: Window, exposure: str) -> float:
    """Hours of exposure in a window: of nodes, or of GPUs if they are GPU-busy hours."""
    if exposure == "assumed_hours":
        return window.hours
    column = "gpu_busy_hours" if exposure == "gpu_busy_hours" else "hours"
    total = _row(db, f"SELECT sum({column} * {SHARE}) FROM watched_days WHERE {IN_WINDOW}", window)[0]
    return float(total or 0.0)


def _origins(db: duckdb.DuckDBPyConnection, window: Window) -> int:
    rows = db.execute(
        f"WITH {ROOTS} SELECT node, time, signature, job, id FROM roots ORDER BY time, id, hash(node)",
        {"start": window.start, "end": window.end},
    ).fetchall()
    if not rows:
        return 0
    earlier = window.start - (window.end - window.start)  # the correlator sees the window before too
    nodes = [
        node
        for (node,) in db.execute(
            f"""SELECT node FROM incidents WHERE time >= $start AND time < $end AND {IS_ROOT}
            UNION SELECT node FROM watched_days WHERE {IN_WINDOW}
            UNION SELECT node FROM facts WHERE time < $end ORDER BY node""",
            {"start": earlier, "end": window.end},
        ).fetchall()
    ]
    number = {node: i for i, node in enumerate(nodes)}
    signature = np.unique([row[2] for row in rows], return_inverse=True)[1]
    parties = [None if row[3] is None else party(row[3]) for row in rows]
    jobs = {job: i for i, job in enumerate(sorted({job for job in parties if job is not None}))}
    empty = np.full(len(rows), NOT_KNOWN)
    incidents = Incidents(
        node=np.array([number[row[0]] for row in rows], dtype=np.int64), user=empty, signature=signature,
        time=np.array([row[1] for row in rows], dtype=float),
        job=np.array([NOT_KNOWN if job is None else jobs[job] for job in parties], dtype=np.int64),
        id=np.array([row[4] or "" for row in rows], dtype=object), gpu=np.full(len(rows), "", dtype=object),
    )  # fmt: skip
    return len(origins(incidents, neighbourhoods(nodes, _rack_facts(db, number, window.end))).node)


def _rack_facts(db: duckdb.DuckDBPyConnection, number: Mapping[str, int], end: float) -> FactRows:
    """The facts of nodes' racks, by the first name of a rack that any node has."""
    rows: list[tuple[str, float, str]] = []
    name = ""
    for name in RACKS:
        rows = db.execute(
            """SELECT node, time, json_extract_string(facts, $fact) AS rack FROM facts
            WHERE time < $end AND rack IS NOT NULL ORDER BY time""",
            {"end": end, "fact": fact_pointer(name)},
        ).fetchall()
        if rows:
            break
    values, codes = np.unique([rack for *_, rack in rows], return_inverse=True)
    return FactRows(
        names=(name,) if rows else (), values=(tuple(map(str, values)),) if rows else (),
        node=np.array([number[node] for node, *_ in rows], dtype=np.int64),
        since=np.array([time for _, time, _ in rows], dtype=float),
        codes=codes.astype(np.int32).reshape(len(rows), 1 if rows else 0),
    )  # fmt: skip


def _row(db: duckdb.DuckDBPyConnection, query: str, window: Window) -> Sequence[int]:
    row = db.execute(query, {"start": window.start, "end": window.end}).fetchone()
    assert row is not None
    return row
