"""The tables of a fleet's history in DuckDB: what pages, API and reports query.

Times are UTC epoch seconds as DOUBLE. Readers query the views `incidents`, `facts`, `job_ends`, `faults`, `boots` and
`heartbeats`; they hide records that are further in the future than a wrong clock explains. `gaps` names what could not be
used. `targets` holds the nodes that are pulled, and how that went; its counts are those of all time. `watched_days` sums
up heartbeats for all who do not need each of them.
"""

from __future__ import annotations

import duckdb

from exporter.fleet.history import retention, watched
from exporter.fleet.history.migrate import migrate

VERSION = 4  # 2: watched_days; 3: starts of jobs, faults and boots; 4: checked records, and when rows came
MEMORY = "1GB"  # of DuckDB, half of what the chart allows the service; it spills to disk beyond

# In `rows` tables each incident stands once by id, each heartbeat once by node and time; of facts only changes.
_TABLES = """
CREATE TABLE IF NOT EXISTS about (version INTEGER, horizon DOUBLE, revision BIGINT, updated DOUBLE);
CREATE TABLE IF NOT EXISTS incident_rows (
    id VARCHAR, time DOUBLE, node VARCHAR, signature VARCHAR, root_cause VARCHAR, vendor VARCHAR, severity VARCHAR,
    role VARCHAR, verdict VARCHAR, source VARCHAR, path VARCHAR, line BIGINT, gpu VARCHAR, job VARCHAR, job_user VARCHAR,
    account VARCHAR, job_name VARCHAR, image VARCHAR, namespace VARCHAR, pod VARCHAR, caused_by VARCHAR, text VARCHAR,
    record VARCHAR);
CREATE TABLE IF NOT EXISTS fact_rows (time DOUBLE, node VARCHAR, facts VARCHAR);
CREATE TABLE IF NOT EXISTS heartbeat_rows (time DOUBLE, node VARCHAR, hours DOUBLE, gpu_busy_hours DOUBLE);
CREATE TABLE IF NOT EXISTS job_end_rows (time DOUBLE, node VARCHAR, job VARCHAR, outcome VARCHAR);
ALTER TABLE job_end_rows ADD COLUMN IF NOT EXISTS started DOUBLE;
CREATE TABLE IF NOT EXISTS fault_rows (
    time DOUBLE, node VARCHAR, signature VARCHAR, root_cause VARCHAR, gpu VARCHAR, job VARCHAR, action VARCHAR,
    state VARCHAR, cleared_by VARCHAR);
CREATE TABLE IF NOT EXISTS boot_rows (time DOUBLE, node VARCHAR, boot VARCHAR);
CREATE TABLE IF NOT EXISTS cursors (
    path VARCHAR, device BIGINT, inode BIGINT, size BIGINT, changed BIGINT, position BIGINT, lines BIGINT,
    tail VARCHAR, seen DOUBLE, records BIGINT, newest DOUBLE);
CREATE TABLE IF NOT EXISTS gaps (kind VARCHAR, path VARCHAR, line BIGINT, count BIGINT, what VARCHAR, time DOUBLE);
CREATE TABLE IF NOT EXISTS pull_cursors (
    node VARCHAR, segment BIGINT, position BIGINT, tail VARCHAR, complete BOOLEAN, seen DOUBLE);
CREATE TABLE IF NOT EXISTS targets (
    node VARCHAR, address VARCHAR, state VARCHAR, what VARCHAR, pulled DOUBLE, failing_since DOUBLE, behind BIGINT,
    bytes BIGINT, records BIGINT, refused BIGINT, lost_segments BIGINT);
CREATE TABLE IF NOT EXISTS spoken (node VARCHAR, address VARCHAR, listed DOUBLE);
"""
_VIEWS = """
CREATE OR REPLACE VIEW incidents AS
    SELECT * FROM incident_rows WHERE time <= (SELECT horizon FROM about);
CREATE OR REPLACE VIEW facts AS
    SELECT * FROM fact_rows WHERE time <= (SELECT horizon FROM about);
CREATE OR REPLACE VIEW job_ends AS
    SELECT * FROM job_end_rows WHERE time <= (SELECT horizon FROM about);
CREATE OR REPLACE VIEW faults AS
    SELECT * FROM fault_rows WHERE time <= (SELECT horizon FROM about);
CREATE OR REPLACE VIEW boots AS
    SELECT * FROM boot_rows WHERE time <= (SELECT horizon FROM about);
CREATE OR REPLACE VIEW heartbeats AS
    SELECT * FROM heartbeat_rows WHERE time <= (SELECT horizon FROM about);
"""


class NewerStore(Exception):
    """The store was written by a later version."""


def create(db: duckdb.DuckDBPyConnection) -> None:
    """Create the tables where they are missing. Raises NewerStore."""
    configure(db)
    db.execute(_TABLES + watched.TABLE + retention.COLUMNS + _VIEWS)
    row = db.execute("SELECT version FROM about").fetchone()
    if row is None:
        db.execute("INSERT INTO about VALUES (?, 0, 0, 0, 0)", [VERSION])
    elif row[0] > VERSION:
        raise NewerStore(f"the store has version {row[0]}, this program writes {VERSION}; upgrade gpufault")
    elif row[0] < VERSION:
        migrate(db, row[0])
        db.execute("UPDATE about SET version = ?", [VERSION])


def configure(db: duckdb.DuckDBPyConnection) -> None:
    """Settings of a connection: times in UTC, bounded memory, no progress bar."""
    db.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{MEMORY}'; SET enable_progress_bar = false")
