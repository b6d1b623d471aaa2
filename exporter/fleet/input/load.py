"""Reading of node journals from files, with DuckDB, into the observations that the correlator works on.

A folder may hold JSONL (plain, .gz or .zst) and Parquet at any depth, of one node or of thousands. Lines that do not
parse, invalid fields and clocks that run ahead are reported as gaps.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np

from exporter.core.model import AHEAD_SECONDS
from exporter.core.text.printable import printable
from exporter.fleet.input.budgets import KIND, OTHER, limit_values
from exporter.fleet.input.clocks import clocks_off
from exporter.fleet.input.fact_codes import rows_of_facts
from exporter.fleet.observations import Beats, Floats, Gap, Incidents, Ints, Loaded, Observed, Window
from exporter.scan.decompress import Unpacked, unpacker_of

LINES = tuple(f"*.{form}{packed}" for form in ("jsonl", "ndjson") for packed in ("", ".gz", ".zst"))
TABLES = ("*.parquet",)
MEMORY = "2GB"  # of DuckDB; it spills to disk beyond
MAX_LINE_BYTES = 64 << 20
NAMED_LINES = 20  # bad lines named; all are counted
MAX_BEAT_HOURS = 31 * 24.0
_FIELDS = (
    "kind", "time", "node", "id", "signature", "vendor", "role", "root_cause", "gpu", "job", "facts", "hours",
    "gpu_busy_hours",
)  # fmt: skip

_LINES = (
    "read_json(?, format = 'newline_delimited', ignore_errors = true, filename = true, "
    f"maximum_object_size = {MAX_LINE_BYTES}, columns = {{{{{{columns}}}}}})"
)
_WORKLOAD = {"user": "job_user", "account": "account", "name": "job_name", "image": "image"}  # a job's fields: columns
_RECORDS = """
CREATE TEMP TABLE records AS SELECT *,
    CASE WHEN kind IS NULL THEN 'bad'
         WHEN kind NOT IN ('incident', 'facts', 'heartbeat') THEN 'other'
         WHEN coalesce(node, '') = '' OR moment IS NULL OR NOT isfinite(moment) THEN 'bad'
         WHEN kind = 'incident' AND coalesce(signature, '') = '' THEN 'bad'
         WHEN kind = 'facts' AND coalesce(json_type(facts), '') != 'OBJECT' THEN 'bad'
         WHEN kind = 'heartbeat' AND NOT coalesce(watched BETWEEN 0 AND {most}, false) THEN 'bad'
         ELSE 'good' END AS state
FROM (
    SELECT kind, node, id, signature, vendor, role, root_cause, gpu, facts, file,
        coalesce(epoch(try_cast(time AS TIMESTAMPTZ)), try_cast(time AS DOUBLE)) AS moment,
        try_cast(hours AS DOUBLE) AS watched,
        try_cast(gpu_busy_hours AS DOUBLE) AS busy,
        CASE json_type(job) WHEN 'OBJECT' THEN job ->> 'id' WHEN 'NULL' THEN NULL ELSE job ->> '$' END AS job,
        {workload}
    FROM ({union}) AS raw
)"""


class NothingToRead(OSError):
    """The folder holds no journal."""


def load(
    folder: Path, *, now: float, start: float | None = None, end: float | None = None, span: float | None = None
) -> Loaded:
    """Read all journals below a folder (or one file).

    now: the reader's clock. start, end: the window; without `end` it ends with the newest record, without `start` it
    begins `span` seconds before. Raises NothingToRead, OSError.
    """
    lines, tables, others = _files(folder)
    if not lines and not tables:
        raise NothingToRead(
            f"{folder}: no journal here; gather *.jsonl of the nodes' journal folders in it, or *.parquet"
        )
    with duckdb.connect() as db:
        db.execute(f"SET threads = {os.cpu_count() or 1}; SET memory_limit = '{MEMORY}'; SET TimeZone = 'UTC'")
        db.execute("SET enable_progress_bar = false; SET preserve_insertion_order = false")
        gaps = [*_no_files(others), *_read(db, lines, tables), *_drop_ahead(db, now if end is None else max(now, end))]
        gaps += _within_budgets(db)
        gaps += clocks_off(db)
        newest = _one(db, "SELECT max(moment) FROM records")
        if newest is None:
            raise NothingToRead(
                f"{folder}: no record of an incident, of facts or a heartbeat in any of {len(lines) + len(tables)} files; "
                "gather what the daemons write below journal.dir"
            )
        stop = end if end is not None else float(newest)
        begin = start if start is not None else stop - (span or 0.0)
        window = Window(start=begin, end=stop if end is not None else stop + 1e-3)
        earlier = Window(start=begin - (stop - begin), end=begin)
        oldest = _one(db, "SELECT min(moment - watched * 3600) FROM records WHERE kind = 'heartbeat'")
        reaches = oldest is not None and float(oldest) <= earlier.start + 0.1 * (begin - earlier.start)
        observed = _observed(db, earlier.start, window.end, gaps)
    return Loaded(observed=observed, window=window, before=earlier if reaches else None)


def _files(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """The JSONL files, the Parquet files, and other entries with such names. Opening a FIFO would block."""
    if folder.is_file():
        return ([], [str(folder)], []) if folder.suffix == ".parquet" else ([str(folder)], [], [])
    if not folder.is_dir():
        raise NothingToRead(f"{folder}: no such folder")
    lines, tables = ({p for form in forms for p in folder.rglob(form)} for forms in (LINES, TABLES))
    others = {p for p in lines | tables if p.exists() and not p.is_file() and not p.is_dir()}
    return sorted(map(str, lines - others)), sorted(map(str, tables - others)), sorted(map(str, others))


def _no_files(paths: Sequence[str]) -> list[Gap]:
    if not paths:
        return []
    more = f" and {len(paths) - NAMED_LINES} more" if len(paths) > NAMED_LINES else ""
    what = f"{len(paths)} are FIFOs, sockets or devices and were not opened: {'; '.join(paths[:NAMED_LINES])}{more}"
    return [Gap(kind="damaged_files", count=len(paths), what=what)]


def _read(db: duckdb.DuckDBPyConnection, lines: Sequence[str], tables: Sequence[str]) -> list[Gap]:
    """Create the table `records`, one row for each usable record, and report the unusable ones.

    Damaged files are read up to the damage. Raises OSError if nothing can be read.
    """
    try:
        try:
            return _read_whole(db, lines, tables)
        except duckdb.Error:
            damaged = {path for path in lines if not _is_whole(db, path)}
            damaged |= {path for path in tables if not _is_whole(db, path, is_table=True)}
            with TemporaryDirectory(prefix="gpufault-") as folder:
                saved = [_saved(path, Path(folder, f"{at}.jsonl")) for at, path in enumerate(sorted(damaged))]
                rest = [path for path in (*lines, *saved) if path is not None and path not in damaged]
                whole = [path for path in tables if path not in damaged]
                if not damaged or not (rest or whole):
                    raise
                gaps = _read_whole(db, rest, whole)
    except duckdb.Error as error:
        raise OSError(f"journals cannot be read: {str(error).splitlines()[0]}") from error
    more = f" and {len(damaged) - NAMED_LINES} more" if len(damaged) > NAMED_LINES else ""
    what = f"{'; '.join(sorted(damaged)[:NAMED_LINES])}{more}; of archives, what stands before the damage was read"
    what = f"{len(damaged)} files cannot be read whole: {what}"
    return [Gap(kind="damaged_files", count=len(damaged), what=what), *gaps]


def _is_whole(db: duckdb.DuckDBPyConnection, path: str, *, is_table: bool = False) -> bool:
    reader = "read_parquet(?)" if is_table else _LINES.format(columns="kind: 'VARCHAR'")
    try:
        db.execute(f"SELECT count(*) FROM {reader}", [path if is_table else [path]]).fetchall()
    except duckdb.Error:
        return False
    return True


def _saved(path: str, into: Path) -> str | None:
    """Save the complete lines of an archive before its damage to a file; None if it is not an archive."""
    unpacker = unpacker_of(path)
    if unpacker is None:
        return None
    with suppress(OSError), open(path, "rb") as packed, into.open("w+b") as lines:
        unpacked, end = Unpacked(packed, unpacker), 0
        with suppress(OSError):
            while data := unpacked.read(1 << 20):
                end = lines.tell() + data.rfind(b"\n") + 1 if b"\n" in data else end
                lines.write(data)
        lines.truncate(end)
        return str(into)
    return None


def _read_whole(db: duckdb.DuckDBPyConnection, lines: Sequence[str], tables: Sequence[str]) -> list[Gap]:
    parts: list[str] = []
    parameters: list[Any] = []
    if lines:
        columns = ", ".join(f"{name}: '{'JSON' if name in ('facts', 'job') else 'VARCHAR'}'" for name in _FIELDS)
        parts.append(f"SELECT *, filename AS file FROM {_LINES.format(columns=columns)}")
        parameters.append(list(lines))
    for path in tables:
        described = db.execute("DESCRIBE SELECT * FROM read_parquet(?)", [path]).fetchall()
        there = {name: kind for name, kind, *_ in described}
        chosen = ", ".join(_column(name, there) for name in _FIELDS)
        parts.append(f"SELECT {chosen}, ? AS file FROM read_parquet(?)")
        parameters += [path, path]
    union = " UNION ALL ".join(f"SELECT {', '.join(_FIELDS)}, file FROM ({part})" for part in parts)
    workload = ", ".join(
        f"CASE json_type(job) WHEN 'OBJECT' THEN job ->> '{name}' END AS {column}" for name, column in _WORKLOAD.items()
    )
    db.execute(_RECORDS.format(union=union, most=MAX_BEAT_HOURS, workload=workload), parameters)
    bad = db.execute("SELECT file, count(*) FROM records WHERE state = 'bad' GROUP BY file ORDER BY file").fetchall()
    db.execute("DELETE FROM records WHERE state != 'good'")
    return _bad_lines(bad)


def _column(name: str, there: Mapping[str, str]) -> str:
    """One field of a Parquet file; what is nested may be a struct, a map, or JSON as text."""
    nested = name in ("facts", "job")
    if name not in there:
        return f"CAST(NULL AS {'JSON' if nested else 'VARCHAR'}) AS {name}"
    if not nested:
        return f"CAST({name} AS VARCHAR) AS {name}"
    text = there[name] in ("VARCHAR", "JSON")
    return f"coalesce(try_cast({name} AS JSON), to_json({name})) AS {name}" if text else f"to_json({name}) AS {name}"


def _bad_lines(bad: Sequence[tuple[str, int]]) -> list[Gap]:
    """Read files with unusable lines again, line by line, to report where they are."""
    named: list[str] = []
    total = sum(count for _, count in bad)
    for file, count in bad:
        if len(named) >= NAMED_LINES:
            break
        if file.endswith((".parquet", ".zst")):
            named.append(f"{file}: {count} without a usable kind, time or node")
            continue
        named += _places(file, NAMED_LINES - len(named))
    if not total:
        return []
    more = f" and {total - len(named)} more" if total > len(named) else ""
    return [Gap(kind="bad_lines", count=total, what=f"{total} lines are not records: {'; '.join(named)}{more}")]


def _places(file: str, most: int) -> list[str]:
    places = []
    with gzip.open(file, "rb") if file.endswith(".gz") else open(file, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip() and (why := _why_bad(line)):
                places.append(f"{file}:{number}: {why}")
                if len(places) == most:
                    break
    return places


def _why_bad(line: bytes) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return "no kind"
    needs = {"incident": "signature", "facts": "facts", "heartbeat": "hours"}.get(record["kind"])
    if needs is None:
        return ""
    missing = next((name for name in ("time", "node", needs) if not record.get(name) and record.get(name) != 0), "")
    if missing:
        return f"no {missing}"
    return "" if _usable(record, needs) else f"{needs if needs != 'signature' else 'time'} makes no sense"


def _usable(record: Mapping[str, Any], needs: str) -> bool:
    if needs == "facts":
        return isinstance(record["facts"], dict) and _time_reads(record["time"])
    if needs == "hours":
        try:
            return 0 <= float(record["hours"]) <= MAX_BEAT_HOURS and _time_reads(record["time"])
        except (TypeError, ValueError, OverflowError):
            return False
    return _time_reads(record["time"])


def _time_reads(time: Any) -> bool:
    try:
        datetime.fromisoformat(time) if isinstance(time, str) else float(time)
    except (TypeError, ValueError, OverflowError):
        return isinstance(time, str) and time.replace(".", "", 1).isdecimal()
    return True


def _drop_ahead(db: duckdb.DuckDBPyConnection, now: float) -> list[Gap]:
    """Leave out records from the future. Where every node's heartbeats are ahead of us, it is our own clock that is wrong."""
    nodes = "SELECT max(moment) AS newest FROM records WHERE kind = 'heartbeat' GROUP BY node"
    limit = max(now, float(_one(db, f"SELECT min(newest) FROM ({nodes})") or now)) + AHEAD_SECONDS
    rows = db.execute(
        "SELECT node, count(*) FROM records WHERE moment > ? GROUP BY node ORDER BY node", [limit]
    ).fetchall()
    if not rows:
        return []
    db.execute("DELETE FROM records WHERE moment > ?", [limit])
    count = sum(n for _, n in rows)
    nodes = ", ".join(name for name, _ in rows[:5]) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
    what = f"{count} records of {len(rows)} nodes are from the future and left out; look at the clocks of {nodes}"
    return [Gap(kind="clock_ahead", count=count, what=what)]


def _within_budgets(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    """Values of which a node has too many become one."""
    columns = ("signature", "vendor", "root_cause", "gpu", "job", *_WORKLOAD.values())
    over = limit_values(db, "records", columns=columns)
    if not over:
        return []
    nodes, count = sorted({node for node, _ in over}), sum(over.values())
    what = f"{count} values beyond the share of one node are `{OTHER}`: {', '.join(map(printable, nodes[:5]))}"
    return [Gap(kind=KIND, count=count, what=what + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""))]


def _observed(db: duckdb.DuckDBPyConnection, start: float, end: float, gaps: Sequence[Gap]) -> Observed:
    db.execute(
        """CREATE TEMP TABLE incidents AS SELECT * FROM (SELECT *,
        row_number() OVER (PARTITION BY node, coalesce(id, concat_ws('|', moment, signature, job)) ORDER BY moment) AS copy
        FROM records WHERE kind = 'incident' AND moment >= ? AND moment < ?) WHERE copy = 1""",
        [start, end],
    )
    # A consequence says nothing of its own node's configuration; its root, here or on another node, does.
    db.execute("DELETE FROM incidents WHERE role = 'cascade' OR root_cause = 'peer_failure'")
    db.execute(
        """CREATE TEMP TABLE beats AS SELECT node, moment, max(watched) AS watched, max(busy) AS busy FROM records
        WHERE kind = 'heartbeat' AND moment > ? AND moment - watched * 3600 < ? GROUP BY node, moment""",
        [start, end],
    )
    db.execute(
        "CREATE TEMP TABLE known AS SELECT node, moment, facts FROM records WHERE kind = 'facts' AND moment < ?", [end]
    )
    db.execute(
        """CREATE TEMP TABLE nodes AS SELECT node, row_number() OVER (ORDER BY node) - 1 AS number FROM
        (SELECT node FROM incidents UNION SELECT node FROM beats UNION SELECT node FROM known)"""
    )
    nodes = tuple(row[0] for row in db.execute("SELECT node FROM nodes ORDER BY number").fetchall())
    beats = db.execute(
        "SELECT number, moment, watched, busy FROM beats JOIN nodes USING (node) ORDER BY number, moment"
    ).fetchnumpy()
    rows = db.execute(
        """SELECT number, moment, signature, job, job_user, id, gpu, vendor, account, job_name, image
        FROM incidents JOIN nodes USING (node)
        ORDER BY moment, id, hash(node), number"""  # of a second's crashes without ids chance decides, not the name
    ).fetchall()
    signatures, signature = _numbered([row[2] for row in rows])
    jobs, job = _numbered([row[3] for row in rows])
    users, user = _numbered([row[4] for row in rows])
    numbered = {
        kind: _numbered([row[8 + i] for row in rows]) for i, kind in enumerate(("account", "job_name", "image"))
    }
    workload = {kind: number for kind, (known, number) in numbered.items() if known}
    names = {"user": users, "job": jobs, **{kind: known for kind, (known, _) in numbered.items() if known}}
    facts_known = db.execute(
        "SELECT number, moment, facts FROM known JOIN nodes USING (node) ORDER BY number, moment"
    ).fetchall()
    facts, left_out = rows_of_facts(facts_known)
    return Observed(
        nodes=tuple(map(printable, nodes)),
        signatures=tuple(map(printable, signatures)),
        facts=facts,
        beats=Beats(
            node=beats["number"].astype(np.int64), end=_floats(beats["moment"]), hours=_floats(beats["watched"]),
            busy=_floats(beats["busy"]),
        ),
        incidents=Incidents(
            node=np.array([row[0] for row in rows], dtype=np.int64), time=np.array([row[1] for row in rows], dtype=float),
            signature=signature, job=job, user=user, id=np.array([printable(row[5] or "") for row in rows], dtype=object),
            gpu=np.array([row[6] or "" for row in rows], dtype=object), workload=workload,
        ),
        vendors={row[2]: row[7] for row in rows if row[7]},
        gaps=(*gaps, *left_out), workload_names={kind: tuple(map(printable, each)) for kind, each in names.items()},
    )  # fmt: skip


def _numbered(texts: Sequence[str | None]) -> tuple[tuple[str, ...], Ints]:
    known = tuple(sorted({text for text in texts if text is not None}))
    number = {text: i for i, text in enumerate(known)}
    return known, np.array([-1 if text is None else number[text] for text in texts], dtype=np.int64)


def _floats(column: Any) -> Floats:
    return np.ma.filled(np.ma.asarray(column, dtype=float), np.nan)


def _one(db: duckdb.DuckDBPyConnection, query: str) -> Any:
    row = db.execute(query).fetchone()
    return row[0] if row else None
