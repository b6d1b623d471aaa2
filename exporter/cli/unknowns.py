"""`gpufault unknowns`: clusters of crashes that no signature names."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from exporter.cli import daemon_client
from exporter.cli import options as flags
from exporter.cli.time_arguments import seconds
from exporter.cli.unknown_records import unknown_records
from exporter.core.text.counted import counted
from exporter.core.text.printable import printable

if TYPE_CHECKING:
    from exporter.core.diagnosis.unknown_clusters import Cluster, UnknownClusters

DESCRIPTION = (
    "Reads node journals, the output of `gpufault scan --format json`, logs, or a fleet service, and lists the crashes in "
    "them that no signature names: like ones once, those on most nodes first, with an example and the command that begins a "
    "signature. Exit code 1 if any is found, 0 if none is found, 3 if nothing could be read."
)
MAX_SHOWN = 50  # clusters in text; JSON has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH|URL",
        help="a folder of journals, a file of records (.jsonl, also .gz and .zst), a log, the URL of a fleet service, or - for "
        "stdin",
    )
    parser.add_argument("--window", metavar="7d", help="only crashes of the last seven days, or another duration")
    parser.add_argument("--format", default="text", choices=("text", "json"), help="default: text")
    flags.add_catalogue(parser)
    daemon_client.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.core.diagnosis.unknown_clusters import UnknownClusters

    window = seconds("--window", options.window) if options.window else None
    unread: list[str] = []
    oldest = time.time() - window if window else 0.0
    clusters = UnknownClusters()
    seen: set[str] = set()  # a record is written again when later lines change it
    for at, record in unknown_records(options, oldest, unread):
        id_ = str(record.get("id", ""))
        if at >= oldest and (not id_ or id_ not in seen):
            seen.add(id_)
            clusters.add(record, at)
    for what in unread:
        print(printable(f"gpufault unknowns: {what}"), file=sys.stderr)
    if unread and not clusters.clusters():
        return 3
    if options.format == "json":
        print(json.dumps(_as_json(clusters), ensure_ascii=False))
    else:
        print("\n".join(map(printable, _as_text(clusters))))
    return 1 if clusters.clusters() else 0


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
                "example": {"text": each.examples[0], "path": each.path, "line": each.line},
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
            f"   example: {each.path}{f':{each.line}' if each.line else ''}",
            f"   begin a signature: {_begin(each)}",
        ]
    if len(every) > MAX_SHOWN:
        lines.append(f"and {counted(len(every) - MAX_SHOWN, 'more cluster')}; --format json lists them")
    if clusters.unclustered:
        lines.append(f"and {counted(clusters.unclustered, 'crash', 'crashes')} of still other templates")
    return lines


def _begin(cluster: Cluster) -> str:
    source = " --source kernel" if cluster.source == "kernel" else ""
    return f"gpufault signatures new{source} {shlex.join(cluster.examples)}"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
