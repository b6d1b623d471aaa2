"""Floods: more than can be read at once. What is lost elsewhere comes first, nothing is lost, and the bounds hold."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Node, eventually, grows_to

from .conftest import Torture

MEMORY_MIB = 160  # what the daemon promises to stay below in any flood; idle it has some 60
FLOOD_BYTES = 2 << 30
BLOCK_BYTES = 16 << 20
INCIDENTS = 10_000
JOURNAL_BYTES = 1 << 20


def peak_mib(node: Node) -> float:
    """The most memory that the daemon ever had resident."""
    assert node.process is not None
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{node.process.pid}/status").read_text())
    assert found
    print(f"peak: {int(found[1]) / 1024:.0f} MiB")  # `pytest -rP` shows it
    return int(found[1]) / 1024


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_a_log_at_a_gigabyte_a_second_delays_no_other_and_not_the_kernels(
    make_node: Callable[..., Node], tmp_path: Path, watch: str
) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    files = {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"], "watch": watch}
    torture = Torture(make_node([files, {"kind": "kmsg", "path": str(fifo)}])).start()
    noise = b"step 12 loss 0.5 and a line like any other of a training log\n"
    noise *= BLOCK_BYTES // len(noise)
    other = torture.write(torture.logs / "other.log", 1)
    torture.all_counted()
    waited: list[float] = []
    lag = 0.0

    def kernel_lines() -> float:
        totals = re.findall(
            r'lines_matched_total{signature="torture_\d",source="kernel"} (\S+)', torture.node.get("/metrics")
        )
        return sum(map(float, totals))

    def crash_of_another_job(number: int) -> None:
        started = time.monotonic()
        with other.open("ab") as log:
            log.write(b"e2e crash seq=1 of other\n")
        with fifo.open("wb", buffering=0) as kernel:
            kernel.write(b"3,%d,%d,-;%s" % (number, number, torture.line()))
        series = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
        eventually(lambda: (torture.node.value(series) == number and kernel_lines() == number) or None)
        waited.append(time.monotonic() - started)

    with (torture.logs / "flood.log").open("ab", buffering=0) as flood:
        for block in range(FLOOD_BYTES // BLOCK_BYTES):
            flood.write(noise + torture.lines(5))
            if block % 32 == 16:
                lag = max(lag, torture.node.value('gpufault_source_lag_bytes{source="files"}') or 0.0)
                crash_of_another_job(block // 32 + 1)
    torture.all_counted()
    assert torture.counted() == torture.written
    print(f"longest wait: {max(waited):.2f} s")
    assert max(waited) < 3.0, waited
    assert lag > 0 or watch == "poll"  # between two polls that each catch up, nobody knows of a lag
    assert peak_mib(torture.node) < MEMORY_MIB


def test_ten_thousand_incidents_in_a_minute(make_node: Callable[..., Node], tmp_path: Path) -> None:
    """Each of a job of its own, with a window and a time to settle as on a node."""
    torture = Torture(
        make_node(
            [{"kind": "files", "paths": [f"{tmp_path}/jobs/*.out"]}],
            incidents={"settle": "15s", "window": "60s"},
            journal={"max_bytes": JOURNAL_BYTES},
        )
    ).start()
    node = torture.node
    scrapes: list[float] = []
    failed: list[Exception] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(0.2):
            started = time.monotonic()
            try:
                node.get("/metrics")
            except Exception as error:
                failed.append(error)
            scrapes.append(time.monotonic() - started)

    def counted() -> float:
        pattern = r'^gpufault_incidents_total{root_cause="unknown",signature="torture_\d"} (\S+)'
        return sum(map(float, re.findall(pattern, node.get("/metrics"), re.MULTILINE)))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        for number in range(INCIDENTS):
            torture.write(torture.logs / f"slurm-{number}.out", 1)
        grows_to(INCIDENTS, lambda: sum(torture.counted()))
        grows_to(INCIDENTS, counted)
    finally:
        done.set()
        scraper.join()
    assert counted() == INCIDENTS
    assert torture.counted() == torture.written
    assert failed == []
    print(f"slowest of {len(scrapes)} scrapes: {max(scrapes):.2f} s")
    assert max(scrapes) < 1.0, sorted(scrapes)[-5:]
    assert peak_mib(node) < MEMORY_MIB
    segments = list((tmp_path / "state" / "journal").iterdir())
    assert sum(path.stat().st_size for path in segments) <= JOURNAL_BYTES * 9 / 8
    eventually(lambda: node.value("gpufault_journal_segments_dropped_total") or None)
    assert node.value('gpufault_journal_records_total{kind="incident"}') == INCIDENTS


def test_told_to_stop_amid_a_flood(make_node: Callable[..., Node], tmp_path: Path) -> None:
    """SIGTERM: all that was shown is committed, and the next start goes on there."""
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    files = {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"]}
    torture = Torture(make_node([files, {"kind": "kmsg", "path": str(fifo)}])).start()
    for number in range(100):  # open incidents, and logs that are all behind
        (torture.logs / f"slurm-{number}.log").write_bytes(torture.lines(1500))
    eventually(lambda: sum(torture.counted()) > 0 or None)
    shown = sum(torture.counted())
    started = time.monotonic()
    assert torture.node.stop() == 0
    assert time.monotonic() - started < 30.0  # a second on an idle machine
    assert shown < sum(torture.written), "it was stopped in the middle"
    torture.start()
    assert sum(torture.counted()) >= shown
    torture.exact()
