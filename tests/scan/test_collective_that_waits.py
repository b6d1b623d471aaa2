"""The ranks of a collective that timed out: the same answer in scan, its records, the journal's schema and the pages."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.incident_text import incident_text
from exporter.config import packs
from exporter.core.collectives import collective_texts
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.incidents import condense
from exporter.core.diagnosis.record_schema import as_line, incident_of, parse
from exporter.core.diagnosis.records import incident_record, line, recorded_fields
from exporter.core.matching.pipeline import Pipeline
from exporter.scan.plan import Wanted
from exporter.scan.run import scan
from tests.support.matches import NOW, Tail

CATALOGUE = packs.load()
# PyTorch's WorkNCCL::checkTimeout and its watchdog: a line with the operation, and one with the group.
TIMED_OUT = (
    "[rank{rank}]:[E302 03:04:{second:02d}.061000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600031 "
    "milliseconds before timing out.\n"
)
FAILED = (
    "[rank{rank}]:[E302 03:04:{second:02d}.062000000 ProcessGroupNCCL.cpp:2271] [PG ID 3 PG GUID {group} Rank {rank}]  failure "
    "detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {ahead}, last completed work: {done}\n"
)


def report(rank: int, seq: int, op: str = "ALLREDUCE", group: str = "7(DATA)", second: int = 5) -> str:
    values = {"rank": rank, "seq": seq, "op": op, "group": group, "second": second, "ahead": seq + 3, "done": seq - 1}
    return TIMED_OUT.format(**values) + FAILED.format(**values)


def records(folder: Path, *lines: str, workers: int = 1) -> list[dict[str, Any]]:
    path = folder / "job.out"
    path.write_text("".join(lines))
    found = scan([Wanted(str(path))], CATALOGUE, node="n1", facts={}, workers=workers)
    return [incident_record(diagnosis, CATALOGUE, "n1") for diagnosis in found.diagnoses]


def told(record: dict[str, Any]) -> list[str]:
    return collective_texts(record["collectives"])


def test_each_of_512_ranks_counts_where_it_waits(tmp_path: Path) -> None:
    ranks = list(range(512))
    random.Random(2).shuffle(ranks)
    (record,) = records(tmp_path, *(report(rank, 411 if rank == 300 else 412, second=rank % 40) for rank in ranks))
    assert record["lines"] == 1024
    assert told(record) == [
        "group 7(DATA): rank 300 is behind, in ALLREDUCE 411; 511 other ranks wait in ALLREDUCE 412"
    ]
    assert len(line(record)) < 1 << 16


def test_a_rank_that_repeats_itself_hides_no_other(tmp_path: Path) -> None:
    flood = report(0, 412) * 400
    (record,) = records(tmp_path, flood, report(1, 411), flood, report(2, 412))
    assert told(record) == ["group 7(DATA): rank 1 is behind, in ALLREDUCE 411; 2 other ranks wait in ALLREDUCE 412"]


def test_two_groups_are_two_sentences(tmp_path: Path) -> None:
    tensor = [report(rank, 900 - (rank == 2), "_ALLGATHER_BASE", "22(TENSOR)") for rank in range(4)]
    (record,) = records(tmp_path, *tensor, *(report(rank, 31, group="7(DATA)") for rank in range(4, 8)))
    assert told(record) == [
        "group 22(TENSOR): rank 2 is behind, in _ALLGATHER_BASE 899; 3 other ranks wait in _ALLGATHER_BASE 900",
        "group 7(DATA): the 4 ranks that report wait in ALLREDUCE 31; one that prints nothing may be behind",
    ]


def test_terminal_and_schema_agree(tmp_path: Path) -> None:
    (record,) = records(tmp_path, report(0, 412), report(1, 411))
    shown = " ".join(incident_text(record, CATALOGUE).split())
    (text,) = told(record)
    assert f"ranks {text}" in shown
    kept = parse(line(record))
    assert kept is not None
    assert collective_texts(incident_of(json.loads(as_line(kept))).model_dump()["collectives"]) == [text]


@pytest.mark.parametrize(
    "forged",
    [
        [{"group": "g" * 999, "reporting": 2, "places": [{"seq": 1, "ranks": ["1"] * 9999, "count": 2}]}],
        [{"places": [{"seq": n} for n in range(9999)]}] * 999,
    ],
)
def test_a_nodes_record_is_bounded(tmp_path: Path, forged: list[dict[str, Any]]) -> None:
    (record,) = records(tmp_path, report(0, 412), report(1, 411))
    kept = incident_of({**record, "collectives": forged})
    assert len(kept.collectives) <= 256
    assert all(len(each.places) <= 256 and len(each.group or "") <= 256 for each in kept.collectives)
    assert all(len(place.ranks) <= 256 for each in kept.collectives for place in each.places)


def test_a_restart_in_the_middle_changes_nothing() -> None:
    lines = [report(rank, 412 - (rank == 9)) for rank in range(40)]
    whole = _daemon("".join(lines[:20]), "".join(lines[20:]), restarts=False)
    assert _daemon("".join(lines[:20]), "".join(lines[20:]), restarts=True) == whole
    assert whole == ["group 7(DATA): rank 9 is behind, in ALLREDUCE 411; 39 other ranks wait in ALLREDUCE 412"]


def _daemon(*parts: str, restarts: bool) -> list[str]:
    """What a daemon records that reads a log in parts, and is started anew between them."""
    pipeline = Pipeline(CATALOGUE, engine="python", window=60.0)
    tracker = IncidentTracker(CATALOGUE, "n1", window=60.0, settle=15.0)
    log = Tail(pipeline)
    for part in parts:
        seen = len(log.matches)
        log.offer(part.encode())
        tracker.join(condense(log.matches[seen:], 60.0))
        if restarts:
            stored = {number: text for number, text in tracker.unsaved().items() if text}
            tracker = IncidentTracker(CATALOGUE, "n1", window=60.0, settle=15.0, stored=stored)
    (found,) = tracker.settle(NOW + 60, lambda _: {})
    record = {**incident_record(found, CATALOGUE, "n1"), **recorded_fields(found, NOW, late_after=60.0)}
    return told(record)
