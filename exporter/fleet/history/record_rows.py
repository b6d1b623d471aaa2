"""What the tables of a history hold of a record: one rule for DuckDB, and for SQLite where DuckDB is missing.

Knows no database: a table is a name with columns, a row is their values.
"""

import hashlib
from collections.abc import Iterator

from pydantic_core import to_json

from exporter.core.diagnosis.record_schema import (
    FactsRecord,
    FaultRecord,
    HeartbeatRecord,
    IncidentRecord,
    JobEndRecord,
    Record,
    as_line,
)
from exporter.core.model import DOMAIN_WORDS, RESTART_WORDS

MAX_RECORD_CHARS = 1 << 20  # a longer one keeps its columns only

Row = tuple[object, ...]

COLUMNS = {
    "incidents": (
        "time", "node", "id", "signature", "root_cause", "vendor", "severity", "role", "verdict", "domain", "restart", "source",
        "path", "line", "gpu", "job", "job_user", "account", "job_name", "image", "namespace", "pod", "caused_by", "text",
        "record",
    ),
    "facts": ("time", "node", "facts"),
    "heartbeats": ("time", "node", "hours", "gpu_busy_hours"),
    "job_ends": ("time", "node", "job", "outcome", "started"),
    "faults": ("time", "node", "signature", "root_cause", "gpu", "job", "action", "state", "cleared_by"),
    "boots": ("time", "node", "boot"),
}  # fmt: skip


def rows_of(record: Record) -> Iterator[tuple[str, Row]]:
    """The rows of a record, each with its table. Facts name the boot, which is a row of its own."""
    time, node = record.time, record.node
    match record:
        case HeartbeatRecord() as one:
            yield "heartbeats", (time, node, one.hours, one.gpu_busy_hours)
        case FactsRecord() as one:
            yield "facts", (time, node, to_json(one.facts).decode())
            if one.boot and one.boot.id and one.boot.time <= time:
                yield "boots", (one.boot.time, node, one.boot.id)
        case IncidentRecord() as one:
            yield "incidents", _incident(one)
        case JobEndRecord() as one:
            started = one.started if one.started is not None and one.started <= time else None
            yield "job_ends", (time, node, one.job.id, one.outcome, started)
        case FaultRecord() as one:
            cleared_by = one.cleared.kind if one.cleared else None
            cause = one.root_cause or "unknown"
            yield (
                "faults",
                (time, node, one.signature, cause, one.gpu, one.job or None, one.action, one.state, cleared_by),
            )


def _incident(one: IncidentRecord) -> Row:
    role = one.role if one.role in ("cascade", "context") else "root"
    verdict = one.verdict if one.verdict in ("infrastructure", "workload") else "unclear"
    domain = one.domain if one.domain in DOMAIN_WORDS else "unknown"
    restart = one.restart if one.restart in RESTART_WORDS else "unknown"
    job: Row = (None,) * 7
    if one.job:
        own = one.job
        job = own.id or None, own.user, own.account, own.name, own.image, own.namespace, own.pod
    text = as_line(one).decode().strip()
    return (
        one.time, one.node, _id(one), one.signature, one.root_cause or "unknown", one.vendor, one.severity, role, verdict,
        domain, restart, one.source, one.path, one.line, one.gpu, *job, one.caused_by, one.text,
        text if len(text) <= MAX_RECORD_CHARS else "{}",
    )  # fmt: skip


def _id(one: IncidentRecord) -> str:
    """The record's own, or one of its fields. `@` is ours: it ends an id that two nodes claim."""
    if one.id and "@" not in one.id:
        return one.id
    fields = (one.id, one.node, one.time, one.signature, one.job.id if one.job else None)
    text = "|".join(str(value) for value in fields if value is not None)
    return f"x{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}"
