"""How good alerts were: which of those that fired had a crash behind them, and how long after it they fired.

An alert is judged by its labels: at least one incident of its root cause, signature, node or place, from the span that its
rule looks at until the alert ended. Alerts about the daemons or about trends are counted, not judged.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from statistics import median

import duckdb

from exporter.fleet.input.prometheus_alerts import Firing
from exporter.fleet.review.review_contents import AlertQuality, AlertRow
from exporter.net.url import is_same_node

HOUR = 3600.0
GRACE = 900.0  # seconds from a crash to an alert of it: settling, scrape and evaluation
REACH = {  # how far back the rules of deploy/prometheus/rules.yml look, with `for`
    "GpufaultCrashSpike": HOUR,
    "GpufaultCrashSpikeOfAllCauses": HOUR,
    "GpufaultPlaceSpike": HOUR,
    "GpufaultWorkloadSpike": HOUR,
    "GpufaultFatalSignature": HOUR,
    "GpufaultFatalNodes": 24 * HOUR,
    "GpufaultFatalNode": HOUR,
    "GpufaultNodeFault": 14 * 24 * HOUR,  # a fault that is still open fires again after an outage of its daemon
    "GpufaultNodeStorm": HOUR,
    "GpufaultCrashRateHigh": 25 * HOUR,
    "GpufaultCrashRateRising": 7 * 24 * HOUR + HOUR,
}
KINDS = {"critical": "page", "warning": "ticket"}  # by severity; of others `note`
ORDER = ("page", "ticket", "note")
ANY_CAUSE = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """An alert and the first crash behind it; `is_justified` is None where nobody can tell."""

    firing: Firing
    is_justified: bool | None
    first_crash: float | None = None


def alert_quality(db: duckdb.DuckDBPyConnection, firings: Sequence[Firing], *, missing: str = "") -> AlertQuality:
    """Count and judge alerts. missing: what of them is not known."""
    judged = _judge(db, [alert for alert in firings if not alert.began_before])
    names = {(_kind(alert), alert.name) for alert in firings}
    rows = [
        _row(kind, name, [alert for alert in judged if (_kind(alert.firing), alert.firing.name) == (kind, name)],
             sum((_kind(alert), alert.name) == (kind, name) for alert in firings if alert.began_before))
        for kind, name in names
    ]  # fmt: skip
    pages = [alert for alert in judged if _kind(alert.firing) == "page"]
    return AlertQuality(
        pages=len(pages), tickets=sum(_kind(alert.firing) == "ticket" for alert in judged),
        notes=sum(_kind(alert.firing) == "note" for alert in judged),
        pages_justified=sum(alert.is_justified is True for alert in pages),
        pages_not_justified=sum(alert.is_justified is False for alert in pages),
        seconds_to_page=_median(_delays(pages)),
        rows=tuple(sorted(rows, key=lambda row: (ORDER.index(row.kind), -row.fired, row.name))), missing=missing,
    )  # fmt: skip


def _row(kind: str, name: str, judged: Sequence[_Judged], from_before: int) -> AlertRow:
    lengths = [alert.firing.end - alert.firing.start for alert in judged]
    return AlertRow(
        name=name, kind=kind, fired=len(judged), justified=sum(alert.is_justified is True for alert in judged),
        not_justified=sum(alert.is_justified is False for alert in judged),
        not_judged=sum(alert.is_justified is None for alert in judged), from_before=from_before,
        firing_seconds=sum(lengths), median_seconds=_median(lengths), seconds_from_crash=_median(_delays(judged)),
    )  # fmt: skip


def _delays(judged: Iterable[_Judged]) -> list[float]:
    return [max(alert.firing.start - alert.first_crash, 0.0) for alert in judged if alert.first_crash is not None]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _kind(firing: Firing) -> str:
    return KINDS.get(firing.severity, "note")


def _judge(db: duckdb.DuckDBPyConnection, firings: Sequence[Firing]) -> list[_Judged]:
    """Each alert with what the journals have for it."""
    nodes, has_causes = _nodes(db), _has_causes(db)
    db.execute(
        "CREATE OR REPLACE TEMP TABLE fired (row INTEGER, first DOUBLE, last DOUBLE, root_cause VARCHAR, signature VARCHAR);"
        "CREATE OR REPLACE TEMP TABLE fired_nodes (row INTEGER, node VARCHAR)"
    )
    judged, limited = set(), []
    for row, firing in enumerate(firings):
        cause, signature = firing.labels.get("root_cause"), firing.labels.get("signature")
        cause = None if cause == ANY_CAUSE else cause
        on = _nodes_of(db, firing, nodes)
        if firing.name not in REACH or (cause and not has_causes) or (on is not None and not on):
            continue
        first = firing.start - REACH[firing.name] - GRACE
        db.execute("INSERT INTO fired VALUES (?, ?, ?, ?, ?)", [row, first, firing.end, cause, signature])
        limited += [[row, node] for node in on or ()]
        judged.add(row)
    if limited:
        db.executemany("INSERT INTO fired_nodes VALUES (?, ?)", limited)
    crashes = dict(
        db.execute(
            """SELECT f.row, min(i.time) FROM fired AS f JOIN incidents AS i ON i.time BETWEEN f.first AND f.last
            AND coalesce(i.role, 'root') = 'root' AND (f.root_cause IS NULL OR i.root_cause = f.root_cause)
            AND (f.signature IS NULL OR i.signature = f.signature)
            WHERE f.row NOT IN (SELECT row FROM fired_nodes) OR (f.row, i.node) IN (SELECT (row, node) FROM fired_nodes)
            GROUP BY f.row"""
        ).fetchall()
    )
    return [
        _Judged(firing=firing, is_justified=row in crashes if row in judged else None, first_crash=crashes.get(row))
        for row, firing in enumerate(firings)
    ]


def _nodes_of(db: duckdb.DuckDBPyConnection, firing: Firing, nodes: Set[str]) -> list[str] | None:
    """The nodes that an alert is about; None: any."""
    labels = firing.labels
    if name := labels.get("node") or labels.get("instance"):
        host = name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name
        exact = {name, host} & nodes
        return sorted(exact) if exact else [node for node in sorted(nodes) if is_same_node(node, host)]
    if location := labels.get("place"):
        path = "/" + location.replace("~", "~0").replace("/", "~1")
        rows = db.execute(
            """SELECT node FROM (SELECT node, max_by(facts, time) AS facts FROM facts WHERE time <= ? GROUP BY node)
            WHERE json_extract_string(facts, ?) = ?""",
            [firing.end, path, labels.get("value", "")],
        ).fetchall()
        return [node for (node,) in rows]
    return None


def _nodes(db: duckdb.DuckDBPyConnection) -> set[str]:
    rows = db.execute("SELECT node FROM incidents UNION SELECT node FROM facts UNION SELECT node FROM watched_days")
    return {node for (node,) in rows.fetchall()}


def _has_causes(db: duckdb.DuckDBPyConnection) -> bool:
    """Whether incidents have root causes; those made from counts of a Prometheus have none."""
    row = db.execute("SELECT count(*) = 0 OR count(root_cause) > 0 FROM incidents").fetchone()
    return bool(row and row[0])
