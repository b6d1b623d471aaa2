"""Two hundred nodes that write and rotate their journals, and a fleet service that pulls them; both are killed, often."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from exporter.store.journal import segments_in
from tests.e2e.conftest import eventually
from tests.fleet.pull.many_nodes import next_number
from tests.fleet.pull.nodes import name_of, serving_nodes
from tests.fleet.running import Fleet

pytestmark = pytest.mark.nightly

NODES = 200
ROUNDS = 8


def started(folder: Path, segment_bytes: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.fleet.pull.many_nodes", str(folder), str(NODES), str(segment_bytes)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}  # -m does not search here in safe mode
    with (folder.parent / "nodes.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def service(folder: Path) -> Fleet:
    return Fleet(
        folder, f"--pull.files={folder}/nodes/*.json", "--pull.interval=1s", "--pull.timeout=5s", "--refresh.interval=1d",
        f"--store.file={folder}/store.duckdb",
    )  # fmt: skip


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def segments_dropped_unseen(folder: Path) -> None:
    """While the service is down: until some journals have deleted all that they kept, however slow the disk is."""

    def kept(number: int) -> tuple[int, int]:
        """The first and the last segment; none before a node's first record, which nodes write in no order."""
        segments = segments_in(folder / name_of(number))
        return (segments[0][0], segments[-1][0]) if segments else (0, 0)

    newest = [kept(number)[1] for number in range(NODES)]
    eventually(lambda: sum(kept(number)[0] > newest[number] + 1 for number in range(NODES)) >= NODES // 10, seconds=300)


@pytest.mark.parametrize(("segment_bytes", "complete"), [(8 << 20, True), (16 << 10, False)], ids=["kept", "dropped"])
def test_kills_on_both_sides_lose_and_double_nothing_and_gaps_are_told(
    tmp_path: Path, segment_bytes: int, *, complete: bool
) -> None:
    """kept: no segment is dropped before it is pulled. dropped: journals are so small that many are."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    chance = random.Random(7)
    nodes, fleet = started(folder, segment_bytes), None
    try:
        eventually(lambda: (folder / "targets.json").exists() or None, seconds=60)
        fleet = service(tmp_path)
        if not complete:
            eventually(lambda: fleet.metric("pull_records_total"), seconds=120)
            killed(fleet.process)
            segments_dropped_unseen(folder)
            fleet = service(tmp_path)
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.3, 3.0))  # kills come at any time
            if chance.random() < 0.5:
                killed(fleet.process)
                fleet = service(tmp_path)
            else:
                killed(nodes)
                nodes = started(folder, segment_bytes)
        killed(nodes)
        # What is on disk now is served by this process; its addresses are the same, its port is another.
        written = [next_number(folder / name_of(number)) for number in range(NODES)]
        with serving_nodes(folder, segment_bytes=segment_bytes) as last:
            for number in range(NODES):
                last.add(number)
            last.target_file()
            killed(fleet.process)
            fleet = service(tmp_path)
            eventually(lambda: fleet.metric('pull_targets{state="ok"}') == NODES or None, seconds=120)
            killed(fleet.process)
    finally:
        for process in (nodes, *([fleet.process] if fleet else [])):
            killed(process)
    with duckdb.connect(str(tmp_path / "store.duckdb"), read_only=True) as db:
        rows = db.execute("SELECT node, list(id ORDER BY time) FROM incident_rows GROUP BY node").fetchall()
        gaps = dict(
            db.execute("SELECT path, sum(count) FROM gaps WHERE kind = 'dropped_segments' GROUP BY path").fetchall()
        )
        others = db.execute("SELECT DISTINCT kind FROM gaps WHERE kind NOT IN ('dropped_segments')").fetchall()
    found = {node: [int(one.rpartition("-")[2]) for one in ids] for node, ids in rows}
    assert others in ([], [("refused_not_a_record",)])  # a record that a kill cut off; it was written again
    missing = 0
    for number in range(NODES):
        name = name_of(number)
        here = found.get(name, [])
        assert here == sorted(set(here))
        assert here[-1:] == [written[number] - 1]
        holes = written[number] - here[0] - len(here)
        assert holes == 0 or gaps.get(name, 0) > 0
        missing += holes
    assert segments_in(folder / name_of(0))
    assert (missing == 0 and not gaps) if complete else gaps
    print(f"{sum(written):,} records of {NODES} nodes, {missing:,} missing in {sum(gaps.values()):,} dropped segments")
