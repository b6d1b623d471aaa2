"""What one user has many of takes no place of another user's: every limit that the users of a node share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.core.diagnosis import open_incidents
from exporter.core.model import Job
from exporter.sources import node_jobs
from exporter.sources.files import admission, offering, register
from exporter.sources.node_jobs import LastWrite, NodeJobs
from tests.support.matches import match
from tests.support.tailing import Node, lines, write

ALICE, MALLORY = 2001, 2002
MOST = 20

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="gives files to users")


def log_of(uid: int, path: Path, *numbers: int) -> Path:
    write(path, lines(*numbers))
    os.chown(path, uid, uid)
    return path


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a node that follows 20 logs at most, 40 more of which it remembers."""
    monkeypatch.setattr(admission, "MAX_FILES", MOST)
    for module in (admission, register):
        monkeypatch.setattr(module, "MAX_PAUSED", 2 * MOST)
    return tmp_path


def test_many_logs_of_a_user_take_no_place_of_another_users_and_lose_nothing(logs: Path) -> None:
    greedy = [log_of(MALLORY, logs / f"m{number}.log", number) for number in range(30)]
    node = Node(logs / "*.log").settle().rescan().commit()
    for number in range(100, 100 + MOST // 2):
        log_of(ALICE, logs / f"a{number}.log", number)
    node.rescan().commit()
    assert node.source.stats.files == MOST
    everything = [*range(30), *range(100, 100 + MOST // 2)]
    assert node.seen == everything
    for path in (*greedy, *logs.glob("a*")):  # those that lost their places go on when they grow, and where they were
        write(path, lines(int(path.stem[1:]) + 1000))
        node.settle().commit()
    assert node.restart().rescan().settle().rescan().seen == sorted([*everything, *(n + 1000 for n in everything)])
    assert node.stats.files <= MOST
    assert node.stats.dropped == {}


def test_what_is_too_much_even_to_remember_is_counted_and_costs_others_nothing(logs: Path) -> None:
    node = Node(logs / "*.log")
    for number in range(5 * MOST):
        log_of(MALLORY, logs / f"m{number}.log", number)
    node.settle().rescan()
    log_of(ALICE, logs / "a.log", 1000)
    node.rescan()
    assert node.seen[-1] == 1000
    assert node.stats.dropped == {"too_many_files": 1}  # the folder
    assert not node.twice


def test_a_paused_log_goes_on_when_there_is_a_place(logs: Path) -> None:
    for number in range(MOST):
        log_of(MALLORY, logs / f"m{number}.log", number)
    node = Node(logs / "*.log").settle().rescan()
    for number in range(100, 105):
        log_of(ALICE, logs / f"a{number}.log", number)
    node.rescan()
    for path in logs.glob("a*"):
        path.unlink()
    node.settle().rescan()
    assert node.stats.files == MOST
    assert (node.seen, node.twice) == ([*range(MOST), *range(100, 105)], [])


def test_open_files_are_shared_by_owner(tmp_path: Path) -> None:
    quiet = log_of(ALICE, tmp_path / "a.log", 0)
    node = Node(tmp_path / "*.log", open_files=8).settle()
    for number in range(1, 40):
        log_of(MALLORY, tmp_path / f"m{number}.log", number)
    node.settle().rescan()
    with quiet.open("ab", buffering=0) as writer:
        quiet.unlink()
        writer.write(lines(99))  # only who has it open still can read this
        node.settle()
    assert 99 in node.seen


def test_a_poll_reads_a_log_of_each_owner_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offering, "POLL_BYTES", 64)
    node = Node(tmp_path / "*.log").rescan()
    for number in range(50):
        log_of(MALLORY, tmp_path / f"a{number:02}.log", *range(10))
    log_of(ALICE, tmp_path / "z.log", 99)
    node.rescan().poll()
    assert 99 in node.seen
    write(tmp_path / "z.log", lines(100))
    assert 100 in node.rescan().poll().seen


def test_open_incidents_of_the_user_who_has_most_settle_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_incidents, "MAX_OPEN", 10)
    incidents = open_incidents.OpenIncidents(0.1)
    first = match("crash", job="0", origin="/a", uid=ALICE)
    crashes = [match("crash", float(n), job=str(n), origin=f"/m{n}", uid=MALLORY) for n in range(1, 20)]
    for incident in open_incidents.condense([first, *crashes], 0.1):
        incidents.join(incident)
    early = incidents.due(first.read_at, 15.0, lambda _entry: [])
    assert early
    assert {entry.incident.first.uid for entry in early} == {MALLORY}


def test_last_writes_of_the_user_who_has_most_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_jobs, "MAX_JOBS", 10)
    jobs = NodeJobs()
    writes = [
        LastWrite(
            time=float(n), job=Job(id=str(n), kind="slurm"), path="/x", origin="/x", offset=1, line=1,
            uid=MALLORY if n else ALICE,
        )
        for n in range(40)
    ]  # fmt: skip
    jobs.wrote(writes)
    assert len(jobs.last_writes) == 10
    assert ALICE in {write.uid for write in jobs.last_writes.values()}
