"""What happened on a node, or to a job, in order: crashes, failed jobs, node faults, reboots, changed facts, silence."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from exporter.core.model import ACTION_WORDS
from exporter.fleet.window import Window

MAX_EVENTS = 10_000  # of a kind
MAX_CHANGES = 20  # facts named at one time; a new image changes hundreds
SILENT_BEATS = 3.0  # usual intervals between two heartbeats, after which a node counts as silent
LEAST_SILENCE = 900.0
OUTCOMES = {  # of a failed job
    "explained": "failed, explained by a signature",
    "unrecognised": "failed, only an unrecognised crash in its logs",
    "signal": "failed, its logs only show that a signal ended it",
    "no_line": "failed, no crash line in its logs",
}
CLEARED_BY = {  # what cleared a node fault
    "gpu_reset": "a GPU reset",
    "driver_reload": "a reload of the driver",
    "reboot": "a reboot",
    "card_swap": "another card",
    "operator": "an operator",
    "driver": "the driver (it asks for nothing)",
}


class Tables(Protocol):
    """A connection to the tables of a history, in DuckDB or SQLite."""

    def execute(self, sql: str, values: Any, /) -> Any:
        """The rows of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event. `kind`: kernel, job, job_end, node_check, boot, facts or silent; `id` is an incident's. `end` is set for
    a span.

    A node check fails from the time a fault opens until the fault is cleared; `note` says what it asks for and what
    cleared it.
    """

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
    note: str = ""

    @property
    def shown(self) -> str:
        """The id by which people know it: the root cause, if known; of a consequence always the signature."""
        return self.what if self.role == "cascade" or self.root_cause in (None, "", "unknown") else self.root_cause


def of_node(db: Tables, node: str, window: Window) -> tuple[Happening, ...]:
    """Everything on one node, by time."""
    events = [*_incidents(db, "node", node, window), *_failed_jobs(db, node, window)]
    events += [*_node_checks(db, node, window), *_boots(db, node, window)]
    events += [*_changes(db, node, window), *_silences(db, node, window)]
    return tuple(sorted(events, key=lambda event: (event.time, event.role == "cascade", event.kind, event.id or "")))


def of_job(db: Tables, job: str, window: Window) -> tuple[Happening, ...]:
    """All incidents of one job, on all its nodes, with those on its nodes that caused them."""
    own = _incidents(db, "job", job, window)
    causes = {incident.caused_by for incident in own if incident.caused_by} - {incident.id for incident in own}
    own += [incident for id_ in sorted(filter(None, causes)) for incident in _incidents(db, "id", id_, window)]
    return tuple(sorted(own, key=lambda incident: (incident.time, incident.role == "cascade", incident.id or "")))


def _incidents(db: Tables, column: str, value: str, window: Window) -> list[Happening]:
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


def _failed_jobs(db: Tables, node: str, window: Window) -> list[Happening]:
    """Failed jobs, as spans from their start; where it is unknown, from the job's first incident on this node."""
    rows = db.execute(
        """SELECT e.time, e.job, e.outcome, e.started, min(i.time) FROM job_ends AS e
        LEFT JOIN incidents AS i ON i.node = e.node AND i.job = e.job AND i.time >= $start AND i.time < e.time
        WHERE e.node = $node AND e.time >= $start AND e.time < $end
        GROUP BY e.time, e.job, e.outcome, e.started ORDER BY e.time, e.job LIMIT $most""",
        {"node": node, "start": window.start, "end": window.end, "most": MAX_EVENTS},
    ).fetchall()
    out = []
    for ended, job, outcome, started, crashed in rows:
        begun = crashed if started is None else started
        ran = "" if started is None else f"started, ran {duration(ended - started)}, "
        out.append(
            Happening(
                time=ended if begun is None else begun, end=None if begun is None else ended, kind="job_end", node=node,
                what=f"job {job} {ran}{OUTCOMES[outcome]}", job=job,
            )
        )  # fmt: skip
    return out


def duration(seconds: float) -> str:
    """`3.2 hours`, `12 minutes`, `40 days`."""
    for unit, size in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}s"
    return f"{seconds:.0f} seconds"


def _node_checks(db: Tables, node: str, window: Window) -> list[Happening]:
    """Faults that were open in the window, as spans."""
    rows = db.execute(
        """SELECT time, signature, root_cause, gpu, job, action, state, cleared_by FROM faults
        WHERE node = ? AND time < ? ORDER BY time, state DESC LIMIT ?""",
        [node, window.end, MAX_EVENTS],
    ).fetchall()
    opened: dict[tuple[object, ...], Happening] = {}
    out = []
    for time, signature, cause, gpu, job, action, state, cleared_by in rows:
        key = signature, cause, gpu, job
        if state == "open":
            opened.setdefault(
                key,
                Happening(
                    time=time, end=window.end, kind="node_check", node=node, what=signature, root_cause=cause, gpu=gpu,
                    verdict="infrastructure", note=f"{ACTION_WORDS.get(action, 'see its cause')}; still open",
                ),
            )  # fmt: skip
        elif fault := opened.pop(key, None):
            by = CLEARED_BY.get(cleared_by, "something else")
            note = f"{fault.note.partition('; ')[0]}; cleared by {by} after {duration(time - fault.time)}"
            out.append(replace(fault, end=time, note=note))
    return [fault for fault in (*out, *opened.values()) if fault.end is not None and fault.end >= window.start]


def _boots(db: Tables, node: str, window: Window) -> list[Happening]:
    rows = db.execute(
        "SELECT time FROM boots WHERE node = ? AND time >= ? AND time < ? ORDER BY time LIMIT ?",
        [node, window.start, window.end, MAX_EVENTS],
    ).fetchall()
    return [Happening(time=time, kind="boot", node=node, what="the node booted") for (time,) in rows]


def _changes(db: Tables, node: str, window: Window) -> list[Happening]:
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
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else {}


def _silences(db: Tables, node: str, window: Window) -> list[Happening]:
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
