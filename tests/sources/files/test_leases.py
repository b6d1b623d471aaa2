"""Logs on a shared file system that several nodes watch: each line is counted by one node, whoever dies."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.core.decoding.jobs import job_of
from exporter.sources.files.discovery import FilesSettings
from exporter.sources.files.filesystem import may_stay
from exporter.sources.files.leases import DEAD_SECONDS, HOLD_SECONDS, RENEW_SECONDS, WAIT_SECONDS, ClaimFiles, Leases
from exporter.sources.files.source import FilesSource
from exporter.sources.node_jobs import runs_slurm_job


class Clock:
    """All clocks of a fleet: the nodes' own, and that of the file system, which dates what nodes write."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Node:
    """A node whose daemon is started, killed and started again. `counted`: the lines that its metrics have shown."""

    def __init__(
        self,
        name: str,
        folder: Path,
        clock: Clock,
        runs: Callable[[str], bool] = lambda _path: False,
        machine: str = "",
    ) -> None:
        self.name, self.folder, self.clock, self.runs, self.machine = name, folder, clock, runs, machine
        self.rows: dict[str, str] = {}
        self.counted: Counter[str] = Counter()
        self.source: FilesSource | None = None

    def start(self) -> None:
        leases = Leases(
            str(self.folder / "leases"), self.name, self.runs, machine=self.machine, clock=self.clock,
            choose=lambda nodes: nodes,
        )  # fmt: skip
        self.source = FilesSource(
            "jobs", FilesSettings(paths=(f"{self.folder}/jobs/*.log",), watch=False), stored=self.rows,
            first_start=not self.rows, job_of=job_of, log=lambda _text: None, wake=lambda: None, leases=leases,
        )  # fmt: skip

    def round(self, *, killed_before_commit: bool = False) -> None:
        """Poll, commit, show. A daemon that is killed in between has shown nothing of what it read."""
        if self.source is None:
            return
        read: Counter[str] = Counter()
        for chunk in self.source.poll(self.clock.now):
            read.update(chunk.data.decode().splitlines())
            self.source.advance(chunk.log, len(chunk.data), chunk.data.count(b"\n"))
        if killed_before_commit:
            self.kill()
            return
        for key, value in self.source.unsaved().items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self.source.saved()
        self.date_files()
        self.counted += read

    def date_files(self) -> None:
        """What the node has written has the time of the fleet's clock."""
        for path in (self.folder / "leases/nodes").glob(f"{self.name}.[01]"):
            if path.stat().st_mtime > self.clock.now or path.stat().st_mtime > time.time() - 5:
                os.utime(path, (self.clock.now, self.clock.now))

    def kill(self) -> None:
        if self.source is not None:
            self.source.close()
            self.source = None


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[list[Node]]:
    (tmp_path / "jobs").mkdir()
    clock = Clock()
    nodes = [Node(f"n{number}", tmp_path, clock) for number in range(3)]
    for node in nodes:
        node.start()
    yield nodes
    for node in nodes:
        node.kill()


def say(node: Node, log: str, *lines: str) -> None:
    with (node.folder / "jobs" / log).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def rounds(nodes: list[Node], seconds: float, step: float = 5.0) -> None:
    for _ in range(int(seconds / step)):
        nodes[0].clock.now += step
        for node in nodes:
            node.round()


def total(nodes: list[Node]) -> Counter[str]:
    return sum((node.counted for node in nodes), Counter())


def test_each_line_is_counted_by_one_node(fleet: list[Node]) -> None:
    rounds(fleet, 10)
    for log in range(6):
        say(fleet[0], f"{log}.log", f"first of {log}")
    rounds(fleet, 60)
    for log in range(6):
        say(fleet[0], f"{log}.log", f"second of {log}")
    rounds(fleet, 30)
    assert total(fleet) == Counter({f"{which} of {log}": 1 for which in ("first", "second") for log in range(6)})


def test_the_node_that_runs_the_job_counts_its_log(fleet: list[Node]) -> None:
    fleet[2].runs = lambda path: "mine" in path
    fleet[2].kill()
    fleet[2].start()
    rounds(fleet, 10)
    say(fleet[0], "mine.log", "a line")
    rounds(fleet, 40)
    assert [node.counted["a line"] for node in fleet] == [0, 0, 1]


def test_the_logs_of_a_node_that_dies_are_counted_by_another_within_a_minute(fleet: list[Node]) -> None:
    rounds(fleet, 10)
    say(fleet[0], "a.log", "one")
    rounds(fleet, 40)
    [owner] = [node for node in fleet if node.counted]
    say(fleet[0], "a.log", "two")
    owner.round(killed_before_commit=True)
    say(fleet[0], "a.log", "three")
    rounds(fleet, 60)
    assert total(fleet) == Counter(one=1, two=1, three=1)
    owner.start()  # and when it comes back it does not count them again
    say(fleet[0], "a.log", "four")
    rounds(fleet, 60)
    assert total(fleet) == Counter(one=1, two=1, three=1, four=1)
    assert owner.counted == Counter(one=1)


def test_a_node_that_is_back_soon_goes_on_with_its_logs(fleet: list[Node]) -> None:
    rounds(fleet, 10)
    say(fleet[0], "a.log", "one")
    rounds(fleet, 40)
    [owner] = [node for node in fleet if node.counted]
    owner.kill()
    rounds(fleet, 10)
    owner.start()
    say(fleet[0], "a.log", "two")
    rounds(fleet, 60)
    assert owner.counted == Counter(one=1, two=1)
    assert total(fleet) == owner.counted


def suspended_owner(fleet: list[Node]) -> Node:
    """The node that counted a log's first line, and was suspended for 70 s while the second one was written."""
    rounds(fleet, 10)
    say(fleet[0], "a.log", "one")
    rounds(fleet, 40)
    [owner] = [node for node in fleet if node.counted]
    say(fleet[0], "a.log", "two")
    rounds([node for node in fleet if node is not owner], 70)
    return owner


def test_a_node_that_was_suspended_counts_nothing_that_another_has_claimed(fleet: list[Node]) -> None:
    owner = suspended_owner(fleet)
    rounds(fleet, 30)
    assert total(fleet) == Counter(one=1, two=1)
    assert owner.counted == Counter(one=1)


def test_a_log_that_another_node_has_claimed_is_closed(fleet: list[Node]) -> None:
    owner = suspended_owner(fleet)
    assert owner.source is not None
    assert owner.source.stats.open_files == 1
    rounds(fleet, 30)
    assert owner.source.stats.open_files == 0


def test_a_node_whose_claims_fail_after_a_suspension_counts_nothing_meanwhile(
    fleet: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = suspended_owner(fleet)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(ClaimFiles, "current", fail)
        rounds([owner], 5)
    say(fleet[0], "a.log", "three")
    rounds(fleet, 30)
    assert total(fleet) == Counter(one=1, two=1, three=1)
    assert owner.counted == Counter(one=1)


@pytest.mark.parametrize("call", ["link", "pwrite"], ids=["a claim", "its offsets"])
def test_a_node_that_cannot_write_for_a_moment_goes_on(
    fleet: list[Node], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    say(fleet[0], "a.log", "a1")
    rounds(fleet, 60)
    say(fleet[0], "a.log", "a2")
    say(fleet[0], "b.log", "b1")
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        rounds(fleet, WAIT_SECONDS + 10)
    rounds(fleet, 60)
    assert total(fleet) == Counter({"a1": 1, "a2": 1, "b1": 1})


@pytest.mark.parametrize("seed", range(12))
def test_whoever_is_killed_and_started_each_line_is_counted_once(fleet: list[Node], seed: int) -> None:
    choice = random.Random(seed)
    rounds(fleet, 10)
    said: list[str] = []
    for step in range(80):
        if choice.random() < 0.5:
            said.append(f"line {step}")
            say(fleet[0], f"{choice.randrange(4)}.log", said[-1])
        node = choice.choice(fleet)
        if choice.random() < 0.15:
            if node.source is None:
                node.start()
            else:
                node.round(killed_before_commit=True)
        fleet[0].clock.now += choice.choice((0.5, 1, 5, 20))
        for each in fleet:
            if choice.random() < 0.8:
                each.round()
    for node in fleet:
        if node.source is None:
            node.start()
    rounds(fleet, 150)
    assert total(fleet) == Counter(said)


def test_nothing_is_written_beside_the_logs_and_claims_of_deleted_logs_go(fleet: list[Node], tmp_path: Path) -> None:
    rounds(fleet, 10)
    say(fleet[0], "a.log", "one")
    rounds(fleet, 40)
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["a.log"]
    assert len(list((tmp_path / "leases/logs").rglob("*.1"))) == 1
    (tmp_path / "jobs/a.log").unlink()
    stamp = time.time_ns()
    while may_stay(stamp):  # for the log's own reader, 90 s are too soon within a tick of the file system's clock
        rounds(fleet, 5)
    rounds(fleet, 90)
    assert not list((tmp_path / "leases/logs").rglob("*.*"))


def test_without_its_folder_a_node_counts_nothing_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "leases").write_text("not a folder")
    node = Node("n0", tmp_path, Clock())
    node.start()
    assert node.source is not None
    say(node, "a.log", "one")
    rounds([node], 60)
    assert not node.counted
    assert not node.source.stats.up
    assert node.source.stats.down_reason.startswith(f"{tmp_path}/leases: ")
    node.kill()


def test_requests_do_not_grow_with_the_number_of_idle_logs(fleet: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(fleet, 10)
    for log in range(200):
        say(fleet[0], f"{log}.log", "a line")
    rounds(fleet, 60)
    opened: list[str] = []
    for module in (os, io):
        monkeypatch.setattr(module, "open", _noting(module.open, opened))  # type: ignore[arg-type]
    rounds(fleet, 60)
    asked = [path for path in opened if "/leases/" in path]
    # Of each node every ten seconds: a renewal, and two files each of itself and of the node that owns the logs.
    assert 0 < len(asked) <= 3 * 7 * (1 + 2 * 2)


def _noting(open_file: Callable[..., object], opened: list[str]) -> Callable[..., object]:
    def noting(path: object, *arguments: object, **options: object) -> object:
        opened.append(str(path))
        return open_file(path, *arguments, **options)

    return noting


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("system.slice/slurmstepd.scope/job_4711", True),
        ("system.slice/n17_slurmstepd.scope/job_4711", True),
        ("memory/slurm/uid_1000/job_4711", True),
        ("freezer/slurm_n17/uid_1000/job_4711", True),
        ("system.slice/slurmstepd.scope/job_47110", False),
        ("user.slice/job_4711", False),
    ],
)
def test_a_slurm_job_runs_here_if_it_has_a_control_group(tmp_path: Path, folder: str, expected: bool) -> None:
    (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True)
    assert runs_slurm_job("4711", tmp_path) is expected
    assert not runs_slurm_job("*", tmp_path)


def test_a_torn_file_of_a_node_is_not_believed(tmp_path: Path) -> None:
    clock = Clock()
    first = Leases(str(tmp_path), "n0", lambda _path: True, clock=clock)
    log = tmp_path / "a.log"
    log.write_text("x" * 100)
    assert first.tick(()) == set()
    assert first.wants(str(log))
    first.publish({str(log): 40})
    first.publish({str(log): 70})
    newest = max(
        (tmp_path / "nodes").glob("n0.[01]"), key=lambda path: json.loads(path.read_text().split("\n")[1])["sequence"]
    )
    newest.write_text(newest.read_text().replace("70", "9"))
    second = Leases(str(tmp_path), "n0", lambda _path: True, clock=clock)
    second.tick(())
    assert second.wants(str(log))
    assert second.begin_of(str(log)) == 40


def test_the_times_leave_room_for_a_takeover_within_a_minute() -> None:
    assert RENEW_SECONDS < HOLD_SECONDS < DEAD_SECONDS
    assert DEAD_SECONDS + 2 * RENEW_SECONDS < 60
    assert WAIT_SECONDS < DEAD_SECONDS


@pytest.fixture
def clones(tmp_path: Path) -> Iterator[list[Node]]:
    """Two machines with one name, as two of one image have; none is started."""
    (tmp_path / "jobs").mkdir()
    clock = Clock()
    nodes = [Node("n0", tmp_path, clock, lambda _path: True, machine=machine) for machine in ("b", "a")]
    yield nodes
    for node in nodes:
        node.kill()


def why_down(node: Node) -> str:
    assert node.source is not None
    return "" if node.source.stats.up else node.source.stats.down_reason


@pytest.mark.parametrize("seconds", [0, 1, 7, 30, 300])
def test_of_two_machines_with_one_name_one_counts_and_the_other_tells(clones: list[Node], seconds: int) -> None:
    first, second = clones
    first.start()
    first.round()
    rounds(clones, seconds, step=1.0)
    say(first, "a.log", "one")
    first.round()
    second.start()
    rounds(clones, 60, step=1.0)
    say(first, "a.log", "two")
    say(first, "b.log", "three")
    rounds(clones, 60, step=1.0)
    assert (first.counted, second.counted) == (Counter(one=1, two=1, three=1), Counter())
    assert why_down(first) == ""
    assert "another machine is called n0 too" in why_down(second)


def test_a_machine_whose_name_is_free_again_goes_on_where_the_other_was(clones: list[Node]) -> None:
    first, second = clones
    first.start()
    first.round()
    say(first, "a.log", "one")
    rounds(clones, 20)
    second.start()
    rounds(clones, 60)
    first.kill()
    say(first, "a.log", "two")
    rounds(clones, 120)
    assert total(clones) == Counter(one=1, two=1)
    assert why_down(second) == ""
    first.start()
    rounds(clones, 60)
    say(first, "a.log", "three")
    rounds(clones, 60)
    assert total(clones) == Counter(one=1, two=1, three=1)
    assert "another machine" in why_down(first)


def test_a_machine_that_was_started_again_goes_on_with_its_logs(clones: list[Node]) -> None:
    """A boot gives it another id, and its own old files are no sign of another machine."""
    first, _ = clones
    first.start()
    first.round()
    say(first, "a.log", "one")
    rounds([first], 20)
    first.kill()
    first.clock.now += 60.0
    first.machine = "of the next boot"
    first.start()
    say(first, "a.log", "two")
    rounds([first], 20, step=1.0)
    assert first.counted == Counter(one=1, two=1)
