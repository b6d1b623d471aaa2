"""What happened on a node, or to a job, in order: crashes, failed jobs, changed facts, silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from exporter.fleet.observations import Window

MAX_EVENTS = 10_000  # of a kind
MAX_CHANGES = 20  # facts named at one time; a new image changes hundreds
SILENT_BEATS = 3.0  # usual intervals between two heartbeats, after which a node counts as silent
LEAST_SILENCE = 900.0
OUTCOMES = {  # of a failed job
    "explained": "failed, explained by a signature",
    "unrecognised": "failed, only an unrecognised crash in its logs",
    "no_line": "failed, no crash line in its logs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event. `kind`: kernel, job, job_end, facts or silent; `id` is an incident's. `end` is set for a span."""

    time: float
    kind: str
    node: str
    what: str  # a signature's id, or a sentence
    end: float | None = None
    id: str | None = None
    root_cause: str | None = None
    verdict: str | None = None
    role: str | None = None
    job: str | None = None
    gpu: str | None = None
    caused_by: str | None = None


def of_node(db: duckdb.DuckDBPyConnection, node: str, window: Window) -> tuple[Happening, ...]:
    """Everything on one node, by time."""
    found = [*_incidents(db, "node", node, window), *_failed_jobs(db, node, window)]
    found += [*_changes(db, node, window), *_silences(db, node, window)]
    return tuple(sorted(found, key=lambda each: (each.time, each.kind, each.id or "")))


def of_job(db: duckdb.DuckDBPyConnection, job: str, window: Window) -> tuple[Happening, ...]:
    """All incidents of one job, on all its nodes, with those on its nodes that caused them."""
    own = _incidents(db, "job", job, window)
    causes = {each.caused_by for each in own if each.caused_by} - {each.id for each in own}
    own += [each for id_ in sorted(filter(None, causes)) for each in _incidents(db, "id", id_, window)]
    return tuple(sorted(own, key=lambda each: (each.time, each.role == "cascade", each.id or "")))


def _incidents(db: duckdb.DuckDBPyConnection, column: str, value: str, window: Window) -> list[Happening]:
    queries = {
        key: f"""SELECT time, source, node, signature, id, root_cause, verdict, role, job, gpu, caused_by FROM incidents
        WHERE {key} = ? AND time >= ? AND time < ? ORDER BY time LIMIT ?"""
        for key in ("node", "job", "id")
    }
    rows = db.execute(queries[column], [value, window.start, window.end, MAX_EVENTS]).fetchall()
    return [
        Happening(
            time=time, kind="kernel" if source == "kernel" else "job", node=node, what=signature, id=id_,
            root_cause=cause, verdict=verdict, role=role, job=job, gpu=gpu, caused_by=caused_by,
        )
        for time, source, node, signature, id_, cause, verdict, role, job, gpu, caused_by in rows
    ]  # fmt: skip


def _failed_jobs(db: duckdb.DuckDBPyConnection, node: str, window: Window) -> list[Happening]:
    """Ends of failed jobs, as spans from the job's first incident on this node: when jobs start is not recorded."""
    rows = db.execute(
        """SELECT e.time, e.job, e.outcome, min(i.time) FROM job_ends AS e
        LEFT JOIN incidents AS i ON i.node = e.node AND i.job = e.job AND i.time >= $start AND i.time < e.time
        WHERE e.node = $node AND e.time >= $start AND e.time < $end
        GROUP BY e.time, e.job, e.outcome ORDER BY e.time, e.job LIMIT $most""",
        {"node": node, "start": window.start, "end": window.end, "most": MAX_EVENTS},
    ).fetchall()
    return [
        Happening(
            time=ended if begun is None else begun, end=None if begun is None else ended, kind="job_end", node=node,
            what=f"job {job} {OUTCOMES[outcome]}", job=job,
        )
        for ended, job, outcome, begun in rows
    ]  # fmt: skip


def _changes(db: duckdb.DuckDBPyConnection, node: str, window: Window) -> list[Happening]:
    rows = db.execute(
        "SELECT time, facts FROM facts WHERE node = ? AND time < ? ORDER BY time LIMIT ?",
        [node, window.end, MAX_EVENTS],
    ).fetchall()
    out, before = [], None
    for time, text in rows:
        facts = _facts(text)
        if before is not None and time >= window.start and (changes := changed_facts(before, facts)):
            more = f" and {len(changes) - MAX_CHANGES} more" if len(changes) > MAX_CHANGES else ""
            out.append(Happening(time=time, kind="facts", node=node, what="; ".join(changes[:MAX_CHANGES]) + more))
        before = facts
    return out


def changed_facts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """`driver_version 580.95 → 580.105`, one for each fact that differs, by name."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [f"{name} {before.get(name, 'unknown')} → {after.get(name, 'unknown')}" for name in names]


def _facts(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _silences(db: duckdb.DuckDBPyConnection, node: str, window: Window) -> list[Happening]:
    """Spans without heartbeats between two of them, and the one up to the window's end."""
    rows = db.execute(
        "SELECT time, hours FROM heartbeats WHERE node = ? AND time <= ? AND time >= ? ORDER BY time",
        [node, window.end, window.start - 86400.0],
    ).fetchall()
    if not rows:
        return []
    usual = sorted(hours for _, hours in rows)[len(rows) // 2] * 3600
    least = max(SILENT_BEATS * usual, LEAST_SILENCE)
    ends = [*((time, time - hours * 3600) for time, hours in rows[1:]), (window.end, window.end)]
    out = []
    for (last, _), (_, begins) in zip(rows, ends, strict=True):
        if begins - last > least and begins > window.start:
            out.append(Happening(time=last, end=begins, kind="silent", node=node, what="no heartbeat"))
    return out
