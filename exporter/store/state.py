"""What survives a crash: positions, counters and open incidents, in one SQLite file, each commit one transaction.

Either a line's position and its count are both stored or neither is: that is what "exactly once" rests on. Nothing here
knows what the rows mean. A file that is damaged is set aside, kept, and said so; the daemon goes on with a fresh one. One
that is deleted or replaced under the daemon is written anew from what SQLite still has open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.store import private_files

# Of the tables and of what is in their rows: whoever changes either so that another version would misread it raises this
# and writes down how the version before becomes this one. A change that both read right needs neither.
SCHEMA_VERSION = 1
MIGRATIONS: Mapping[int, str] = {}  # version to the SQL that makes the next one of it
_LOCK = "lock"
BUSY_SECONDS = 1.0  # somebody looks at the file with another program; the next commit tries again
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (space TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (space, name)) WITHOUT ROWID;
CREATE TABLE counters (name TEXT, labels TEXT, value REAL NOT NULL, PRIMARY KEY (name, labels)) WITHOUT ROWID;
CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
"""

CounterKey = tuple[str, str]  # (metric name, labels as JSON)


class StateUnusable(Exception):
    """The state folder cannot be used, and the daemon must not run without it. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that an earlier process committed. `first_start`: nothing was there. `set_aside`: where a damaged file went."""

    spaces: Mapping[str, Mapping[str, str]]
    counters: Mapping[CounterKey, float]
    first_start: bool = False
    set_aside: Path | None = None


class State:
    """The open state file. One per process: a second process on the same folder is refused."""

    def __init__(self, folder: Path) -> None:
        try:
            private_files.make_folder(folder)
            self._lock = _only_one(folder / _LOCK)
        except OSError as error:
            raise StateUnusable(
                f"{folder}: {error.strerror}; make it a folder that this user may write, or give --state.dir"
            ) from error
        self._path = folder / "state.sqlite"
        try:
            self._db, self.loaded = self._open_or_set_aside()
            self._files = self._files_now()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def in_place(self) -> bool:
        """Whether what was opened still is what stands in the folder. SQLite writes to a deleted file without a word."""
        return self._files == self._files_now()

    def commit(
        self,
        rows: Iterable[tuple[str, str, str | None]],
        counters: Mapping[CounterKey, float],
        records: Iterable[str],
    ) -> None:
        """Store rows (space, name, value or None to remove), counter values and journal records in one transaction.

        Raises StateUnusable where another process has taken the folder over.
        """
        if not self.in_place:
            self._put_back()
        db = self._db
        with db:
            for space, name, value in rows:
                if value is None:
                    db.execute("DELETE FROM rows WHERE space = ? AND name = ?", (space, name))
                else:
                    db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (space, name, value))
            db.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?, ?)", [(n, ls, v) for (n, ls), v in counters.items()]
            )
            db.executemany("INSERT INTO outbox (record) VALUES (?)", [(record,) for record in records])

    def outbox(self) -> list[tuple[int, str]]:
        """Records that are committed but not yet known to be in the journal, oldest first."""
        return list(self._db.execute("SELECT number, record FROM outbox ORDER BY number LIMIT 10000"))

    def delivered(self, last: int) -> None:
        """Records up to number `last` are in the journal."""
        with self._db:
            self._db.execute("DELETE FROM outbox WHERE number <= ?", (last,))

    def keep_newest(self, count: int) -> int:
        """Give up the oldest records of the outbox, if there are more than `count`. How many there were."""
        with self._db:
            newest = self._db.execute("SELECT max(number) FROM outbox").fetchone()[0] or 0
            return self._db.execute("DELETE FROM outbox WHERE number <= ?", (newest - count,)).rowcount

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        os.close(self._lock)

    def _open_or_set_aside(self) -> tuple[sqlite3.Connection, Loaded]:
        set_aside = None
        while True:
            try:
                db, loaded = self._open()
            except sqlite3.DatabaseError as error:
                if set_aside or not _is_damage(error):
                    raise StateUnusable(f"{self._path}: {error}; is the disk full or read-only?") from error
                set_aside = self._set_aside()
            else:
                return db, replace(loaded, first_start=loaded.first_start and not set_aside, set_aside=set_aside)

    def _open(self) -> tuple[sqlite3.Connection, Loaded]:
        os.close(private_files.open_file(self._path, os.O_RDWR))  # SQLite gives -wal and -shm the modes of this one
        db = sqlite3.connect(self._path, isolation_level="DEFERRED", timeout=BUSY_SECONDS)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")  # what /metrics has shown must survive power loss too
            db.execute("PRAGMA wal_autocheckpoint = 256")  # pages: a WAL of 1 MiB
            db.execute("PRAGMA cache_size = -256")  # KiB of pages, instead of 2 MiB: rows are written, hardly ever read
            if db.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("malformed: quick_check failed")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StateUnusable(
                    f"{self._path}: written by a newer gpufault (schema {version}, this one knows {SCHEMA_VERSION}); "
                    "upgrade again, or move the file away to start afresh"
                )
            is_new = version == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if is_new:
                db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            else:
                self._migrate(db, version)
            db.execute("PRAGMA wal_checkpoint")  # the header tells its schema from now on: doctor reads no more
            return db, replace(_load(db), first_start=is_new)
        except BaseException:
            db.close()
            raise

    def load(self) -> Loaded:
        """All that has been committed so far."""
        return _load(self._db)

    def _migrate(self, db: sqlite3.Connection, version: int) -> None:
        """Make an older version's file one of this version, step by step, each step one transaction."""
        while version != SCHEMA_VERSION:
            if version not in MIGRATIONS:
                raise StateUnusable(
                    f"{self._path}: of a schema that this gpufault cannot read ({version}; it knows {SCHEMA_VERSION}); "
                    "start the version that wrote it, or move the file away to start afresh"
                )
            try:
                with db:
                    db.execute("BEGIN")
                    for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {version + 1}")
            except sqlite3.Error as error:
                raise StateUnusable(
                    f"{self._path}: still of schema {version}, since making it {version + 1} failed: {error}; "
                    "fix that and start again, or move the file away to start from zero"
                ) from error
            version += 1

    def _files_now(self) -> list[tuple[int, int] | None]:
        files = (self._path, self._side("-wal"), self._path.with_name(_LOCK))
        return [_inode(path) for path in files]

    def _side(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _put_back(self) -> None:
        """Write all that was committed into the folder again, which has been deleted, emptied or exchanged."""
        private_files.make_folder(self._path.parent)
        if _inode(self._path.with_name(_LOCK)) != _inode(self._lock):
            lock = _only_one(self._path.with_name(_LOCK))
            os.close(self._lock)
            self._lock = lock
        ours = _inode(self._path) == self._files[0]
        if not ours and self._path.exists():
            self._set_aside("replaced")
        copy = self._side("-new")
        copy.unlink(missing_ok=True)
        os.close(private_files.open_file(copy, os.O_RDWR))
        with contextlib.closing(sqlite3.connect(copy)) as db:
            self._db.backup(db)
            db.execute("PRAGMA journal_mode = DELETE")  # all of it in this one file, on disk
        for suffix in ("-wal", "-shm"):
            self._side(suffix).unlink(missing_ok=True)
        copy.rename(self._path)  # may fail, and is tried again by the next commit, from what is open still
        self._db.close()  # removes its -wal by name, so before there is another
        self._db, _ = self._open()
        self._files = self._files_now()

    def _set_aside(self, why: str = "damaged") -> Path:
        number = 1
        while (target := self._path.with_name(f"state.{why}-{number}.sqlite")).exists():
            number += 1
        self._path.rename(target)
        for suffix in ("-wal", "-shm"):
            side = self._side(suffix)
            if side.exists():
                side.rename(target.with_name(target.name + suffix))
        return target


def _load(db: sqlite3.Connection) -> Loaded:
    spaces: dict[str, dict[str, str]] = {}
    for space, name, value in db.execute("SELECT space, name, value FROM rows"):
        spaces.setdefault(space, {})[name] = value
    counters = {(n, ls): v for n, ls, v in db.execute("SELECT name, labels, value FROM counters")}
    return Loaded(spaces, counters)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file's content is at fault, and not the disk, the permissions or another process."""
    told = ("malformed", "no such", "Could not decode")
    return not isinstance(error, sqlite3.OperationalError) or any(words in str(error) for words in told)


def _inode(file: Path | int) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _only_one(path: Path) -> int:
    """Hold a lock for as long as the process lives; the kernel lets go of it when it dies, however it dies."""
    descriptor = private_files.open_file(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StateUnusable(
            f"{path.parent}: another gpufault is running on this state; stop it, or give --state.dir"
        ) from None
    return descriptor
