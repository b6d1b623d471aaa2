"""`gpufault unknowns`: clusters of crashes that no signature names."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli import options as flags
from exporter.cli.time_arguments import seconds
from exporter.core.model import UNRECOGNISED
from exporter.core.text.counted import counted
from exporter.core.text.printable import printable

if TYPE_CHECKING:
    from exporter.core.diagnosis.unknown_clusters import Cluster, UnknownClusters

DESCRIPTION = (
    "Reads node journals, the output of `gpufault scan --format json`, or logs, and lists the crashes in them that no "
    "signature names: like ones once, those on most nodes first, with an example and the command that begins a signature. "
    "Exit code 1 if any is found, 0 if none is found, 3 if nothing could be read."
)
MAX_SHOWN = 50  # clusters in text; JSON has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a folder of journals, a file of records (*.jsonl), a log, or - for stdin",
    )
    parser.add_argument("--window", metavar="7d", help="only crashes of the last seven days, or another duration")
    parser.add_argument("--format", default="text", choices=("text", "json"), help="default: text")
    flags.add_catalogue(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.core.diagnosis.unknown_clusters import UnknownClusters

    window = seconds("--window", options.window) if options.window else None
    unread: list[str] = []
    oldest = time.time() - window if window else 0.0
    clusters = UnknownClusters()
    for at, record in _records(options, unread):
        if at >= oldest:
            clusters.add(record, at)
    for what in unread:
        print(printable(f"gpufault unknowns: {what}"), file=sys.stderr)
    if options.format == "json":
        print(json.dumps(_as_json(clusters), ensure_ascii=False))
    else:
        print("\n".join(map(printable, _as_text(clusters))))
    if unread and not clusters.clusters():
        return 3
    return 1 if clusters.clusters() else 0


def _records(options: argparse.Namespace, unread: list[str]) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """The records of unrecognised crashes, with their times."""
    logs = []
    for given in options.paths:
        path = Path(given)
        files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path] if path.suffix == ".jsonl" else []
        if not files:
            logs.append(given)
        for file in files:
            yield from _in_file(file, unread)
    if logs:
        yield from _in_logs(logs, options, unread)


def _in_file(file: Path, unread: list[str]) -> Iterator[tuple[float, Mapping[str, Any]]]:
    bad = 0
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if UNRECOGNISED not in line:
                    continue
                try:
                    record = json.loads(line)
                    if record["signature"] == UNRECOGNISED and record.get("role") != "context":
                        yield datetime.fromisoformat(record["time"]).timestamp(), record
                except (ValueError, KeyError, TypeError, RecursionError):
                    bad += 1
    except OSError as error:
        unread.append(f"{file}: {error.strerror or error}")
    if bad:
        unread.append(f"{file}: {bad} lines are not records; they are left out")


def _in_logs(
    paths: list[str], options: argparse.Namespace, unread: list[str]
) -> Iterator[tuple[float, Mapping[str, Any]]]:
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


def _as_json(clusters: UnknownClusters) -> dict[str, Any]:
    return {
        "clusters": [
            {
                "kind": each.kind,
                "type": each.type,
                "template": each.template,
                "count": each.count,
                "nodes": sorted(each.nodes),
                "jobs": sorted(each.jobs),
                "first": _utc(each.first),
                "last": _utc(each.last),
                "new": clusters.is_new(each),
                "example": {"text": each.example, "path": each.path, "line": each.line},
                "begin_signature": _begin(each),
            }
            for each in clusters.clusters()
        ],
        "unclustered": clusters.unclustered,
    }


def _as_text(clusters: UnknownClusters) -> list[str]:
    every = clusters.clusters()
    if not every:
        return ["Every crash has a signature."]
    lines = []
    for number, each in enumerate(every[:MAX_SHOWN], 1):
        jobs = f", {counted(len(each.jobs), 'job')}" if each.jobs else ""
        where = f"{counted(each.count, 'crash', 'crashes')} on {counted(len(each.nodes), 'node')}{jobs}"
        new = "; new" if clusters.is_new(each) else ""
        lines += [
            f"{number}. {each.template}",
            f"   {where}; first {_utc(each.first)}, last {_utc(each.last)}{new}",
            f"   example: {each.path}:{each.line}",
            f"   begin a signature: {_begin(each)}",
        ]
    if len(every) > MAX_SHOWN:
        lines.append(f"and {counted(len(every) - MAX_SHOWN, 'more cluster')}; --format json lists them")
    if clusters.unclustered:
        lines.append(f"and {counted(clusters.unclustered, 'crash', 'crashes')} of still other templates")
    return lines


def _begin(cluster: Cluster) -> str:
    source = " --source kernel" if cluster.source == "kernel" else ""
    return f"gpufault signatures new{source} {shlex.quote(cluster.example)}"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
