"""What a round of the daemon reads first: what would be overwritten, also in the middle of a flood of anything else."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from exporter.config.node import Config
from exporter.daemon.daemon import Daemon
from exporter.daemon.poll_scheduler import KERNEL_POLLS
from exporter.node.facts import NodeFacts
from exporter.probes import Gathered
from exporter.store.state import State
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
    silent = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    facts = NodeFacts(config.facts, {}, lambda: Gathered(facts={}, failed={}, gpus=()))
    state = State(config.state_dir)
    one = Daemon(config, catalogue_of(PACK), state, node="n", log=silent, facts=facts)
    yield one
    one.finish()
    state.close()


def counted(daemon: Daemon, what: tuple[str, str, str]) -> float:
    name, *labels = what
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
