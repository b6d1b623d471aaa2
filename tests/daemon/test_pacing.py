"""What a round of the daemon reads first, how long the loop sleeps, and when matches are committed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.config.node import Config
from exporter.daemon.daemon import Daemon
from exporter.daemon.pacing import (
    BURST_SECONDS,
    INTERVAL_SECONDS,
    KERNEL_POLLS,
    KERNEL_SECONDS,
    LARGE_CHUNK_BYTES,
    NEWS_SECONDS,
    ROUND_BYTES,
    CommitPace,
    PollScheduler,
    Sleep,
)
from tests.support.daemons import finish, quiet_daemon
from tests.support.matches import catalogue_of

PACK = """
signatures:
  - {id: kernel_fault, sources: [kernel], patterns: ['a fault of the kernel']}
  - {id: job_fault, sources: [job], patterns: ['a fault of a job']}
"""
KERNEL = ("gpufault_lines_matched_total", "kernel_fault", "kernel")
JOBS = ("gpufault_lines_matched_total", "job_fault", "job")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Its job logs come before the kernel's in the configuration."""
    os.mkfifo(tmp_path / "kmsg")
    files = {"kind": "files", "paths": [f"{tmp_path}/*.log"], "start": "beginning", "watch": "poll"}
    config = Config.model_validate(
        {"state_dir": str(tmp_path / "state"), "sources": [files, {"kind": "kmsg", "path": str(tmp_path / "kmsg")}]}
    )
    daemon = quiet_daemon(config, catalogue_of(PACK))
    yield daemon
    finish(daemon)


def counted(daemon: Daemon, series: tuple[str, str, str]) -> float:
    name, *labels = series
    families = {family.name: family.samples for family in daemon.snapshot().families}
    return families.get(name, {}).get(tuple(labels), 0.0)


def faults(count: int, first: int = 0) -> bytes:
    return b"".join(b"3,%d,%d,-;a fault of the kernel\n" % (n, n) for n in range(first, first + count))


def test_the_kernels_log_is_read_before_and_between_job_logs(daemon: Daemon, tmp_path: Path) -> None:
    block = b"a fault of a job\n" * 60_000
    for number in range(8):
        (tmp_path / f"{number}.log").write_bytes(block)
    jobs = daemon.sources[0].stats

    def crash() -> None:
        deadline = time.monotonic() + 30.0
        while not jobs.bytes_read and time.monotonic() < deadline:
            time.sleep(0.001)
        (tmp_path / "kmsg").write_bytes(faults(2))  # the first chunk of job logs has been taken

    writer = threading.Thread(target=crash)
    writer.start()
    daemon.step()
    writer.join()
    assert counted(daemon, KERNEL) >= 1.0, "the second one may still get properties"
    assert counted(daemon, JOBS) < 8 * 60_000, "a round has an end"
    assert jobs.deferred["backfill"] + jobs.deferred["running"] == 1


def test_a_flood_of_the_kernels_makes_job_logs_wait_but_not_for_ever(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(b"a fault of a job\n" * 10)
    stop = threading.Event()
    written = [0]

    def flood() -> None:
        kernel = os.open(tmp_path / "kmsg", os.O_RDWR | os.O_NONBLOCK)
        while not stop.is_set():
            try:
                os.write(kernel, faults(100, written[0]))
                written[0] += 100
            except BlockingIOError:
                time.sleep(0.0005)
        os.close(kernel)

    writer = threading.Thread(target=flood)
    writer.start()
    try:
        deadline = time.monotonic() + 60.0
        while counted(daemon, JOBS) < 10 or not daemon.sources[1].stats.deferred["jobs"]:
            daemon.step()
            assert time.monotonic() < deadline
    finally:
        stop.set()
        writer.join()
    assert counted(daemon, KERNEL) > KERNEL_POLLS


def has_more_after(*sizes: int, descriptor: int | None = None) -> bool:
    chunks: list[Any] = [SimpleNamespace(data=bytes(size)) for size in sizes]
    source: Any = SimpleNamespace(overwritten=False, fileno=lambda: descriptor, poll=lambda _now: chunks)
    rounds = PollScheduler(lambda _source, _chunk: True, lambda _source, _error: None, lambda: None, time.time)
    rounds.read([source])
    return rounds.has_more


@pytest.mark.parametrize(
    ("sizes", "descriptor", "has_more"),
    [
        ((), None, False),
        ((100, 100), None, False),
        ((100, LARGE_CHUNK_BYTES), None, True),
        ((ROUND_BYTES // 16,) * 16, None, True),
        ((100,), 7, True),
    ],
)
def test_a_long_log_many_logs_or_a_journal_may_have_more(
    sizes: tuple[int, ...], descriptor: int | None, has_more: bool
) -> None:
    assert has_more_after(*sizes, descriptor=descriptor) == has_more


def test_a_round_that_read_little_is_not_behind_because_of_an_earlier_one() -> None:
    chunks: list[Any] = [SimpleNamespace(data=bytes(LARGE_CHUNK_BYTES))]
    source: Any = SimpleNamespace(overwritten=False, fileno=lambda: None, poll=lambda _now: chunks)
    rounds = PollScheduler(lambda _source, _chunk: True, lambda _source, _error: None, lambda: None, time.time)
    rounds.read([source])
    chunks.clear()
    rounds.read([source])
    assert not rounds.has_more


LONG = 30.0


class Pipe:
    """A source with a descriptor."""

    def __init__(self, *, overwritten: bool) -> None:
        self.overwritten = overwritten
        self.read, self.write = os.pipe()

    def fileno(self) -> int:
        return self.read


@pytest.fixture
def kernel() -> Iterator[Pipe]:
    pipe = Pipe(overwritten=True)
    yield pipe
    os.close(pipe.read)
    os.close(pipe.write)


def took(sleep: Sleep, sources: Any = (), seconds: float = LONG) -> float:
    begun = time.monotonic()
    sleep.until_news(sources, seconds)
    return time.monotonic() - begun


@pytest.fixture
def sleep() -> Sleep:
    """One that files have just woken."""
    sleep = Sleep()
    sleep.news.wake()
    sleep.until_news([], LONG)
    return sleep


def test_files_that_have_news_again_wait_for_the_rest_of_the_round(sleep: Sleep) -> None:
    begun = sleep._woken
    sleep.news.wake()
    sleep.until_news([], LONG)
    assert NEWS_SECONDS <= time.monotonic() - begun < LONG


def test_news_after_a_rest_is_not_held_up(sleep: Sleep) -> None:
    sleep._woken -= NEWS_SECONDS
    before = sleep._woken
    sleep.news.wake()
    assert took(sleep) < LONG
    assert sleep._woken > before


def test_a_request_does_not_wait_for_the_round(sleep: Sleep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.daemon.pacing.NEWS_SECONDS", LONG)
    sleep.waker.wake()
    assert took(sleep) < LONG
    sleep.waker.wake()
    sleep.pause([], LONG)
    assert time.monotonic() - sleep._woken < LONG


def test_a_kernel_record_does_not_wait_for_the_round(
    sleep: Sleep, kernel: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.daemon.pacing.NEWS_SECONDS", LONG)
    sleep.news.wake()
    os.write(kernel.write, b"!")
    assert took(sleep, [kernel]) < LONG


def test_kernel_records_that_keep_coming_are_read_together(
    sleep: Sleep, kernel: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.daemon.pacing.NEWS_SECONDS", LONG)
    sleep._ended -= KERNEL_SECONDS
    os.write(kernel.write, b"!")
    assert took(sleep, [kernel]) < LONG
    begun = sleep._ended
    sleep.pause([kernel], LONG)
    assert KERNEL_SECONDS <= time.monotonic() - begun < LONG
    monkeypatch.setattr("exporter.daemon.pacing.KERNEL_SECONDS", LONG)
    sleep.waker.wake()
    assert took(sleep, [kernel]) < LONG


def test_a_commit_that_is_due_does_not_wait_for_the_round(sleep: Sleep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.daemon.pacing.NEWS_SECONDS", LONG)
    sleep.news.wake()
    assert took(sleep, seconds=0.01) < LONG


def test_a_source_without_descriptor_is_only_told_of_by_news(sleep: Sleep) -> None:
    source: Any = SimpleNamespace(overwritten=False, fileno=lambda: None)
    sleep.news.wake()
    assert took(sleep, [source]) < LONG


def commits(times: list[float]) -> list[float]:
    """When matches at these times would be committed."""
    pace, done = CommitPace(), list[float]()
    for now in times:
        if pace.seconds_left(now) <= 0:
            pace.committed(now)
            done.append(now)
    return done


def test_the_first_matches_after_a_rest_are_committed_at_once() -> None:
    assert commits([1000.0, 1000.001, 1000.002]) == [1000.0, 1000.001, 1000.002]


def test_a_storm_is_committed_four_times_a_second() -> None:
    storm = [1000.0 + number / 1000 for number in range(10_000)]
    assert 40 <= len(commits(storm)) <= 40 + BURST_SECONDS / INTERVAL_SECONDS + 1


def test_no_match_of_a_storm_waits_longer_than_an_interval() -> None:
    pace, waits = CommitPace(), list[float]()
    for number in range(1000):
        now = 1000.0 + number / 1000
        waits.append(pace.seconds_left(now))
        if waits[-1] <= 0:
            pace.committed(now)
    assert max(waits) < 1.01 * INTERVAL_SECONDS


def test_a_clock_that_was_set_back_does_not_hold_up_commits() -> None:
    pace = CommitPace()
    pace.committed(2000.0)
    pace.committed(1000.0)
    assert pace.seconds_left(1000.0) < 1.5 * INTERVAL_SECONDS
