"""Records: diagnoses, facts and heartbeats as JSON objects, for the node journal and `scan`.

The only module that knows the field names.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from exporter.core.catalogue.loader import Catalogue
from exporter.core.collectives import collectives_of
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.attribution import attribute
from exporter.core.diagnosis.incidents import gpu_of
from exporter.core.diagnosis.restarts import restart_of
from exporter.core.facts.gpus import Gpu
from exporter.core.model import UNKNOWN, Incident, Moment
from exporter.core.text.redact import redact

# These hold text from logs.
_LOG_FIELDS = frozenset({"path", "text", "captures", "evidence", "same_time", "excerpt", "collectives"})
MAX_SAME_TIME = 4  # kernel lines listed with a crash; they have records of their own
MAX_TEXT = 2048  # characters of the first line; a torch exception with its arguments fits


def incident_record(
    diagnosis: Diagnosis, catalogue: Catalogue, node: str, *, redacted: bool = True, excerpt_lines: int = 10
) -> dict[str, Any]:
    """One `kind: "incident"` record. The journal adds `recorded_fields`."""

    def hide(text: str) -> str:
        return writable(redact(text) if redacted else text)

    incident, first = diagnosis.incident, diagnosis.incident.first
    signature = catalogue.signatures[incident.signature]
    is_open = diagnosis.root_cause == UNKNOWN
    collectives = _hidden(collectives_of(incident.waiting), hide)
    # Facts would decide these.
    undecided = [assessment.cause.id for assessment in diagnosis.considered if is_open and assessment.sufficient]
    return {
        "kind": "incident",
        "id": diagnosis.id,
        "time": rfc3339(first.happened),
        "time_source": first.time_source,
        **({} if first.claimed_time is None else {"claimed_time": rfc3339(first.claimed_time)}),
        "node": node,
        "signature": incident.signature,
        "root_cause": diagnosis.root_cause,
        **({"undecided": undecided} if undecided else {}),
        "severity": diagnosis.severity,
        "vendor": signature.vendor,
        "layer": signature.layer,
        "source": first.source,
        "path": hide(first.path),
        "line": first.line or None,
        "offset": first.offset if first.line else None,
        **({} if first.seq is None else {"record": first.seq}),
        "lines": incident.lines,
        "last_time": rfc3339(incident.last_time if first.is_stamped else _last_seen(incident)),
        "text": hide(first.text[:MAX_TEXT]),
        "captures": {name: hide(value) for name, value in sorted(incident.captures().items())},
        "gpu": gpu_of(incident),
        "job": _job(incident),
        "ranks": sorted(incident.ranks, key=lambda rank: (len(rank), rank)),
        **({"collectives": collectives} if collectives else {}),
        "role": diagnosis.role,
        "caused_by": diagnosis.caused_by,
        "verdict": diagnosis.verdict,
        "domain": diagnosis.domain,
        "restart": restart_of(diagnosis, catalogue),
        "evidence": [{"what": e.subject, "value": hide(e.value), "why": e.reason} for e in diagnosis.evidence],
        "remediation": diagnosis.remediation,
        "references": list(diagnosis.references),
        "same_time": [
            {"signature": other.signature, "gpu": gpu_of(other), "text": hide(other.first.text[:MAX_TEXT])}
            for other in diagnosis.same_time[:MAX_SAME_TIME]
        ],
        "excerpt": [hide(match.text) for match in incident.matches[:excerpt_lines]],
    }


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """A value with all its texts redacted."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_hidden(item, hide) for item in value]
    return {name: _hidden(item, hide) for name, item in value.items()} if isinstance(value, Mapping) else value


_OF_JOB = ("raw_id", "step", "account", "name", "container", "restart")  # written if known


def _job(incident: Incident) -> dict[str, Any] | None:
    """Whose incident it is, how that was found, and which other jobs were named for it."""
    attribution = attribute(incident)
    job = attribution.job
    if job is None:
        return None
    pod_of = job.id.partition("/") if job.kind == "kubernetes" else ("", "", "")
    more = {name: getattr(job, name) for name in _OF_JOB} | {
        "namespace": pod_of[0],
        "pod": pod_of[2],
        "uid": job.pod_uid,
    }
    if not pod_of[2]:
        del more["namespace"], more["pod"]
    if job.raw_id == job.id:
        del more["raw_id"]
    if attribution.conflicts:
        more["conflicts"] = [{"id": writable(other.id), "method": other.method} for other in attribution.conflicts]
    return {
        "id": writable(job.id),
        "user": writable(job.user) if job.user else None,
        "rank": incident.first.rank or job.rank,
        "kind": job.kind,
        "confidence": job.confidence,
        "method": job.method,
        **{name: writable(value) if isinstance(value, str) else value for name, value in more.items() if value},
    }


def location_of(record: Mapping[str, Any]) -> str:
    """The location of an incident's first line, for people: `PATH:LINE`, or the kernel's record number."""
    if record["line"]:
        return f"{record['path']}:{record['line']}"
    return f"{record['path']} record {record['record']}" if "record" in record else str(record["path"])


def recorded_fields(diagnosis: Diagnosis, now: float, *, late_after: float) -> dict[str, Any]:
    """The additional fields of a journal record. `late`: the incident was old when its log was read."""
    first = diagnosis.incident.first
    return {"recorded_time": rfc3339(now), "late": first.read_at - first.happened > late_after}


def _last_seen(incident: Incident) -> float:
    """The latest time at which the last line of an incident without timestamps can have been written."""
    return incident.last_read - (incident.first.read_at - incident.first.happened)


def without_secrets(record: Mapping[str, Any]) -> dict[str, Any]:
    """A redacted record, safe to leave the node, also from a journal with `redact: false`. Idempotent."""

    return {name: _hidden(value, redact) if name in _LOG_FIELDS else value for name, value in record.items()}


def facts_record(facts: Mapping[str, str], gpus: Iterable[Gpu], node: str, now: Moment) -> dict[str, Any]:
    """One `kind: "facts"` record: the node's facts from `now` on, the card at each address, and the boot if known."""
    gpus = tuple(gpus)
    cards = [{"pci": gpu.pci, "unique_id": gpu.unique_id, "serial": gpu.serial} for gpu in gpus]
    every = dict(sorted({**facts, **card_facts(gpus)}.items()))
    boot = {"id": now.boot, "time": rfc3339(now.booted)} if now.boot else None
    return {"kind": "facts", "time": rfc3339(now.time), "node": node, "facts": every, "gpus": cards, "boot": boot}


def card_facts(gpus: Iterable[Gpu]) -> dict[str, str]:
    """The card in each slot as facts `gpu_serial.PCI`; the correlator follows moved cards by them."""
    return {f"gpu_serial.{gpu.pci}": gpu.identity for gpu in gpus if gpu.identity}


def heartbeat_record(node: str, now: float, seconds: float, busy_hours: float | None) -> dict[str, Any]:
    """One `kind: "heartbeat"` record: the time watched since the previous one, and busy GPU hours if known."""
    hours, busy = round(seconds / 3600, 6), None if busy_hours is None else round(busy_hours, 6)
    return {"kind": "heartbeat", "time": rfc3339(now), "node": node, "hours": hours, "gpu_busy_hours": busy}


def line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON, without newline. Control characters, bidirectional ones and U+2028 are escaped."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text if text.isprintable() else json.dumps(record, separators=(",", ":"))


def writable(text: str) -> str:
    """A text without lone surrogates, which Python uses for file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def rfc3339(time: float) -> str:
    """Unix seconds as RFC 3339 in UTC with milliseconds."""
    stamp = datetime.fromtimestamp(round(time, 3), UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
