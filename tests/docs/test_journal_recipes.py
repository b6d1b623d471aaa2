"""The recipes of docs/journals.md with the real programs: every record arrives, through a restart of the collector."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.history.folder_ingest import fill
from exporter.fleet.history.schema import create
from tests.e2e.conftest import eventually
from tests.support.programs import PATH, needs

PAGE = (Path(__file__).parents[2] / "docs/journals.md").read_text(encoding="utf-8")
START = 1_780_000_000.0
RSYSLOGD = shutil.which("rsyslogd", path=PATH)
MODULES = os.environ.get("RSYSLOG_MODULES", "")  # where rsyslogd is not installed in /usr

pytestmark = pytest.mark.heavy


def segment(folder: Path, number: int, hours: range) -> None:
    """A segment of a node's journal, with one record that is far longer than syslog's usual messages."""
    records = [{"kind": "heartbeat", "time": rfc3339(START + 3600 * at), "node": "n1", "hours": 1} for at in hours]
    long = {"kind": "incident", "id": f"i{number}", "time": rfc3339(START), "node": "n1", "signature": "xid",
            "excerpt": ["é\t\\ %"] * 20_000}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in [*records, long])
    (folder / f"journal-{number:06}.jsonl").write_text(lines, encoding="utf-8")


def stored(folder: Path) -> tuple[int, int, int]:
    """Hours watched, incidents, and bad lines."""
    with duckdb.connect() as db:
        create(db)
        fill(db, folder, now=START + 30 * 86400)
        row = db.execute(
            "SELECT (SELECT coalesce(sum(hours), 0) FROM watched_days), (SELECT count(*) FROM incidents),"
            " (SELECT count(*) FROM gaps)"
        ).fetchone()
    assert row is not None
    return row


@needs("rsync")
def test_rsync(tmp_path: Path) -> None:
    node, gathered = tmp_path / "node", tmp_path / "journals"
    (command,) = re.findall(r"^rsync (.+)$", PAGE, re.MULTILINE)
    command = command.replace("gpu-07:/var/lib/gpufault/journal/", f"{node}/").replace("/srv/journals", str(gathered))
    gathered.mkdir()
    for number, hours in enumerate((range(10), range(10, 30)), 1):
        segment(node, number, hours)
        (node / "state.sqlite").touch()
        subprocess.run(f"rsync {command}", shell=True, check=True)
    (node / "journal-000001.jsonl").unlink()
    subprocess.run(f"rsync {command}", shell=True, check=True)
    assert stored(gathered) == (30, 2, 0)
    assert {path.suffix for path in (gathered / "gpu-07").iterdir()} == {".jsonl"}


@needs("rsyslogd")
def test_rsyslog(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    node, gathered = tmp_path / "node", tmp_path / "journals"
    configs = []
    for name, text in zip(("node", "collector"), re.findall(r"```rsyslog\n(.*?)```", PAGE, re.DOTALL), strict=True):
        (tmp_path / f"spool-{name}").mkdir()
        changes = {
            "/var/spool/rsyslog": str(tmp_path / f"spool-{name}"), "/var/lib/gpufault/journal": str(node),
            "/srv/journals": str(gathered), "collector.example": "127.0.0.1", "6514": str(port),
        }  # fmt: skip
        for old, new in changes.items():
            text = text.replace(old, new)
        configs.append(tmp_path / f"{name}.conf")
        configs[-1].write_text(text)
    segment(node, 1, range(10))
    with rsyslog(configs[0]):
        with rsyslog(configs[1]):
            eventually(lambda: (gathered.exists() and stored(gathered) == (10, 1, 0)) or None, 60)
        segment(node, 2, range(10, 30))
        with rsyslog(configs[1]):
            eventually(lambda: stored(gathered) == (30, 2, 0) or None, 60)


@contextmanager
def rsyslog(config: Path) -> Iterator[None]:
    assert RSYSLOGD
    modules = ["-M", MODULES] if MODULES else []
    command = [RSYSLOGD, "-n", *modules, "-f", str(config), "-i", str(config.with_suffix(".pid"))]
    with config.with_suffix(".log").open("a") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
