"""`gpufault timeline`: what happened on a node, or to a job, in order."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli import options as flags
from exporter.cli.incident_text import clipped, one_line, paint
from exporter.cli.options import moment, seconds

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import Catalogue
    from exporter.fleet.review.timeline import Happening

DESCRIPTION = (
    "Lists the incidents, failed jobs, node faults, reboots, changed facts and silences of a node, or the incidents of a "
    "job on all its nodes, by time. Reads node journals. Exit code 1 if nothing is known of that node or job, 3 if nothing "
    "could be read."
)
SINCE = "7d"
PACKED = (".parquet", ".duckdb")  # what only DuckDB reads
TIME, WHERE, NOTE = 17, 14, 14  # columns
MAX_WHAT = 400
ALIGNED = 70  # columns; one long title does not push what follows it out of sight
KINDS = {"job_end": "failed job", "node_check": "node check", "boot": "reboot", "silent": "silence"}
COLORS = {"infrastructure": "33", "workload": "36"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NODE|JOB", help="a node's name or a job's id")
    parser.add_argument("--journal", required=True, metavar="DIR", help="a folder of node journals, or one file")
    parser.add_argument("--since", metavar="7d", help=f"how far back from --end; default: {SINCE}")
    parser.add_argument("--end", metavar="TIME", help="RFC 3339 or Unix seconds; default: the newest record")
    parser.add_argument("--format", default="text", choices=("text", "json"), help="default: text")
    flags.add_catalogue(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.fleet.review.timeline import of_job, of_node
    from exporter.fleet.window import Window

    catalogue, folder = packs.load(flags.pack_folders(options)), Path(options.journal)
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: no such file or folder")
    end = moment("--end", options.end)
    with _tables(folder) as db:
        if end is None:
            row = db.execute(
                """SELECT max(t) FROM (SELECT max(time) AS t FROM incidents UNION ALL SELECT max(time) FROM facts
                UNION ALL SELECT max(last) FROM watched_days UNION ALL SELECT max(time) FROM faults
                UNION ALL SELECT max(time) FROM job_ends)"""
            ).fetchone()
            end = float(row[0]) + 1e-3 if row and row[0] is not None else time.time()
        window = Window(start=end - seconds("--since", options.since or SINCE), end=end)
        is_node = db.execute(
            "SELECT 1 FROM (SELECT node FROM incidents UNION SELECT node FROM facts UNION SELECT node FROM watched_days) "
            "WHERE node = ?",
            [options.name],
        ).fetchone()
        found = of_node(db, options.name, window) if is_node else of_job(db, options.name, window)
    if not is_node and not found:
        print(f"gpufault timeline: no node or job {one_line(options.name)!r} in this window", file=sys.stderr)
        return 1
    if options.format == "json":
        print(json.dumps([asdict(each) for each in found], indent=1))
        return 0
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    whats = [one_line(_what(each, catalogue)) for each in found]
    room = _room(max(map(len, whats), default=0))
    for each, what in zip(found, whats, strict=True):
        print(_line(each, what, room, is_node=bool(is_node), color=color))
    if not found:
        print("nothing happened in this window")
    return 0


def _tables(folder: Path) -> AbstractContextManager[Any]:
    """The journals in DuckDB; where it is not installed, as on a node, in SQLite, which reads no Parquet."""
    now = time.time()
    try:
        from exporter.fleet.input.journals import journals
    except ModuleNotFoundError:
        if folder.suffix in PACKED or (folder.is_dir() and next(folder.rglob("*.parquet"), None)):
            raise
        from exporter.fleet.history.node_tables import tables

        return tables(folder, now=now)
    return journals(folder, now=now)


def _room(longest: int) -> int:
    """Columns for what happened: as many as the terminal has left; in a file or a pipe nothing is cut."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return min(longest, max(columns - TIME - WHERE - NOTE - 6, 20)) if columns else min(longest, MAX_WHAT)


def _line(each: Happening, what: str, room: int, *, is_node: bool, color: bool) -> str:
    """`20 Nov 06:41:12Z  kernel        NVLink fault, GPU 3b:00        infrastructure`."""
    at = f"{datetime.fromtimestamp(each.time, UTC):%d %b %H:%M:%SZ}"
    kind = f"job {each.job}" if each.kind == "job" and each.job else KINDS.get(each.kind, each.kind)
    where = clipped(kind if is_node else each.node, WHERE)
    note = clipped(
        "" if each.id is None else "consequence" if each.role == "cascade" else each.verdict or "unclear", NOTE
    )
    what = f"{clipped(what, room):<{min(room, ALIGNED)}}" if note else clipped(what, room + NOTE)
    code = "2" if each.role == "cascade" else COLORS.get(note, "2")
    return f"{at}  {where:<{WHERE}}  {what}  {paint(note, code, color)}".rstrip()


def _what(each: Happening, catalogue: Catalogue) -> str:
    if each.kind == "silent" and each.end is not None:
        return f"no heartbeat for {(each.end - each.time) / 3600:.1f} h"
    if each.id is None and each.kind != "node_check":
        return each.what
    named = [id_ for id_ in (each.shown, each.what) if id_ in catalogue.root_causes or id_ in catalogue.signatures]
    what = (catalogue.title(named[0]) if named else each.what) + (f", GPU {each.gpu}" if each.gpu else "")
    return f"fails: {what}; {each.note}" if each.kind == "node_check" else what
