"""What befalls the node: no space, no permission, no descriptors, floods, kills, folders that come and go."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Node, eventually
from tests.support.programs import needs, needs_root

from .conftest import Torture, both_watchers

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]

KILLS = int(os.environ.get("GPUFAULT_TORTURE_KILLS", "100"))
FLOOD = 50_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system of 8 MiB below the node's folder."""
    mounted: list[Path] = []

    def mount(name: str) -> Path:
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", path], check=True)
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=False)


def fill(path: Path) -> None:
    """Leave no space on a disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@needs_root
def test_the_disk_of_the_state_is_full_for_a_while_23(begin: Begin, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("state")
    torture = begin().start()
    log = torture.write(torture.logs / "job.log", 50)
    torture.all_counted()
    ballast = disk / "ballast"
    fill(ballast)
    torture.write(log, 5000)
    eventually(lambda: torture.node.value("gpufault_state_up") == 0.0 or None)
    ballast.unlink()
    torture.exact()
    assert torture.node.value("gpufault_state_up") == 1.0


@needs_root
@both_watchers
def test_the_mount_of_the_logs_goes_and_comes_back_31(begin: Begin, small_disk: Callable[[str], Path]) -> None:
    torture = begin("**/*.log").start()
    disk = small_disk("jobs/nfs")
    log = torture.write(disk / "job.log", 50)
    torture.all_counted()
    aside = torture.node.folder / "aside"
    aside.mkdir()
    subprocess.run(["mount", "--bind", disk, aside], check=True)
    try:
        subprocess.run(["umount", "--lazy", disk], check=True)
        torture.write(aside / "job.log", 50)
        torture.write(torture.logs / "other.log", 5)
        eventually(lambda: sum(torture.counted()) >= 55 or None)
        subprocess.run(["mount", "--bind", aside, disk], check=True)
    finally:
        subprocess.run(["umount", "--lazy", aside], check=True)
    torture.write(log, 50)
    torture.exact()


@needs_root
@needs("setpriv")
def test_a_log_that_may_be_read_later_30(begin: Begin) -> None:
    torture = begin(start="beginning")
    log = torture.write(torture.logs / "job.log", 50)
    log.chmod(0)
    torture.node.wrap = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")  # root, but held to permissions
    torture.start()
    eventually(lambda: torture.dropped("unreadable") == 1.0 or None)
    log.chmod(0o644)
    torture.exact()


def test_few_descriptors_and_many_logs_30(begin: Begin) -> None:
    torture = begin()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        torture.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in range(300):
        torture.write(torture.logs / f"rank-{number}.log", 2)
    torture.all_counted()
    for number in range(300):
        torture.write(torture.logs / f"rank-{number}.log", 2)
    torture.all_counted()
    assert torture.counted() == torture.written


@pytest.mark.nightly
def test_five_thousand_files_35(torture: Torture) -> None:
    for number in range(5000):
        torture.write(torture.logs / f"job-{number}.log", 1)
    torture.all_counted()
    for number in range(0, 5000, 7):
        torture.write(torture.logs / f"job-{number}.log", 1)
    torture.exact()


def test_jobs_come_and_go_35(torture: Torture) -> None:
    for number in range(600):
        torture.write(torture.logs / f"job-{number}.log", 2)
        if number >= 200:
            if number % 100 == 0:
                torture.all_counted()
            (torture.logs / f"job-{number - 200}.log").unlink()
    torture.exact()


def test_one_and_the_same_line_thousands_of_times(torture: Torture) -> None:
    with (torture.logs / "job.log").open("ab") as log:
        for _ in range(25):
            log.write(torture.line() * 2000)
            torture.written[torture.last % 10] += 1999
    torture.exact()


def test_names_of_files_by_the_thousand_make_no_series_42(torture: Torture) -> None:
    """But for those of crashed jobs, of which `limits.job_series` has at most 50."""
    torture.write(torture.logs / "job.log", 1)
    torture.all_counted()
    before = len(torture.node.get("/metrics").splitlines())
    for number in range(1000):
        torture.write(torture.logs / f"{'x' * 100}-{number}.log", 1)
    torture.exact()
    assert len(torture.node.get("/metrics").splitlines()) < before + 50 + 50


def test_scrapes_during_reloads_42(followed: Followed) -> None:
    torture, log = followed
    stop = threading.Event()
    failed: list[Exception] = []

    def scrape() -> None:
        while not stop.is_set():
            try:
                torture.counted()
            except Exception as error:
                failed.append(error)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        for _ in range(10):
            torture.write(log, 20)
            torture.node.process.send_signal(1)  # type: ignore[union-attr]
            torture.write(log, 20)
            torture.all_counted()
    finally:
        stop.set()
        scraper.join()
    assert failed == []
    torture.exact()


def test_killed_at_any_moment_22(followed: Followed) -> None:
    """Also while it starts, reads, commits and stops; logs are rotated in both ways meanwhile."""
    torture, log = followed
    dice = random.Random(5)
    shown = 0
    torture.node.kill()
    for number in range(KILLS):
        process = torture.node.spawn()
        time.sleep(dice.random())  # no wait for anything: the moment is what the test is about
        torture.write(log, dice.randrange(50))
        if dice.random() < 0.1:
            way = dice.choice(["rename", "copytruncate"])
            old = log.with_name(f"{log.name}.{number}")
            if way == "rename":
                log.rename(old)
                log.touch()
            else:
                shutil.copyfile(log, old)
                os.truncate(log, 0)
            torture.write(log, 10)
        process.kill()
        process.wait()
        if number % 20 == 19:
            torture.start().all_counted()
            assert sum(torture.counted()) >= shown, "a counter went back"
            shown = sum(torture.counted())
            torture.node.kill()
    torture.start().exact()


# -- the kernel's log


@pytest.fixture
def kernel(make_node: Callable[..., Node], tmp_path: Path) -> Torture:
    """A node that reads a FIFO in the form of /dev/kmsg."""
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    return Torture(make_node([{"kind": "kmsg", "path": str(fifo)}])).start()


def record(sequence: int, text: bytes) -> bytes:
    return b"3,%d,%d,-;%s\n" % (sequence, 1_000_000 + sequence, text)


def test_a_flood_of_kernel_lines_with_a_crash_in_it_33(kernel: Torture) -> None:
    with (kernel.node.folder / "kmsg").open("wb", buffering=0) as fifo:
        block = b""
        for sequence in range(FLOOD):
            text = kernel.line(ending="") if sequence % 1000 == 500 else b"usb 1-1: device not accepting address 5"
            block += record(sequence, text)
            if len(block) > 60_000 or sequence == FLOOD - 1:
                fifo.write(block)
                block = b""
        kernel.all_counted()
        assert kernel.counted() == kernel.written
