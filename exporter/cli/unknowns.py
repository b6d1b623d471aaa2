"""`gpufault unknowns`: clusters of crashes that no signature names."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode

from exporter.cli import daemon_client
from exporter.cli import options as flags
from exporter.cli.options import seconds
from exporter.core.diagnosis.record_schema import IncidentRecord, RefusedRecord, incident_of, parse
from exporter.core.model import UNRECOGNISED
from exporter.core.text.phrases import counted, printable
from exporter.core.text.template import error_of, template_of

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import Catalogue
    from exporter.core.catalogue.pack_types import Signature
    from exporter.core.diagnosis.unknown_clusters import Cluster, UnknownClusters


DESCRIPTION = (
    "Reads node journals, the output of `gpufault scan --format json`, logs, or a fleet service, and lists the crashes in "
    "them that no signature names, also deaths that only a launcher or a shell reports: like ones once, those on most nodes "
    "first, with an example and the command that begins a signature. Exit code 1 if any is found, 0 if none is found, 3 if "
    "nothing could be read."
)
MAX_SHOWN = 50  # clusters in text; JSON has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH|URL",
        help="a folder of journals, a file of records (.jsonl, also .gz and .zst), a log, the URL of a fleet service or a node "
        "daemon, or - for stdin",
    )
    parser.add_argument("--window", metavar="7d", help="only crashes of the last seven days, or another duration")
    parser.add_argument("--format", default="text", choices=("text", "json"), help="default: text")
    flags.add_catalogue(parser)
    daemon_client.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.core.diagnosis.unknown_clusters import UnknownClusters

    window = seconds("--window", options.window) if options.window else None
    coverage = Coverage()
    oldest = time.time() - window if window else 0.0
    clusters = UnknownClusters()
    seen: set[str] = set()  # a record is written again when later lines change it
    for at, record in unknown_records(options, oldest, coverage):
        id_ = str(record.get("id", ""))
        if at >= oldest and (not id_ or id_ not in seen):
            seen.add(id_)
            clusters.add(record, at)
    if not (coverage.logs or coverage.unread):
        coverage.unread.append("no log or journal found")
    for message in coverage.unread:
        print(printable(f"gpufault unknowns: {message}"), file=sys.stderr)
    if coverage.unread and not clusters.clusters():
        return 3
    if options.format == "json":
        print(json.dumps(_as_json(clusters), ensure_ascii=False))
    else:
        print("\n".join(map(printable, _as_text(clusters, coverage))))
    return 1 if clusters.clusters() else 0


def _as_json(clusters: UnknownClusters) -> dict[str, Any]:
    return {
        "clusters": [
            {
                "kind": cluster.kind,
                "type": cluster.type,
                "template": cluster.template,
                "count": cluster.count,
                "nodes": sorted(cluster.nodes),
                "jobs": sorted(cluster.jobs),
                "first": _utc(cluster.first),
                "last": _utc(cluster.last),
                "new": clusters.is_new(cluster),
                "example": {"text": cluster.examples[0], "path": cluster.path, "line": cluster.line},
                "begin_signature": None if cluster.kind == REPORT else _begin(cluster),
            }
            for cluster in clusters.clusters()
        ],
        "unclustered": clusters.unclustered,
    }


def _as_text(clusters: UnknownClusters, coverage: Coverage) -> list[str]:
    listed = clusters.clusters()
    if not listed:
        return ["Every crash has a signature." if coverage.has_crashes else "No crash found."]
    lines = []
    for number, cluster in enumerate(listed[:MAX_SHOWN], 1):
        jobs = f", {counted(len(cluster.jobs), 'job')}" if cluster.jobs else ""
        where = f"{counted(cluster.count, 'crash', 'crashes')} on {counted(len(cluster.nodes), 'node')}{jobs}"
        new = "; new" if clusters.is_new(cluster) else ""
        lines += [
            f"{number}. {cluster.template}",
            f"   {where}; first {_utc(cluster.first)}, last {_utc(cluster.last)}{new}",
            f"   example: {cluster.path}{f':{cluster.line}' if cluster.line else ''}",
            "   only this report of its end is known; read the log above it, or send its standard error there"
            if cluster.kind == REPORT
            else f"   begin a signature: {_begin(cluster)}",
        ]
    if len(listed) > MAX_SHOWN:
        lines.append(f"and {counted(len(listed) - MAX_SHOWN, 'more cluster')}; --format json lists them")
    if clusters.unclustered:
        lines.append(f"and {counted(clusters.unclustered, 'crash', 'crashes')} with other templates")
    return lines


def _begin(cluster: Cluster) -> str:
    source = " --source kernel" if cluster.source == "kernel" else ""
    return f"gpufault signatures new{source} {shlex.join(cluster.examples)}"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


JOURNALS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
ROWS = 1000  # of one answer
TIMEOUT_SECONDS = 30.0
WITHOUT_REASON = ("crash_without_message", "killed_without_message", "named_process_died")  # causes that know no more
REPORT = "report"  # the kind of a death that only a launcher or a shell reports

TimedRecords = Iterator[tuple[float, Mapping[str, Any]]]  # records with their times


@dataclass(slots=True)
class Coverage:
    """What was looked at: whether it holds any crash, and what could not be read."""

    logs: int = 0
    has_crashes: bool = False
    unread: list[str] = field(default_factory=list)


def unknown_records(options: argparse.Namespace, oldest: float, coverage: Coverage) -> TimedRecords:
    """The records of unknown crashes that all paths and addresses have since a time."""
    from exporter.config import packs

    catalogue = packs.load(flags.pack_folders(options))
    reports = frozenset(name for name, signature in catalogue.signatures.items() if _only_reports(signature, catalogue))
    logs = []
    for given in options.paths:
        path = Path(given)
        files = sorted(file for file in path.rglob("*.jsonl*") if file.name.endswith(JOURNALS)) if path.is_dir() else []
        if path.is_dir() and (parquet := next(path.rglob("*.parquet"), None)):
            coverage.unread.append(f"{parquet}: Parquet is not supported here; use the journals that it was made from")
        if given.startswith(("http://", "https://")):
            yield from _of_address(given, options, oldest, reports, coverage)
        elif files or path.name.endswith(JOURNALS) or _begins_with_a_record(given):
            for file in files or (path,):
                yield from _in_file(file, reports, coverage)
        elif not (path.is_dir() and parquet):
            logs.append(given)
    if logs:
        yield from _in_logs(logs, catalogue, reports, coverage)


def _begins_with_a_record(path: str) -> bool:
    """Whether a file of any name, or stdin, is the output of `gpufault scan --format json` or a journal."""
    from exporter.scan.reader import head

    try:
        return re.match(rb'\{"kind": ?"(?:incident|facts|heartbeat|job_end|fault)"', head(path, 32)) is not None
    except OSError:
        return False


def _only_reports(signature: Signature, catalogue: Catalogue) -> bool:
    """Whether it reports the death of a process without the reason, as launchers and shells do."""
    if signature.role != "cascade" or (signature.death and signature.death.kind == "scheduler"):
        return False
    return signature.death is not None or any(cause.id in WITHOUT_REASON for cause in catalogue.causes_of(signature.id))


def _is_unknown(record: Mapping[str, Any], reports: frozenset[str]) -> bool:
    """Whether neither its signature nor another incident says what went wrong."""
    if record["signature"] == UNRECOGNISED:
        return bool(record["role"] != "context")
    return record["signature"] in reports and record["role"] == "root" and record["verdict"] in (None, "unclear")


def _rows(record: Mapping[str, Any], at: float, reports: frozenset[str]) -> TimedRecords:
    """The record, with what it is clustered by; nothing if it is not of an unknown crash."""
    if not _is_unknown(record, reports):
        return
    captures = record["captures"] if record["signature"] == UNRECOGNISED else {"kind": REPORT}
    if not captures.get("template"):
        captures = {**captures, "template": template_of(error_of(record["text"] or ""))}
    yield at, {**record, "captures": captures}


def _in_file(file: Path, reports: frozenset[str], coverage: Coverage) -> TimedRecords:
    from exporter.scan.reader import ByLines, open_log

    bad = 0
    wanted = re.compile("|".join(map(re.escape, (UNRECOGNISED, *reports))).encode())
    try:
        with open_log(str(file)) as data, io.BufferedReader(ByLines(data)) as lines:
            coverage.logs += 1
            for line in lines:
                coverage.has_crashes = coverage.has_crashes or b'"root"' in line
                if not wanted.search(line):
                    continue
                try:
                    record = parse(line)
                except RefusedRecord:
                    bad += 1
                    continue
                if isinstance(record, IncidentRecord):
                    yield from _rows(record.model_dump(), record.time, reports)
    except OSError as error:
        coverage.unread.append(f"{file}: {error.strerror or error}")
    if bad:
        coverage.unread.append(f"{file}: {counted(bad, 'line is not a record', 'lines are not records')}; skipped")


def _in_logs(paths: Sequence[str], catalogue: Catalogue, reports: frozenset[str], coverage: Coverage) -> TimedRecords:
    from exporter.core.diagnosis.records import incident_record, writable
    from exporter.core.text.redact import hide_secrets
    from exporter.scan.plan import Unread, Wanted, expand
    from exporter.scan.run import scan

    node = flags.node_name()
    logs = (path if isinstance(path, Unread) else Wanted(path, "auto") for path in expand(paths))
    summary = scan(
        logs, catalogue, node=node, facts={}, report_unread=lambda one: coverage.unread.append(f"{one.path}: {one.why}")
    )
    coverage.logs += summary.files
    coverage.has_crashes = coverage.has_crashes or bool(summary.diagnoses)
    for diagnosis in summary.diagnoses or ():
        if diagnosis.incident.signature in {UNRECOGNISED, *reports}:
            first = diagnosis.incident.first
            record = incident_record(diagnosis, catalogue, node)
            yield from _rows({**record, "path": writable(hide_secrets(first.path))}, first.happened, reports)


def _of_address(
    url: str, options: argparse.Namespace, oldest: float, reports: frozenset[str], coverage: Coverage
) -> TimedRecords:
    """From a fleet service, which lists lines without templates, or from a node daemon."""
    base = url.rstrip("/")
    listed = _of_service
    try:
        for signature in (UNRECOGNISED, *sorted(reports)):
            try:
                rows = list(listed(base, options, oldest, signature))
            except HTTPError as error:
                if error.code != 400 or listed is _of_node:
                    raise
                listed = _of_node  # which has other parameters
                rows = list(listed(base, options, oldest, signature))
            for incident in rows:
                path = incident.path or f"{base}/incidents/{incident.id}"  # all that a fleet service knows of it
                yield from _rows({**incident.model_dump(), "path": path}, incident.time, reports)
        coverage.logs += 1
        coverage.has_crashes = True  # or there may be none: the lists are of these signatures alone
    except PermissionError as error:
        coverage.unread.append(f"{url}: {error}")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        why = daemon_client.failure_of(error) if isinstance(error, OSError) else error
        coverage.unread.append(f"{url}: no list of incidents; is it a fleet service or a node daemon? ({why})")


def _of_service(base: str, options: argparse.Namespace, oldest: float, signature: str) -> Iterator[IncidentRecord]:
    offset: int | None = 0
    query: dict[str, Any] = {"signature": signature, "sort": "time", "start": f"{oldest:.0f}", "limit": ROWS}
    while offset is not None:
        answer = daemon_client.ask_json(
            f"{base}/api/v1/incidents?{urlencode({**query, 'offset': offset})}", options, timeout=TIMEOUT_SECONDS
        )
        offset, query["end"] = answer["next_offset"], answer["window"]["end"]  # later crashes shift no page
        yield from map(incident_of, answer["incidents"])


def _of_node(base: str, options: argparse.Namespace, oldest: float, signature: str) -> Iterator[IncidentRecord]:
    query: dict[str, Any] = {"signature": signature, "since": f"{oldest:.0f}", "limit": ROWS}
    while True:
        answer = daemon_client.ask_json(f"{base}/api/v1/incidents?{urlencode(query)}", options, timeout=TIMEOUT_SECONDS)
        if answer["incidents"] and not answer["lines_shown"]:
            message = "it shows log lines only to its users; pass --user and --password-file"
            raise PermissionError(f"{message}, or read the journal folder on the node")
        yield from map(incident_of, answer["incidents"])
        if not answer["next"]:
            return
        query["before"] = answer["next"]
