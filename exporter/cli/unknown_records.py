"""The records of crashes that no signature names: from journals, logs and a fleet service."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from exporter.cli import daemon_client
from exporter.cli import options as flags
from exporter.core.diagnosis.record_schema import IncidentRecord, RefusedRecord, incident_of, parse
from exporter.core.model import UNRECOGNISED
from exporter.core.text.template import error_of, template_of

JOURNALS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
ROWS = 1000  # of one answer
MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_SECONDS = 30.0

Found = Iterator[tuple[float, Mapping[str, Any]]]  # records with their times


def unknown_records(options: argparse.Namespace, oldest: float, unread: list[str]) -> Found:
    """The records that all paths and addresses have since a time. What cannot be read is added to `unread`."""
    logs = []
    for given in options.paths:
        path = Path(given)
        files = sorted(each for each in path.rglob("*.jsonl*") if each.name.endswith(JOURNALS)) if path.is_dir() else []
        if path.is_dir() and (parquet := next(path.rglob("*.parquet"), None)):
            unread.append(f"{parquet}: no Parquet is read here; give the journals that it was made of")
        if given.startswith(("http://", "https://")):
            yield from _of_service(given, options, oldest, unread)
        elif files or path.name.endswith(JOURNALS):
            for file in files or (path,):
                yield from _in_file(file, unread)
        elif not (path.is_dir() and parquet):
            logs.append(given)
    if logs:
        yield from _in_logs(logs, options, unread)


def _in_file(file: Path, unread: list[str]) -> Found:
    from exporter.scan.reader import open_log

    bad = 0
    try:
        with open_log(str(file)) as data, io.BufferedReader(_Raw(data)) as lines:
            for line in lines:
                if UNRECOGNISED.encode() not in line:
                    continue
                try:
                    record = parse(line)
                except RefusedRecord:
                    bad += 1
                    continue
                if isinstance(record, IncidentRecord) and record.signature == UNRECOGNISED and record.role != "context":
                    yield record.time, record.model_dump()
    except OSError as error:
        unread.append(f"{file}: {error.strerror or error}")
    if bad:
        unread.append(f"{file}: {bad} lines are not records; they are left out")


class _Raw(io.RawIOBase):
    """A stream that has only `read`, to be read by lines."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._data.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _in_logs(paths: Sequence[str], options: argparse.Namespace, unread: list[str]) -> Found:
    from exporter.config import packs
    from exporter.core.diagnosis.records import incident_record
    from exporter.scan.plan import Unread, Wanted, expand
    from exporter.scan.run import scan

    catalogue, node = packs.load(flags.pack_folders(options)), flags.node_name()
    found = (each if isinstance(each, Unread) else Wanted(each, "auto") for each in expand(paths))
    summary = scan(
        found, catalogue, node=node, facts={}, report_unread=lambda one: unread.append(f"{one.path}: {one.why}")
    )
    for diagnosis in summary.diagnoses or ():
        if diagnosis.incident.signature == UNRECOGNISED:
            yield diagnosis.incident.first.happened, incident_record(diagnosis, catalogue, node)


def _of_service(url: str, options: argparse.Namespace, oldest: float, unread: list[str]) -> Found:
    """From a fleet service. It lists lines, not templates, and names an incident in place of a file."""
    base = url.rstrip("/")
    offset: int | None = 0
    asked: dict[str, Any] = {"signature": UNRECOGNISED, "sort": "time", "start": f"{oldest:.0f}", "limit": ROWS}
    try:
        while offset is not None:
            query = urlencode({**asked, "offset": offset})
            data = daemon_client.ask(
                f"{base}/api/v1/incidents?{query}", options, timeout=TIMEOUT_SECONDS, most=MAX_ANSWER_BYTES
            )
            answer = json.loads(data)
            offset, asked["end"] = answer["next_offset"], answer["window"]["end"]  # later crashes shift no page
            for row in answer["incidents"]:
                incident = incident_of(row)
                if incident.role != "context":
                    yield incident.time, _as_record(incident, base)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, daemon_client.Unusable) as error:
        unread.append(f"{url}: no list of a fleet service ({getattr(error, 'reason', None) or error})")


def _as_record(incident: IncidentRecord, base: str) -> Mapping[str, Any]:
    template = template_of(error_of(incident.text or ""))
    return {**incident.model_dump(), "captures": {"template": template}, "path": f"{base}/incidents/{incident.id}"}
