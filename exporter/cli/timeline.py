"""`gpufault timeline`: what happened on a node, or to a job, in order."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli import options as flags
from exporter.cli.incident_text import clipped, has_color, one_line, paint
from exporter.cli.options import moment, seconds

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import Catalogue
    from exporter.fleet.review.event_timeline import Happening

DESCRIPTION = (
    "Lists the incidents, failed jobs, node faults, reboots, changed facts and silences of a node, or the incidents of a "
    "job on all its nodes, by time. Reads node journals. Exit code 1 if nothing is known of that node or job, 3 if nothing "
    "could be read."
)
SINCE = "7d"
PACKED = (".parquet", ".duckdb")  # what only DuckDB reads
TIME, WHERE, NOTE = 17, 14, 14  # columns
MAX_DESCRIPTION = 400
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
    from exporter.fleet.review.event_timeline import of_job, of_node
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
        events = of_node(db, options.name, window) if is_node else of_job(db, options.name, window)
    if not is_node and not events:
        print(f"gpufault timeline: no node or job {one_line(options.name)!r} in this window", file=sys.stderr)
        return 1
    if options.format == "json":
        print(json.dumps([asdict(event) for event in events], indent=1))
        return 0
    color = has_color(sys.stdout)
    descriptions = [one_line(_description(event, catalogue)) for event in events]
    room = _room(max(map(len, descriptions), default=0))
    for event, description in zip(events, descriptions, strict=True):
        print(_line(event, description, room, is_node=bool(is_node), color=color))
    if not events:
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
    return min(longest, max(columns - TIME - WHERE - NOTE - 6, 20)) if columns else min(longest, MAX_DESCRIPTION)


def _line(event: Happening, description: str, room: int, *, is_node: bool, color: bool) -> str:
    """`20 Nov 06:41:12Z  kernel        NVLink fault, GPU 3b:00        infrastructure`."""
    at = f"{datetime.fromtimestamp(event.time, UTC):%d %b %H:%M:%SZ}"
    kind = f"job {event.job}" if event.kind == "job" and event.job else KINDS.get(event.kind, event.kind)
    where = clipped(kind if is_node else event.node, WHERE)
    note = clipped(
        "" if event.id is None else "consequence" if event.role == "cascade" else event.verdict or "unclear", NOTE
    )
    description = f"{clipped(description, room):<{min(room, ALIGNED)}}" if note else clipped(description, room + NOTE)
    code = "2" if event.role == "cascade" else COLORS.get(note, "2")
    return f"{at}  {where:<{WHERE}}  {description}  {paint(note, code, color)}".rstrip()


def _description(event: Happening, catalogue: Catalogue) -> str:
    if event.kind == "silent" and event.end is not None:
        return f"no heartbeat for {(event.end - event.time) / 3600:.1f} h"
    if event.id is None and event.kind != "node_check":
        return event.what
    named = [id_ for id_ in (event.shown, event.what) if id_ in catalogue.root_causes or id_ in catalogue.signatures]
    description = (catalogue.title(named[0]) if named else event.what) + (f", GPU {event.gpu}" if event.gpu else "")
    return f"fails: {description}; {event.note}" if event.kind == "node_check" else description
