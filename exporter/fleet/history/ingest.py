"""Reads what is new in a folder of journals into the tables: rows and cursors in one transaction."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import duckdb

from exporter.core.model import AHEAD_SECONDS
from exporter.fleet.history.files import Cursor, is_growing, list_files, new_lines, resume, unpack
from exporter.fleet.history.insert import MAX_LINE_BYTES, Inserted, insert
from exporter.fleet.history.retention import RAN, keep_cursors
from exporter.fleet.history.watched import roll_up

BATCH_BYTES = 32 << 20  # of one transaction: some 200,000 heartbeats
MAX_GAP_ROWS = 1000  # bad lines with their place; the others are counted a file
NAMED = 20  # bad lines of one batch of a file
TABLE = ".parquet"

GapRow = tuple[str, str, int | None, int, str]  # kind, path, line, count, what


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What one reading of the folder found. `records` counts usable ones, also those that were known already."""

    files: int
    records: int
    bad_lines: int
    seconds: float


@dataclass(slots=True)
class _Batch:
    """Lines of several files in one file. `starts`: the first row of each part (from 1), its file and its line."""

    lines: IO[bytes]
    starts: list[int]
    parts: list[tuple[str, int]]
    rows: int
    cursors: list[Cursor]
    gaps: list[GapRow]

    def place(self, row: int) -> tuple[str, int]:
        """File and line of a row, where no empty line stands before it."""
        at = bisect_right(self.starts, row) - 1
        path, line = self.parts[at]
        return path, line + row - self.starts[at]


def fill(
    db: duckdb.DuckDBPyConnection, folder: Path, *, now: float, stop: Callable[[], bool] = lambda: False
) -> Ingested:
    """Read a folder of journals once (or one file), oldest file first; ends early, between batches, where `stop()`.

    now: the service's clock. Raises NoSuchFolder, duckdb.Error.
    """
    begin = time.monotonic()
    listing = list_files(folder)
    known = _cursors(db)
    keep_cursors(db, [file.path for file in listing.files])
    read: set[str] = set()
    done: list[Inserted] = []
    _replace_gaps(
        db, "unreadable_files", [(path, None, 1, "not a regular file; not opened") for path in listing.others], now
    )
    with TemporaryDirectory(prefix="gpufault-") as scratch:
        path = Path(scratch, "batch.jsonl")
        changed = [file for file in listing.files if not _is_unchanged(file, known)]
        pending = [file for file in changed if not file.path.endswith(TABLE)]
        while pending and not stop():
            with path.open("w+b") as lines:
                batch = _Batch(lines=lines, starts=[], parts=[], rows=0, cursors=[], gaps=[])
                pending = _collect(batch, pending, known)
                lines.flush()
                done.append(_store(db, batch, str(path), now))
            read |= {file.path for file in batch.cursors}
            known = _cursors(db) if pending else known
        for file in changed:
            if file.path.endswith(TABLE) and not stop():
                done.append(_store_table(db, file, now))
                read.add(file.path)
    set_horizon(db, now)
    return Ingested(
        files=len(read), records=sum(one.good for one in done), bad_lines=sum(len(one.bad) for one in done),
        seconds=time.monotonic() - begin,
    )  # fmt: skip


def _is_unchanged(file: Cursor, known: _Known) -> bool:
    return any(
        (cursor.path, cursor.size, cursor.changed) == (file.path, file.size, file.changed) for cursor in known.of(file)
    )


class _Known:
    """Cursors by identity and by path."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._found: dict[object, list[Cursor]] = defaultdict(list)
        for cursor in cursors:
            self._found[cursor.device, cursor.inode].append(cursor)
            self._found[cursor.path].append(cursor)

    def of(self, file: Cursor) -> Sequence[Cursor]:
        """The cursors that may be this file's, the likeliest first."""
        return *self._found.get((file.device, file.inode), ()), *self._found.get(file.path, ())


def _cursors(db: duckdb.DuckDBPyConnection) -> _Known:
    rows = db.execute("SELECT path, device, inode, size, changed, position, lines, tail FROM cursors").fetchall()
    names = ("path", "device", "inode", "size", "changed", "position", "lines", "tail")
    return _Known(Cursor(**dict(zip(names, row, strict=True))) for row in rows)


def _collect(batch: _Batch, pending: Sequence[Cursor], known: _Known) -> list[Cursor]:
    """Fill a batch; the files that are left, or have more."""
    for at, file in enumerate(pending):
        room = BATCH_BYTES - batch.lines.tell()
        if room <= 0:
            return list(pending[at:])
        try:
            if not is_growing(file.path):
                _collect_archive(batch, file)
                continue
            begin = resume(file, known.of(file))
            data, after, too_long = new_lines(begin, room)
        except OSError as error:
            reason = error.strerror or str(error)
            batch.gaps.append(("unreadable_files", file.path, None, 1, reason))
            continue
        if too_long:
            what = f"longer than {MAX_LINE_BYTES >> 20} MiB; skipped"
            batch.gaps.append(("bad_lines", file.path, begin.lines + 1, 1, what))
        if data:
            _add(batch, file.path, begin.lines, data)
        more = after.position > begin.position and after.position < file.size
        # With more to read, its size is left open, so that the next pass does not take it for unchanged.
        batch.cursors.append(replace(after, size=-1) if more else after)
        if more:
            return list(pending[at:])
    return []


def _collect_archive(batch: _Batch, file: Cursor) -> None:
    begin = batch.lines.tell()
    lines, whole = unpack(file.path, batch.lines)
    if batch.lines.tell() > begin:
        batch.starts.append(batch.rows + 1)
        batch.parts.append((file.path, 1))
        batch.lines.seek(begin)
        batch.rows += sum(bool(line.strip()) for line in batch.lines)
    if not whole:
        batch.gaps.append(("damaged_files", file.path, None, 1, "damaged; the lines before the damage were read"))
    batch.cursors.append(replace(file, lines=lines))


def _add(batch: _Batch, path: str, lines_before: int, data: bytes) -> None:
    batch.starts.append(batch.rows + 1)
    batch.parts.append((path, lines_before + 1))
    batch.lines.write(data)
    batch.rows += data.count(b"\n") - _empty_lines(data)


def _empty_lines(data: bytes) -> int:
    if b"\n\n" not in data and not data.startswith(b"\n") and b"\n " not in data and b"\n\r" not in data:
        return 0
    return sum(not line.strip() for line in data.split(b"\n")[:-1])


def _store(db: duckdb.DuckDBPyConnection, batch: _Batch, path: str, now: float) -> Inserted:
    """Rows, gaps and cursors of a batch, in one transaction."""
    with transaction(db):
        found = insert(db, path, now=now) if batch.rows else Inserted(rows=0, good=0, bad=())
        gaps = [*batch.gaps, *(("bad_lines", *batch.place(row), 1, why) for row, why in found.bad)]
        _put(db, batch.cursors, gaps, now, inserted=batch.rows > 0)
    return found


def _store_table(db: duckdb.DuckDBPyConnection, file: Cursor, now: float) -> Inserted:
    """The same for a Parquet file. One that cannot be read is a gap until it changes."""
    gaps: list[GapRow] = []
    try:
        with transaction(db):
            found = insert(db, file.path, now=now, is_table=True)
            if found.bad:
                gaps.append(("bad_lines", file.path, None, len(found.bad), found.bad[0][1]))
            _put(db, [file], gaps, now, inserted=True)
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        found = Inserted(rows=0, good=0, bad=())
        with transaction(db):
            _put(db, [file], [("damaged_files", file.path, None, 1, str(error).splitlines()[0])], now, inserted=False)
    return found


def _put(
    db: duckdb.DuckDBPyConnection, cursors: Sequence[Cursor], gaps: Sequence[GapRow], now: float, *, inserted: bool
) -> None:
    _put_cursors(db, cursors, now)
    _put_gaps(db, gaps, now)
    set_horizon(db, now)
    if inserted:
        roll_up(db)
    db.execute("UPDATE about SET revision = revision + 1, updated = ?", [now])


@contextmanager
def transaction(db: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All statements within it, or none."""
    db.execute("BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # it may have ended by itself
            db.execute("ROLLBACK")
        raise


def _put_cursors(db: duckdb.DuckDBPyConnection, cursors: Sequence[Cursor], now: float) -> None:
    if not cursors:
        return
    db.executemany("DELETE FROM cursors WHERE path = ?", [[cursor.path] for cursor in cursors])
    rows = [[c.path, c.device, c.inode, c.size, c.changed, c.position, c.lines, c.tail, now, 0, None] for c in cursors]
    db.executemany(f"INSERT INTO cursors VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {RAN})", rows)


def _put_gaps(db: duckdb.DuckDBPyConnection, gaps: Sequence[GapRow], now: float) -> None:
    """Keep bad lines with their places up to a bound, the others as a count a file. A file's other gaps are replaced."""
    named: dict[str, int] = defaultdict(int)
    more: dict[str, int] = defaultdict(int)
    rows: list[list[object]] = []
    row = db.execute("SELECT count(*) FROM gaps").fetchone()
    room = MAX_GAP_ROWS - (row[0] if row else 0)
    for kind, path, line, count, what in gaps:
        if kind != "bad_lines":
            db.execute("DELETE FROM gaps WHERE kind = ? AND path = ?", [kind, path])
        elif line is not None and (named[path] >= NAMED or len(rows) >= room):
            more[path] += count
            continue
        named[path] += 1
        rows.append([kind, path, line, count, what, now])
    rows += [["bad_lines", path, None, count, "further lines", now] for path, count in more.items()]
    if rows:
        db.executemany(f"INSERT INTO gaps VALUES (?, ?, ?, ?, ?, ?, {RAN})", rows)


def _replace_gaps(
    db: duckdb.DuckDBPyConnection, kind: str, rows: Sequence[tuple[str, int | None, int, str]], now: float
) -> None:
    db.execute("DELETE FROM gaps WHERE kind = ?", [kind])
    if rows:
        db.executemany(f"INSERT INTO gaps VALUES (?, ?, ?, ?, ?, ?, {RAN})", [[kind, *row, now] for row in rows])


def set_horizon(db: duckdb.DuckDBPyConnection, now: float) -> None:
    """Hide records from the future, as the service's clock has it: what the nodes say has no part in it."""
    db.execute("UPDATE about SET horizon = $1 WHERE horizon != $1", [now + AHEAD_SECONDS])
