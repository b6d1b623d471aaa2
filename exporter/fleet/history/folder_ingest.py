"""Reads what is new in a folder of journals into the tables: rows and cursors in one transaction."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb

from exporter.core.diagnosis.record_schema import RefusedRecord, parse
from exporter.core.model import AHEAD_SECONDS
from exporter.fleet.history.insert import NewRows, insert
from exporter.fleet.history.journal_files import (
    MAX_LINE_BYTES,
    Cursor,
    Damaged,
    is_growing,
    list_files,
    new_lines,
    resume,
    whole_lines,
)
from exporter.fleet.history.retention import RAN, keep_cursors
from exporter.fleet.history.watched import roll_up

BATCH_BYTES = 32 << 20  # of one transaction: some 200,000 heartbeats
MAX_GAP_ROWS = 1000  # bad lines with their place; the others are counted a file
NAMED = 20  # bad lines of one batch of a file

GapRow = tuple[str, str, int | None, int, str]  # kind, path, line, count, what


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What one reading of the folder found. `records` counts usable ones, also those that were known already."""

    files: int
    records: int
    bad_lines: int
    seconds: float


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Records of several files, and what is wrong with these files. `refused`: unusable lines by file."""

    rows: NewRows = field(default_factory=NewRows)
    size: int = 0  # bytes
    cursors: list[Cursor] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, path: str, number: int, lines: Iterable[bytes]) -> int:
        """Check the lines of a file, of which the first one has a number; returns the number after the last one."""
        for line in lines:
            try:
                record = parse(line) if line.strip() else None
            except RefusedRecord as error:
                self.refuse(path, number, f"{error.reason} ({error.node})" if error.node else error.reason)
                record = None
            if record is not None:
                self.rows.add(record)
                self.size += len(line)
            number += 1
        return number

    def refuse(self, path: str, line: int, why: str) -> None:
        self.refused[path] += 1
        if self.refused[path] <= NAMED:
            self.gaps.append(("bad_lines", path, line, 1, why))


def fill(
    db: duckdb.DuckDBPyConnection, folder: Path, *, now: float, stop: Callable[[], bool] = lambda: False,
    is_whole: bool = False,
) -> Ingested:  # fmt: skip
    """Read a folder of journals once (or one file), oldest file first; ends early, between batches, where `stop()`.

    now: the service's, or the reader's, clock. is_whole: nobody writes to the journals, so a last line may lack its newline.
    Raises NoSuchFolder, duckdb.Error.
    """
    begin = time.monotonic()
    listing = list_files(folder)
    cursors = _cursors(db)
    keep_cursors(db, [file.path for file in listing.files])
    read: set[str] = set()
    count = bad = 0
    _replace_gaps(
        db, "unreadable_files", [(path, None, 1, "not a regular file; not opened") for path in listing.others], now
    )
    pending = [file for file in listing.files if not _is_unchanged(file, cursors)]
    while pending and not stop():
        batch = _Batch()
        pending = _collect(batch, pending, cursors, db, is_whole=is_whole)
        _store(db, batch, now)
        count += len(batch.rows)
        bad += batch.refused.total()
        read |= {file.path for file in batch.cursors}
        cursors = _cursors(db) if pending else cursors
    set_horizon(db, now)
    return Ingested(files=len(read), records=count, bad_lines=bad, seconds=time.monotonic() - begin)


def _is_unchanged(file: Cursor, cursors: _StoredCursors) -> bool:
    return any(
        (cursor.path, cursor.size, cursor.changed) == (file.path, file.size, file.changed)
        for cursor in cursors.of(file)
    )


class _StoredCursors:
    """Cursors by identity and by path."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._by_key: dict[object, list[Cursor]] = defaultdict(list)
        for cursor in cursors:
            self._by_key[cursor.device, cursor.inode].append(cursor)
            self._by_key[cursor.path].append(cursor)

    def of(self, file: Cursor) -> Sequence[Cursor]:
        """The cursors that may be this file's, the likeliest first."""
        return *self._by_key.get((file.device, file.inode), ()), *self._by_key.get(file.path, ())


def _cursors(db: duckdb.DuckDBPyConnection) -> _StoredCursors:
    rows = db.execute("SELECT path, device, inode, size, changed, position, lines, tail FROM cursors").fetchall()
    names = ("path", "device", "inode", "size", "changed", "position", "lines", "tail")
    return _StoredCursors(Cursor(**dict(zip(names, row, strict=True))) for row in rows)


def _collect(
    batch: _Batch, pending: Sequence[Cursor], cursors: _StoredCursors, db: duckdb.DuckDBPyConnection, *, is_whole: bool
) -> list[Cursor]:
    """Fill a batch; the files that are left, or have more. A file that fails leaves what others gave as it is."""
    for at, file in enumerate(pending):
        room = BATCH_BYTES - batch.size
        if room <= 0:
            return list(pending[at:])
        try:
            if not is_growing(file.path):
                _collect_whole(batch, file, db)
                continue
            begin = resume(file, cursors.of(file))
            data, after, too_long = new_lines(begin, room, is_whole=is_whole)
        except FileNotFoundError:  # gone since it was listed
            continue
        except OSError as error:
            reason = error.strerror or str(error)
            batch.gaps.append(("unreadable_files", file.path, None, 1, reason))
            continue
        if too_long:
            batch.refuse(file.path, begin.lines + 1, f"longer than {MAX_LINE_BYTES >> 20} MiB; skipped")
        batch.add(file.path, begin.lines + 1, data.split(b"\n")[:-1])
        more = after.position > begin.position and after.position < file.size
        # With more to read, its size is left open, so that the next pass does not take it for unchanged.
        batch.cursors.append(replace(after, size=-1) if more else after)
        if more:
            return list(pending[at:])
    return []


def _collect_whole(batch: _Batch, file: Cursor, db: duckdb.DuckDBPyConnection) -> None:
    """An archive or Parquet file. One that is damaged is not read again until it changes."""
    number = 1
    with db.cursor() as reader:
        try:
            for line in whole_lines(file.path, reader):
                number = batch.add(file.path, number, (line,))
        except Damaged as error:
            batch.gaps.append(("damaged_files", file.path, None, 1, str(error)))
    batch.cursors.append(replace(file, lines=number - 1))


def _store(db: duckdb.DuckDBPyConnection, batch: _Batch, now: float) -> None:
    """Rows, gaps and cursors of a batch, in one transaction."""
    with transaction(db):
        if batch.rows:
            insert(db, batch.rows, now=now)
        more = [("bad_lines", file, None, count - NAMED, "further lines") for file, count in batch.refused.items()]
        _put(db, batch.cursors, [*batch.gaps, *(gap for gap in more if gap[3] > 0)], now, inserted=bool(batch.rows))


def _put(
    db: duckdb.DuckDBPyConnection, cursors: Sequence[Cursor], gaps: Sequence[GapRow], now: float, *, inserted: bool
) -> None:
    _put_cursors(db, cursors, now)
    whole = [[cursor.path] for cursor in cursors if not is_growing(cursor.path)]
    if whole:
        db.executemany("DELETE FROM gaps WHERE kind = 'damaged_files' AND path = ?", whole)
    _put_gaps(db, gaps, now)
    finish(db, now, inserted=inserted)


def finish(db: duckdb.DuckDBPyConnection, now: float, *, inserted: bool) -> None:
    """End a transaction that stored records, or what is wrong with them."""
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
    more: Counter[str] = Counter()
    rows: list[list[object]] = []
    row = db.execute("SELECT count(*) FROM gaps").fetchone()
    room = MAX_GAP_ROWS - (row[0] if row else 0)
    for kind, path, line, count, message in gaps:
        if kind == "bad_lines" and (line is None or len(rows) >= room):
            more[path] += count
            continue
        if kind != "bad_lines":
            db.execute("DELETE FROM gaps WHERE kind = ? AND path = ?", [kind, path])
        rows.append([kind, path, line, count, message, now])
    for path, count in more.items():
        same = "FROM gaps WHERE kind = 'bad_lines' AND path = ? AND line IS NULL"
        row = db.execute(f"SELECT sum(count) {same}", [path]).fetchone()
        db.execute(f"DELETE {same}", [path])
        rows.append(["bad_lines", path, None, count + int((row and row[0]) or 0), "further lines", now])
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
