"""A fleet's history as a file: opened once, filled by one thread, read by many."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from exporter.fleet.history import retention, schema
from exporter.fleet.history.folder_ingest import Ingested, fill, transaction
from exporter.fleet.history.insert import add_over_budget, limit_rows
from exporter.fleet.history.retention import ServiceClock

PRUNE_SECONDS = 3600.0
COUNT_SECONDS = 60.0  # of running that a kill may leave uncounted: history is then kept so much longer

# Reads what is new into the tables, until it has all or `stop()`; see `exporter.fleet.pull.puller`.
Reader = Callable[[duckdb.DuckDBPyConnection, Callable[[], bool]], Ingested]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """How reading the journals went: the last pass that ended, and why the last one failed, if it did."""

    last: Ingested | None = None
    time: float = 0.0
    failure: str = ""
    failed: float = 0.0


class StoreInUse(OSError):
    """Another process has the store open."""


class Store:
    """Raises StoreInUse, NewerStore, OSError when opened."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._db = duckdb.connect(str(path))
        except duckdb.IOException as error:
            if "lock" in str(error):
                raise StoreInUse(f"{path}: another process uses this store; give each service its own") from error
            raise OSError(
                f"{path}: {str(error).splitlines()[0]}; move it away, and the journals are read anew"
            ) from error
        os.chmod(path, 0o600)
        self.path = path
        schema.create(self._db)
        self.status = StoreStatus()
        self.revision = self._read_revision()  # changes with what a pass has read; also asked from the web's event loop
        self._clock = ServiceClock()
        self._counted = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def rows(self, query: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query, by column. From any thread; never waits for the reading of journals."""
        with self._db.cursor() as cursor:
            result = cursor.execute(query, parameters or {})
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for several queries; close it. From any thread."""
        return self._db.cursor()

    def follow(self, source: Path | Reader, *, interval: float, history: float, log: Callable[[str], None]) -> None:
        """Read what is new every `interval` seconds, in a thread, until `close`; keep `history` seconds.

        source: a folder of journals, or what reads them from elsewhere.
        """
        self._thread = threading.Thread(
            target=self._follow, args=(source, interval, history, log), name="history", daemon=True
        )
        self._thread.start()

    @property
    def is_followed(self) -> bool:
        """Whether a thread reads what is new."""
        return self._thread is not None

    def read_once(self, source: Path | Reader) -> None:
        """Read the journals once. Raises OSError, duckdb.Error."""
        with self._db.cursor() as cursor:
            if isinstance(source, Path):
                ingested = fill(cursor, source, now=self._clock(), stop=self._stop.is_set)
            else:
                ingested = source(cursor, self._stop.is_set)
        self.status = StoreStatus(last=ingested, time=time.time())
        self.revision = self._read_revision()

    def export(self, folder: Path, span: float) -> Path:
        """Write the last `span` seconds of the history as a file that `gpufault correlate` reads. Raises duckdb.Error."""
        with self._db.cursor() as cursor:
            return export(cursor, folder, since=self._newest() - span)

    def prune(self, history: float) -> None:
        """Delete what came before the service has run for the last `history` seconds. Raises duckdb.Error."""
        with self._db.cursor() as cursor, transaction(cursor):
            retention.prune(cursor, history)
            # Here, since there are hundreds of times as many as of other records, and few pages look at each.
            add_over_budget(cursor, limit_rows(cursor, "heartbeat_rows"), self._clock())
        self.revision = self._read_revision()

    def close(self) -> None:
        """Stop reading, after the current batch."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            with suppress(duckdb.Error):
                self._count_running()
        self._db.close()

    def _follow(self, source: Path | Reader, interval: float, history: float, log: Callable[[str], None]) -> None:
        pruned = float("-inf")
        while not self._stop.is_set():
            try:
                self.read_once(source)
                if time.monotonic() - self._counted > COUNT_SECONDS:
                    self._count_running()
                if time.monotonic() - pruned > PRUNE_SECONDS:
                    self.prune(history)
                    pruned = time.monotonic()
            except (OSError, duckdb.Error) as error:
                why = str(error).splitlines()[0]
                if why != self.status.failure:
                    log(why)
                self.status = StoreStatus(last=self.status.last, time=self.status.time, failure=why, failed=time.time())
            self._stop.wait(interval)

    def _read_revision(self) -> int:
        return int(self.rows("SELECT revision FROM about")[0]["revision"])

    def _count_running(self) -> None:
        now = time.monotonic()
        with self._db.cursor() as cursor:
            retention.count_running(cursor, now - self._counted)
        self._counted = now

    def _newest(self) -> float:
        row = self.rows(
            "SELECT greatest((SELECT max(time) FROM incidents), (SELECT max(last) FROM watched_days)) AS newest"
        )[0]
        return float(row["newest"] or 0.0)


EXPORTED = "history.duckdb"  # a file of this name is the service's own: its records were checked when they came
_EXPORTED_TABLES = {
    "incident_rows": "time >= $since", "heartbeat_rows": "time >= $since", "gaps": "true",
    "fact_rows": "true",  # a node's facts hold until they change, so older ones count too
}  # fmt: skip


def export(db: duckdb.DuckDBPyConnection, folder: Path, *, since: float) -> Path:
    """Write incidents and heartbeats from `since` on, all facts and gaps, to a new file for `gpufault correlate`, which cannot
    open a store that the service has open. Raises duckdb.Error, OSError."""
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / EXPORTED
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as new:
        schema.create(new)
    db.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS exported")
    try:
        for table, condition in _EXPORTED_TABLES.items():
            given = {"since": since} if "$" in condition else {}
            db.execute(f"INSERT INTO exported.{table} BY NAME SELECT * FROM {table} WHERE {condition}", given)
        db.execute("UPDATE exported.about SET horizon = (SELECT a.horizon FROM main.about AS a)")
    finally:
        db.execute("DETACH exported")
    return path
