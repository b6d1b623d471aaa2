"""Today's daemon on the state file of the first one: no line is lost, none is counted twice.

`first_state.sql` is what that daemon had committed, on logs that were followed, ended within a line, had been renamed, or
were finished, with an open incident. It was killed with kill -9.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from exporter.sources.files.filesystem import OpenFile
from tests.e2e.conftest import Node, eventually

STATE = Path(__file__).with_name("first_state.sql")
LINES = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
COUNTED = 7  # lines
READ = {
    "open.log": "e2e crash seq=1 of open\ne2e crash seq=2 of open\n",
    "tail.log": "step 1\ne2e crash seq=10 of tail\ne2e crash se",
    "turned.log.1": "e2e crash seq=20 of turned\ne2e crash seq=22 of turned\n",
    "turned.log": "e2e crash seq=21 of turned\n",
    "done.log.1": "step 1\nstep 2\ne2e crash seq=30 of done\n",
}
FILES = {  # the file of each stored log
    "files:LOGS/open.log": "open.log",
    "files:LOGS/tail.log": "tail.log",
    "files:LOGS/turned.log": "turned.log.1",
    "files:LOGS/turned.log#1": "turned.log",
    "files:done:LOGS/done.log": "done.log.1",
}


def restore(node: Node) -> None:
    """Write the logs as they were, and the state with the numbers that their files have here."""
    for name, text in READ.items():
        (node.logs / name).write_text(text)
    (node.folder / "state").mkdir(mode=0o700)
    db = sqlite3.connect(node.folder / "state" / "state.sqlite")
    db.executescript(STATE.read_text().replace("LOGS", str(node.logs)))
    for key, name in FILES.items():
        place, row = node.logs / name, key.replace("LOGS", str(node.logs))
        position = json.loads(db.execute("SELECT value FROM rows WHERE name = ?", (row,)).fetchone()[0])
        os.utime(place, ns=(position["modified"], position["modified"]))
        with place.open("rb") as file:
            numbers = {"inode": os.fstat(file.fileno()).st_ino, "device": os.fstat(file.fileno()).st_dev}
            position |= {**numbers, "generation": OpenFile(file.fileno(), str(place)).generation()}
        db.execute("UPDATE rows SET value = ? WHERE name = ?", (json.dumps(position), row))
    db.commit()
    db.close()


def append(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def test_the_state_of_the_first_daemon_is_continued(make_node: Callable[..., Node]) -> None:
    node = make_node()
    restore(node)
    append(node.logs / "open.log", "e2e crash seq=3 of open\n")
    append(node.logs / "turned.log.1", "e2e crash seq=23 of turned\n")
    node.start()
    append(node.logs / "tail.log", "q=11 of tail\n")
    append(node.logs / "turned.log", "e2e crash seq=24 of turned\n")
    (node.logs / "done.log.1").rename(node.logs / "again.log")
    append(node.logs / "new.log", "e2e crash seq=40 of new\n")
    eventually(lambda: (node.value(LINES) or 0) >= COUNTED + 5 or None)
    append(node.logs / "again.log", "e2e crash seq=31 of done\n")
    eventually(lambda: (node.value(LINES) or 0) >= COUNTED + 6 or None)
    eventually(lambda: any("seq=31" in record["text"] for record in node.records()) or None)
    assert node.value(LINES) == COUNTED + 6
    assert "position_unreadable" not in node.get("/metrics")
    first = {record["text"]: (record["line"], record["offset"]) for record in node.records()}
    assert first["e2e crash seq=3 of open"] == (3, 48)
    assert first["e2e crash seq=11 of tail"] == (3, 32)
    assert first["e2e crash seq=31 of done"] == (4, 39)
    assert first["e2e crash seq=21 of turned"] == (1, 0), "the incident that was open"
    assert sum(record["lines"] for record in node.records()) == 2 + 6
