"""The state file: positions, counters and open incidents in one SQLite database; each commit is one transaction.

A line's position and its count are stored together or not at all, so each line is counted exactly once. This module does
not know what the rows mean. A damaged file is renamed and reported, and the daemon starts with an empty one. A file that
is deleted or replaced while in use is written again from the database that is still open.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.store.safe_open import make_private_folder, open_private

# Increase this, and add a migration from the previous version, for any change of the tables or of the contents of rows
# that another version would misread.
SCHEMA_VERSION = 1
MIGRATIONS: Mapping[int, str] = {}  # a version to the SQL that turns it into the next one
_LOCK = "lock"
BUSY_SECONDS = 1.0  # how long to wait while another program locks the file; the next commit tries again
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (space TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (space, name)) WITHOUT ROWID;
CREATE TABLE counters (name TEXT, labels TEXT, value REAL NOT NULL, PRIMARY KEY (name, labels)) WITHOUT ROWID;
CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
"""

CounterKey = tuple[str, str]  # (metric name, labels as JSON)


class StateUnusable(Exception):
    """The state folder cannot be used, so the daemon must not run. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything that was committed. `first_start`: there was no state file. `set_aside`: new path of a damaged file."""

    spaces: Mapping[str, Mapping[str, str]]
    counters: Mapping[CounterKey, float]
    first_start: bool = False
    set_aside: Path | None = None


class State:
    """The open state file. A second process on the same folder is refused."""

    def __init__(self, folder: Path) -> None:
        try:
            make_private_folder(folder)
            self._lock = _acquire_lock(folder / _LOCK)
        except OSError as error:
            raise StateUnusable(
                f"{folder}: {error.strerror}; use a folder that this user can write to, or set --state.dir"
            ) from error
        self._path = folder / "state.sqlite"
        try:
            self._db, self.loaded = self._open_or_set_aside()
            self._inodes = self._current_inodes()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def in_place(self) -> bool:
        """Whether the folder still holds the files that were opened. SQLite reports no error for deleted files."""
        return self._inodes == self._current_inodes()

    def commit(
        self,
        rows: Iterable[tuple[str, str, str | None]],
        counters: Mapping[CounterKey, float],
        records: Iterable[str],
    ) -> None:
        """Store rows (space, name, value or None to remove), counter values and journal records in one transaction.

        Raises OSError, sqlite3.Error, and StateUnusable if another process uses the folder now.
        """
        if not self.in_place:
            self._restore_files()
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
        """Number and text of committed records that may not be in the journal yet, oldest first."""
        return list(self._db.execute("SELECT number, record FROM outbox ORDER BY number LIMIT 10000"))

    def remove_delivered(self, last: int) -> None:
        """Remove the records up to number `last` from the outbox: the journal has them."""
        with self._db:
            self._db.execute("DELETE FROM outbox WHERE number <= ?", (last,))

    def keep_newest(self, count: int) -> int:
        """Remove all but the newest `count` records from the outbox. Returns the number of records removed."""
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
        os.close(open_private(self._path, os.O_RDWR))  # SQLite creates -wal and -shm with the mode of this file
        db = sqlite3.connect(self._path, isolation_level="DEFERRED", timeout=BUSY_SECONDS)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")  # what /metrics has shown must survive a power loss
            db.execute("PRAGMA wal_autocheckpoint = 256")  # pages: a WAL of 1 MiB
            db.execute("PRAGMA cache_size = -256")  # KiB, instead of 2 MiB: rows are written but rarely read
            if db.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("malformed: quick_check failed")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StateUnusable(
                    f"{self._path}: written by a newer gpufault (schema {version}; this version supports {SCHEMA_VERSION}); "
                    "upgrade again, or move the file away to start with an empty state"
                )
            is_new = version == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if is_new:
                db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            else:
                self._migrate(db, version)
            db.execute(
                "PRAGMA wal_checkpoint"
            )  # writes the schema version into the header, the only part that doctor reads
            return db, replace(_load(db), first_start=is_new)
        except BaseException:
            db.close()
            raise

    def load(self) -> Loaded:
        """Read everything that has been committed so far."""
        return _load(self._db)

    def _migrate(self, db: sqlite3.Connection, version: int) -> None:
        """Migrate the file of an older version, one version and one transaction at a time."""
        while version != SCHEMA_VERSION:
            if version not in MIGRATIONS:
                raise StateUnusable(
                    f"{self._path}: unsupported schema {version}; this version supports {SCHEMA_VERSION}; "
                    "run the version that wrote the file, or move the file away to start with an empty state"
                )
            try:
                with db:
                    db.execute("BEGIN")
                    for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {version + 1}")
            except sqlite3.Error as error:
                raise StateUnusable(
                    f"{self._path}: migration from schema {version} to {version + 1} failed: {error}; "
                    "fix the cause and restart, or move the file away to start with an empty state"
                ) from error
            version += 1

    def _current_inodes(self) -> list[tuple[int, int] | None]:
        files = (self._path, self._with_suffix("-wal"), self._path.with_name(_LOCK))
        return [_inode(path) for path in files]

    def _with_suffix(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _restore_files(self) -> None:
        """Write the open database to the folder again, after its files were deleted or replaced."""
        make_private_folder(self._path.parent)
        if _inode(self._path.with_name(_LOCK)) != _inode(self._lock):
            lock = _acquire_lock(self._path.with_name(_LOCK))
            os.close(self._lock)
            self._lock = lock
        is_ours = _inode(self._path) == self._inodes[0]
        if not is_ours and self._path.exists():
            self._set_aside("replaced")
        copy = self._with_suffix("-new")
        copy.unlink(missing_ok=True)
        os.close(open_private(copy, os.O_RDWR))
        with contextlib.closing(sqlite3.connect(copy)) as db:
            self._db.backup(db)
            db.execute("PRAGMA journal_mode = DELETE")  # everything in this one file, on disk
        for suffix in ("-wal", "-shm"):
            self._with_suffix(suffix).unlink(missing_ok=True)
        copy.rename(self._path)  # if this fails, the next commit tries again: the old database is still open
        self._db.close()  # deletes the -wal by name, so before a new one exists
        self._db, _ = self._open()
        self._inodes = self._current_inodes()

    def _set_aside(self, why: str = "damaged") -> Path:
        number = 1
        while (target := self._path.with_name(f"state.{why}-{number}.sqlite")).exists():
            number += 1
        self._path.rename(target)
        for suffix in ("-wal", "-shm"):
            file = self._with_suffix(suffix)
            if file.exists():
                file.rename(target.with_name(target.name + suffix))
        return target


def _load(db: sqlite3.Connection) -> Loaded:
    spaces: dict[str, dict[str, str]] = {}
    for space, name, value in db.execute("SELECT space, name, value FROM rows"):
        spaces.setdefault(space, {})[name] = value
    counters = {(n, ls): v for n, ls, v in db.execute("SELECT name, labels, value FROM counters")}
    return Loaded(spaces, counters)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file's content is damaged; otherwise the disk, the permissions or another process caused the error."""
    messages = ("malformed", "no such", "Could not decode")
    return not isinstance(error, sqlite3.OperationalError) or any(message in str(error) for message in messages)


def _inode(file: Path | int) -> tuple[int, int] | None:
    """Device and inode of a path or descriptor; None if missing."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _acquire_lock(path: Path) -> int:
    """Lock a file and return its descriptor. The kernel releases the lock when the process ends, even after SIGKILL."""
    descriptor = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StateUnusable(
            f"{path.parent}: another gpufault is running on this state; stop it, or set --state.dir"
        ) from None
    return descriptor
