"""How long the history is kept: by the time for which the service has run since a row came.

No other clock counts. The time in a record is its node's claim, often that of a job's line, and this machine's clock may
jump to 2038 and back. Time in which the service did not run keeps rows longer.
"""

import time

import duckdb

# When a row came: seconds for which the service had run by then, in all its processes.
RAN = "(SELECT ran FROM about)"
TABLES = (
    "incident_rows", "fact_rows", "heartbeat_rows", "job_end_rows", "fault_rows", "boot_rows", "watched_days", "gaps",
    "cursors", "pull_cursors",
)  # fmt: skip
FOLDER_SECONDS = 86400.0  # between two confirmations that a file is still in the folder

# What an earlier version stored came, as it were, when this one ran for the first time.
COLUMNS = "ALTER TABLE about ADD COLUMN IF NOT EXISTS ran DOUBLE DEFAULT 0;" + "".join(
    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS received DOUBLE DEFAULT 0;" for table in TABLES
)


def count_running(db: duckdb.DuckDBPyConnection, seconds: float) -> None:
    """The service has run for so many seconds more."""
    db.execute("UPDATE about SET ran = ran + ?", [max(seconds, 0.0)])


def keep_cursors(db: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
    """The cursors of files that exist stay: without them, what was deleted would be read again."""
    db.execute(
        f"UPDATE cursors SET received = {RAN} WHERE received < {RAN} - ? AND list_contains(?, path)",
        [FOLDER_SECONDS, paths],
    )


def prune(db: duckdb.DuckDBPyConnection, history: float) -> None:
    """Delete what came before the last `history` seconds; of facts each node's last ones stay. Call it in a transaction."""
    before = f"{RAN} - {float(history)}"
    db.execute(
        f"""DELETE FROM fact_rows AS f WHERE received < {before} AND EXISTS (SELECT 1 FROM fact_rows AS later
        WHERE later.node = f.node AND later.time > f.time AND later.received < {before})"""
    )
    for table in TABLES:
        if table != "fact_rows":
            db.execute(f"DELETE FROM {table} WHERE received < {before}")
    db.execute("UPDATE about SET revision = revision + 1")


class ServiceClock:
    """Unix seconds that never go back while the service runs, whatever is done to the machine's clock.

    When that clock is set back, time goes on at the rate of the monotonic clock; when it is set forward, it is believed
    for as long as it stays there.
    """

    def __init__(self) -> None:
        self._started = time.time() - time.monotonic()

    def __call__(self) -> float:
        return max(time.time(), self._started + time.monotonic())
