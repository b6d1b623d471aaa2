"""The observations that the correlator works on, from a folder of journals or the tables of a fleet's history.

What could not be read, and clocks that are wrong, are reported as gaps.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from pydantic_core import from_json

from exporter.core.decoding.jobs import party
from exporter.fleet.history import schema
from exporter.fleet.history.folder_ingest import fill, set_horizon
from exporter.fleet.history.insert import KIND, OTHER
from exporter.fleet.history.journal_files import NothingToRead
from exporter.fleet.history.store import EXPORTED
from exporter.fleet.observations import (
    NOT_KNOWN,
    Beats,
    Boots,
    FactRows,
    Floats,
    Gap,
    Incidents,
    Ints,
    LoadedWindow,
    Observed,
    Window,
)

NAMED = 20  # places named in a gap; all are counted


@contextmanager
def journals(folder: Path, *, now: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """A folder of journals as tables, one file, or what a service exported. now: the reader's clock.

    Raises NothingToRead, OSError.
    """
    if folder.name == EXPORTED and folder.is_file():
        with duckdb.connect(str(folder), read_only=True) as db:
            schema.configure(db)
            yield db
        return
    with duckdb.connect() as db:
        schema.create(db)
        db.execute(f"SET threads = {os.cpu_count() or 1}")
        ingested = fill(db, folder, now=now, is_whole=True)
        set_horizon(db, _own_clock(db, now))
        wrong = db.execute("SELECT path, what FROM gaps ORDER BY kind != 'bad_lines', path, line").fetchall()
        if not ingested.files and not wrong:
            raise NothingToRead(
                f"{folder}: no journal here; gather *.jsonl of the nodes' journal folders in it, or *.parquet"
            )
        if not ingested.records and wrong:
            raise NothingToRead(f"{folder}: journals cannot be read; {wrong[-1][0]}: {wrong[-1][1]}")
        yield db


def _own_clock(db: duckdb.DuckDBPyConnection, now: float) -> float:
    """The reader's clock. Where every node's heartbeats are ahead of it, it is this one that is wrong."""
    nodes = "SELECT max(time) AS newest FROM heartbeat_rows GROUP BY node"
    return max(now, float(_one(db, f"SELECT min(newest) FROM ({nodes})") or now))


def load(
    folder: Path, *, now: float, start: float | None = None, end: float | None = None, span: float | None = None
) -> LoadedWindow:
    """The observations in all journals below a folder. See `observations`. Raises NothingToRead, OSError."""
    with journals(folder, now=now if end is None else max(now, end)) as db:
        return observations(db, start=start, end=end, span=span)


def observations(
    db: duckdb.DuckDBPyConnection, *, start: float | None = None, end: float | None = None, span: float | None = None
) -> LoadedWindow:
    """The observations of a window. Without `end` it ends with the newest record, without `start` it begins `span` seconds
    before. Raises NothingToRead.
    """
    newest = _one(db, f"SELECT max(time) FROM ({_TIMES.format(rows='s')})")
    if newest is None:
        raise NothingToRead(
            "no record of an incident, of facts or a heartbeat in any journal; gather what the daemons write below journal.dir"
        )
    stop = end if end is not None else float(newest)
    begin = start if start is not None else stop - (span or 0.0)
    window = Window(start=begin, end=stop if end is not None else stop + 1e-3)
    earlier = Window(start=begin - (stop - begin), end=begin)
    oldest = _one(db, "SELECT min(time - hours * 3600) FROM heartbeats")
    reaches = oldest is not None and float(oldest) <= earlier.start + 0.1 * (begin - earlier.start)
    gaps = [*_damaged(db), *_bad_lines(db), *_ahead(db), *_over_budget(db), *clocks_off(db)]
    return LoadedWindow(
        observed=_observed(db, earlier.start, window.end, gaps), window=window, before=earlier if reaches else None
    )


_TIMES = """SELECT node, time FROM incident{rows} UNION ALL SELECT node, time FROM heartbeat{rows}
UNION ALL SELECT node, time FROM fact{rows}"""


def _damaged(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    rows = db.execute(
        "SELECT path, what FROM gaps WHERE kind IN ('damaged_files', 'unreadable_files') ORDER BY path"
    ).fetchall()
    message = f"{len(rows)} files cannot be read whole: {_named([f'{path}: {why}' for path, why in rows], len(rows))}"
    return [Gap(kind="damaged_files", count=len(rows), message=message)] if rows else []


def _bad_lines(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    total = int(_one(db, "SELECT sum(count) FROM gaps WHERE kind = 'bad_lines'") or 0)
    rows = db.execute(
        "SELECT path, line, what FROM gaps WHERE kind = 'bad_lines' AND line IS NOT NULL ORDER BY path, line LIMIT ?",
        [NAMED],
    ).fetchall()
    message = f"{total} lines are not records: {_named([f'{path}:{line}: {why}' for path, line, why in rows], total)}"
    return [Gap(kind="bad_lines", count=total, message=message)] if total else []


def _named(lines: Sequence[str], total: int) -> str:
    more = total - len(lines[:NAMED])
    return "; ".join(lines[:NAMED]) + (f" and {more} more" if more else "")


def _ahead(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    """Records from the future, which the views hide."""
    rows = db.execute(
        f"""SELECT node, count(*) FROM ({_TIMES.format(rows="_rows")}) WHERE time > (SELECT horizon FROM about)
        GROUP BY node ORDER BY node"""
    ).fetchall()
    if not rows:
        return []
    count = sum(n for _, n in rows)
    nodes = ", ".join(name for name, _ in rows[:5]) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
    message = f"{count} records of {len(rows)} nodes are from the future and left out; look at the clocks of {nodes}"
    return [Gap(kind="clock_ahead", count=count, message=message)]


def _over_budget(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    """Values and rows beyond the share of one node."""
    rows = db.execute(
        "SELECT path, sum(count)::BIGINT FROM gaps WHERE kind = ? GROUP BY path ORDER BY path", [KIND]
    ).fetchall()
    if not rows:
        return []
    count = sum(n for _, n in rows)
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    nodes = ", ".join(node for node, _ in rows[:5]) + more
    return [Gap(kind=KIND, count=count, message=f"{count} values beyond the share of one node are `{OTHER}`: {nodes}")]


MAX_BEATS = 2_000_000  # more are merged by node and day: 100,000 nodes send 200 million in a week, of 13 GB as arrays
_BY_DAY = """SELECT node, max(time) AS time, sum(hours) AS hours,
    CASE WHEN count(gpu_busy_hours) = count(*) THEN sum(gpu_busy_hours) END AS gpu_busy_hours"""
_DAY = "GROUP BY node, ceil(time / 86400)"  # what ends at midnight belongs to the day before


def _observed(db: duckdb.DuckDBPyConnection, start: float, end: float, gaps: Sequence[Gap]) -> Observed:
    span = {"start": start, "end": end}
    # A consequence says nothing of its own node's configuration; its root, here or on another node, does.
    of_window = f"incidents WHERE time >= $start AND time < $end AND {schema.IS_ROOT}"
    beating = "heartbeats WHERE time > $start AND time - hours * 3600 < $end"
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE numbered AS SELECT node, row_number() OVER (ORDER BY node) - 1 AS number FROM (
        SELECT node FROM {of_window} UNION SELECT node FROM {beating} UNION SELECT node FROM facts WHERE time < $end)""",
        span,
    )
    nodes = tuple(node for (node,) in db.execute("SELECT node FROM numbered ORDER BY number").fetchall())
    rows = db.execute(
        f"""SELECT number, time, signature, job, job_user, id, gpu, vendor, account, job_name, image
        FROM (FROM {of_window}) JOIN numbered USING (node)
        ORDER BY time, id, hash(node), node""",  # of a second's crashes without ids chance decides, not the name
        span,
    ).fetchall()
    are_many = _one(db, f"SELECT count(*) FROM {beating}", span) > MAX_BEATS
    beats = db.execute(
        f"""SELECT number, time, hours, gpu_busy_hours FROM ({_BY_DAY if are_many else ""} FROM {beating}
        {_DAY if are_many else ""}) JOIN numbered USING (node) ORDER BY number, time""",
        span,
    ).fetchnumpy()
    boots = db.execute(
        """SELECT number, time FROM boots JOIN numbered USING (node) WHERE time >= $start AND time < $end
        ORDER BY number, time""",
        span,
    ).fetchnumpy()
    facts, left_out = rows_of_facts(_fact_rows(db, len(nodes), end))
    signatures, signature = _numbered([row[2] for row in rows])
    jobs, job = _numbered([row[3] and party(row[3]) for row in rows])
    users, user = _numbered([row[4] for row in rows])
    numbered = {
        kind: _numbered([row[8 + i] for row in rows]) for i, kind in enumerate(("account", "job_name", "image"))
    }
    workload = {kind: number for kind, (texts, number) in numbered.items() if texts}
    names = {"user": users, "job": jobs, **{kind: texts for kind, (texts, _) in numbered.items() if texts}}
    return Observed(
        nodes=nodes,
        signatures=signatures,
        facts=facts,
        beats=Beats(
            node=np.asarray(beats["number"], dtype=np.int64), end=_floats(beats["time"]),
            hours=_floats(beats["hours"]), busy=_floats(beats["gpu_busy_hours"]),
        ),
        incidents=Incidents(
            node=np.array([row[0] for row in rows], dtype=np.int64),
            time=np.array([row[1] for row in rows], dtype=float),
            signature=signature, job=job, user=user, id=np.array([row[5] for row in rows], dtype=object),
            gpu=np.array([row[6] or "" for row in rows], dtype=object), workload=workload,
        ),
        vendors={row[2]: row[7] for row in rows if row[7]},
        gaps=(*gaps, *left_out), workload_names=names,
        boots=Boots(node=np.asarray(boots["number"], dtype=np.int64), time=_floats(boots["time"])),
    )  # fmt: skip


def _fact_rows(db: duckdb.DuckDBPyConnection, nodes: int, end: float) -> Iterator[tuple[int, float, str]]:
    """Facts by node and time; of some nodes at a time, since sorting copies their JSON: of a large fleet gigabytes."""
    for first in range(0, nodes, FETCHED):
        yield from db.execute(
            """SELECT number, time, facts FROM facts JOIN numbered USING (node)
            WHERE time < $end AND number >= $first AND number < $last ORDER BY number, time""",
            {"end": end, "first": first, "last": first + FETCHED},
        ).fetchall()


def _numbered(texts: Sequence[str | None]) -> tuple[tuple[str, ...], Ints]:
    distinct = tuple(sorted({text for text in texts if text is not None}))
    number = {text: i for i, text in enumerate(distinct)}
    return distinct, np.array([-1 if text is None else number[text] for text in texts], dtype=np.int64)


def _floats(column: Any) -> Floats:
    return np.ma.filled(np.ma.asarray(column, dtype=float), np.nan)


def _one(db: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, float] | None = None) -> Any:
    row = db.execute(query, parameters or {}).fetchone()
    return row[0] if row else None


OFF_SECONDS = 3600.0  # less is within what heartbeats of an hour leave open
AGREE_SECONDS = 1800.0  # by which the first and the last record may be off differently
USUAL_SHARE = 0.8  # of the nodes must begin, and end, within OFF_SECONDS of each other, for the rest to be judged
MIN_NODES = 5
NAMED_NODES = 5

_FIRST_AND_LAST = """SELECT node, min(time), max(time) FROM (
    SELECT node, time FROM heartbeats UNION ALL SELECT node, time FROM incidents) GROUP BY node ORDER BY node"""
_OF_JOBS = """
WITH one AS (SELECT job, signature, node, min(time) AS time FROM incidents
             WHERE job IS NOT NULL AND role IN ('root', 'cascade') GROUP BY job, signature, node),
     own AS (SELECT *, median(time) OVER (PARTITION BY job, signature) AS usual,
             count(*) OVER (PARTITION BY job, signature) AS nodes FROM one)
SELECT node, median(time - usual) AS off FROM own WHERE nodes >= 3
GROUP BY node HAVING count(*) >= 2 AND abs(off) > ? ORDER BY node"""


def clocks_off(db: duckdb.DuckDBPyConnection) -> list[Gap]:
    """A gap that names the nodes whose clocks must be hours off.

    A node's records begin and end hours before, or after, those of nearly all others; or its crashes lie hours from
    those of the other nodes of the same jobs.
    """
    rows = db.execute(_FIRST_AND_LAST).fetchall()
    off = dict(
        zip((row[0] for row in rows), _shift(*(np.array([row[i] for row in rows]) for i in (1, 2))), strict=True)
    )
    off = {node: float(seconds) for node, seconds in off.items() if seconds}
    off |= {node: float(seconds) for node, seconds in db.execute(_OF_JOBS, [OFF_SECONDS]).fetchall()}
    if not off:
        return []
    named = ", ".join(f"{node} ({seconds / 3600:+.1f} h)" for node, seconds in sorted(off.items())[:NAMED_NODES])
    more = f" and {len(off) - NAMED_NODES} more" if len(off) > NAMED_NODES else ""
    message = f"clocks of {len(off)} nodes look hours off, so their crashes may meet the wrong facts: {named}{more}"
    return [Gap(kind="clock_off", count=len(off), message=message)]


def _shift(first: Floats, last: Floats) -> Floats:
    """By how many seconds each node's records are shifted; 0 where nothing is wrong, or this is not known."""
    if len(first) < MIN_NODES:
        return np.zeros(len(first))
    begin, end = first - np.median(first), last - np.median(last)
    usual = (np.abs(begin) <= OFF_SECONDS) & (np.abs(end) <= OFF_SECONDS)
    if usual.mean() < USUAL_SHARE:
        return np.zeros(len(first))
    shifted = (np.abs(begin) > OFF_SECONDS) & (np.abs(end) > OFF_SECONDS) & (np.abs(begin - end) <= AGREE_SECONDS)
    return np.where(shifted, (begin + end) / 2, 0.0)


MAX_FACTS = 1024  # names: a node states 155 and its cards, and a site a few; 200,000 of one node would take gigabytes


FETCHED = 10_000  # nodes, or rows, at a time
_CODE_BITS = 32


class _Cells(dict[tuple[str, str], int]):
    """Facts and their values as numbers, given out as they come: a fact's in the upper bits, its value's in the lower."""

    def __init__(self) -> None:
        self.facts: dict[str, tuple[int, dict[str, int]]] = {}

    def __missing__(self, cell: tuple[str, str]) -> int:
        name, value = cell
        fact, codes = self.facts.setdefault(name, (len(self.facts), {}))
        number = self[cell] = fact << _CODE_BITS | codes.setdefault(value, len(codes))
        return number


def rows_of_facts(rows: Iterable[tuple[int, float, str]]) -> tuple[FactRows, list[Gap]]:
    """Facts of (node, time, JSON), as codes."""
    number, nodes, since, cells, ends = _Cells(), array("q"), array("d"), array("q"), array("q", [0])
    for node, time, text in rows:
        nodes.append(node)
        since.append(time)
        cells.extend(map(number.__getitem__, from_json(text).items()))
        ends.append(len(cells))
    names = list(number.facts)
    lengths = np.diff(ends)
    columns, gaps = _most_common(names, np.asarray(nodes), np.asarray(cells), lengths)
    column_of = np.full(len(names), NOT_KNOWN)
    column_of[columns] = np.arange(len(columns))
    codes = np.full((len(nodes), len(columns)), NOT_KNOWN, dtype=np.int32)
    for first in range(0, len(nodes), FETCHED):
        last = min(first + FETCHED, len(nodes))
        fact, code = np.divmod(np.asarray(cells)[ends[first] : ends[last]], 1 << _CODE_BITS)
        row, column = np.repeat(np.arange(first, last), lengths[first:last]), column_of[fact]
        used = column != NOT_KNOWN
        codes[row[used], column[used]] = code[used]
    return FactRows(
        names=tuple(names[fact] for fact in columns), values=tuple(tuple(number.facts[names[fact]][1]) for fact in columns),
        codes=codes, node=np.array(nodes, dtype=np.int64), since=np.array(since),
    ), gaps  # fmt: skip


def _most_common(names: Sequence[str], nodes: Ints, cells: Ints, lengths: Ints) -> tuple[Sequence[int], list[Gap]]:
    """The facts that most nodes report, if there are too many."""
    if len(names) <= MAX_FACTS:
        return range(len(names)), []
    pairs = np.unique(np.repeat(nodes, lengths) * len(names) + (cells >> _CODE_BITS))
    by = np.bincount(pairs % len(names))
    most = sorted(range(len(names)), key=lambda fact: (-by[fact], names[fact]))[:MAX_FACTS]
    message = f"of {len(names)} facts only the {MAX_FACTS} that most nodes state are looked at"
    return most, [Gap(kind="facts_left_out", count=len(names) - MAX_FACTS, message=message)]
