"""Stores what was pulled from nodes: their records, how far each was read, and gaps, in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb

from exporter.fleet.history.folder_ingest import finish, transaction
from exporter.fleet.history.insert import NewRows, add_gap, insert
from exporter.fleet.history.retention import RAN

MAX_GAPS_A_NODE = 50
OVERLAP_BYTES = 256  # read again before a cursor; they show whether the journal is still the one that was read
UNUSABLE, REFUSED_NAME = "unusable_records", "refused_name"  # kinds of gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class PullCursor:
    """How far a node's journal was read. tail: the hash of the last bytes before it, at most OVERLAP_BYTES.

    complete: the segment was read to its end, and nothing is written to it any more.
    """

    segment: int
    position: int = 0
    tail: str = ""
    complete: bool = False

    @property
    def overlap(self) -> int:
        """How many bytes before the position `tail` covers."""
        return min(self.position, OVERLAP_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledPart:
    """Records of one node, each of which names this node, the cursor after them, and gaps (kind, count, what)."""

    node: str
    rows: NewRows = field(default_factory=NewRows)
    cursor: PullCursor
    gaps: tuple[tuple[str, int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """How pulling a node goes. Times are Unix seconds; None: never, or not failing."""

    node: str
    address: str
    state: str
    what: str
    pulled: float | None
    failing_since: float | None
    behind: int
    bytes: int
    records: int
    refused: int
    lost_segments: int


def store_parts(db: duckdb.DuckDBPyConnection, parts: Sequence[PulledPart], now: float) -> dict[str, int]:
    """Store parts; returns the number of records of each node that was left out.

    If DuckDB cannot take what a node says, that node's part alone is left out. Raises duckdb.Error if nothing can be
    stored, as when the disk is full: then nothing was stored.
    """
    try:
        with transaction(db):
            _store(db, parts, now)
        return {}
    except (duckdb.OperationalError, duckdb.FatalException, duckdb.InternalException):
        raise
    except duckdb.Error as error:
        if len(parts) > 1:
            return {node: bad for part in parts for node, bad in store_parts(db, [part], now).items()}
        (part,) = parts
        message = f"{len(part.rows)} records cannot be stored: {str(error).splitlines()[0][:200]}"
        gap = (UNUSABLE, len(part.rows), message)
        with transaction(db):
            _store(db, [PulledPart(node=part.node, cursor=part.cursor, gaps=(*part.gaps, gap))], now)
        return {part.node: len(part.rows)}


def cursors(db: duckdb.DuckDBPyConnection) -> dict[str, PullCursor]:
    """How far each node was read."""
    rows = db.execute("SELECT node, segment, position, tail, complete FROM pull_cursors").fetchall()
    return {
        node: PullCursor(segment=segment, position=position, tail=tail, complete=complete)
        for node, segment, position, tail, complete in rows
    }


def target_rows(db: duckdb.DuckDBPyConnection) -> dict[str, TargetRow]:
    names = tuple(TargetRow.__dataclass_fields__)
    rows = db.execute(f"SELECT {', '.join(names)} FROM targets").fetchall()
    return {row[0]: TargetRow(**dict(zip(names, row, strict=True))) for row in rows}


def put_targets(db: duckdb.DuckDBPyConnection, rows: Sequence[TargetRow]) -> None:
    names = tuple(TargetRow.__dataclass_fields__)
    with transaction(db):
        db.execute("DELETE FROM targets")
        _put_rows(db, "targets", {name: [getattr(row, name) for row in rows] for name in names})


def _put_rows(
    db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Sequence[object]], more: str = ""
) -> None:
    """Insert rows in one statement: with one for each, 20,000 nodes would take all of the service's time."""
    lists = ", ".join(f"unnest(${name}) AS {name}" for name in columns)
    db.execute(f"INSERT INTO {table} BY NAME SELECT {lists}{more}", dict(columns))


def spoken(db: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, float]]:
    """The address that speaks for each node, and when it was last listed; see `exporter.fleet.pull.address_book`."""
    return {
        node: (at, listed) for node, at, listed in db.execute("SELECT node, address, listed FROM spoken").fetchall()
    }


def put_spoken(db: duckdb.DuckDBPyConnection, rows: Mapping[str, tuple[str, float]]) -> None:
    """Replace who speaks for whom."""
    with transaction(db):
        db.execute("DELETE FROM spoken")
        if rows:
            addresses, listed = zip(*rows.values(), strict=True)
            _put_rows(db, "spoken", {"node": list(rows), "address": addresses, "listed": listed})


def put_refused_names(db: duckdb.DuckDBPyConnection, refused: Mapping[str, str], now: float) -> None:
    """Keep why claims to be a node were refused, by node."""
    with transaction(db):
        for node, reason in refused.items():
            _put_gaps(db, node, ((REFUSED_NAME, 1, reason),), now)
        db.execute("UPDATE about SET revision = revision + 1, updated = ?", [now])


def _store(db: duckdb.DuckDBPyConnection, parts: Sequence[PulledPart], now: float) -> None:
    rows = NewRows()
    rows.extend(part.rows for part in parts)
    if rows:
        insert(db, rows, now=now)
    # The cursors follow the rows in the same transaction: neither can be there without the other.
    nodes = [part.node for part in parts]
    own = {name: [getattr(part.cursor, name) for part in parts] for name in PullCursor.__dataclass_fields__}
    db.execute("DELETE FROM pull_cursors WHERE node IN (SELECT unnest(?))", [nodes])
    _put_rows(db, "pull_cursors", {"node": nodes, **own, "seen": [now] * len(parts)}, more=f", {RAN} AS received")
    for part in parts:
        _put_gaps(db, part.node, part.gaps, now)
    finish(db, now, inserted=bool(rows))


def _put_gaps(db: duckdb.DuckDBPyConnection, node: str, gaps: Sequence[tuple[str, int, str]], now: float) -> None:
    """Add gaps. Those of the same kind and text are one with their sum; beyond a bound the oldest go."""
    for kind, count, message in gaps:
        add_gap(db, kind, node, count, message, now)
    if gaps:
        db.execute(
            """DELETE FROM gaps WHERE path = ? AND rowid NOT IN (
            SELECT rowid FROM gaps WHERE path = ? ORDER BY time DESC LIMIT ?)""",
            [node, node, MAX_GAPS_A_NODE],
        )
