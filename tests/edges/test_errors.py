"""A disk or a server gives no answer, once, at any system call of a look: nothing is concluded from it.

Each scenario is run again and again, and each time the next call fails.
"""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.tailing import Node, close_nodes, copytruncate, lines, write
from tests.support.tailing_run import Numbers

BANNER = b"launcher: an option is at its default value\n" * 60
CALLS = {"stat", "lstat", "open", "pread", "fstat", "lseek", "readlink", "scandir", "ioctl"}


class Failing:
    """Lets the call number `moment` of those that ask a file system fail."""

    def __init__(self, moment: int, number: int) -> None:
        self._moment = moment
        self._number = number
        self._calls = 0

    @property
    def failed(self) -> bool:
        return self._calls > self._moment

    @contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self._before)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _before(self, _frame: object, event: str, function: object) -> None:
        asks = getattr(function, "__module__", "") in ("posix", "fcntl") and getattr(function, "__name__", "") in CALLS
        if event == "c_call" and asks:
            self._calls += 1
            if self._calls == self._moment + 1:
                raise OSError(self._number, os.strerror(self._number))


def numbered(first: int, behind: int) -> bytes:
    return b"".join(b"CRASH seq=%06d\n" % number for number in range(first, behind))


def appended(node: Node, log: Path) -> int:
    write(log, numbered(10, 20))
    return 20


def found(node: Node, log: Path) -> int:
    write(log.with_name("new.log"), numbered(10, 20))
    return 20


def linked(node: Node, log: Path) -> int:
    os.link(log, log.with_name("link.log"))
    return appended(node, log)


def renamed(node: Node, log: Path) -> int:
    appended(node, log)
    log.rename(f"{log}.1")
    write(log, numbered(20, 30))
    return 30


def copied_and_truncated(node: Node, log: Path) -> int:
    appended(node, log)
    copytruncate(log, Path(f"{log}.1"))
    write(log, numbered(20, 30))
    return 30


def compressed(node: Node, log: Path) -> int:
    appended(node, log)
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    write(log, numbered(20, 30))
    return 30


def replaced_by_a_copy(node: Node, log: Path) -> int:
    new = log.with_name("new")
    shutil.copy(log, new)
    write(new, numbered(10, 20))
    new.rename(log)
    return 20


def cut_back(node: Node, log: Path) -> int:
    os.truncate(log, log.stat().st_size - 20)
    return appended(node, log)


def written_behind_a_hole(node: Node, log: Path) -> int:
    os.truncate(log, 8 << 20)
    return appended(node, log)


def restarted(node: Node, log: Path) -> int:
    node.restart()
    return appended(node, log)


def renamed_while_down(node: Node, log: Path) -> int:
    last = renamed(node, log)
    node.crash()
    return last


def copied_and_truncated_while_down(node: Node, log: Path) -> int:
    last = copied_and_truncated(node, log)
    node.crash()
    return last


def compressed_while_down(node: Node, log: Path) -> int:
    last = compressed(node, log)
    node.crash()
    return last


SCENARIOS = [
    appended,
    found,
    linked,
    renamed,
    copied_and_truncated,
    compressed,
    replaced_by_a_copy,
    cut_back,
    written_behind_a_hole,
    restarted,
    renamed_while_down,
    copied_and_truncated_while_down,
    compressed_while_down,
]


@pytest.mark.parametrize("glob", ["*.log", "*.log*"])
@pytest.mark.parametrize("happens", SCENARIOS)
def test_a_call_fails_once_in_a_look(tmp_path: Path, happens: Callable[[Node, Path], int], glob: str) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    moment, failed = 0, True
    while failed:
        folder = tmp_path / str(moment)
        folder.mkdir()
        log = folder / "job.log"
        write(log, BANNER + numbered(0, 10))
        write(folder / "other.log", numbered(1000, 1010))
        node = Node(folder / glob, exclude=("*.gz",), pipeline=Numbers).rescan().poll(1.5).commit()
        last = happens(node, log)
        failing = Failing(moment, errno.EIO)
        with failing.on():
            node.poll(10.0)
        node.commit().settle().commit().settle()
        assert node.seen == [*range(last), *range(1000, 1010)], f"call {moment} failed; {node.said}"
        close_nodes()
        assert len(os.listdir("/proc/self/fd")) == descriptors, f"call {moment} failed"
        shutil.rmtree(folder)
        moment, failed = moment + 1, failing.failed
    assert moment > 5


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESTALE, errno.ESHUTDOWN])
def test_whatever_the_error_is(tmp_path: Path, number: int) -> None:
    for moment in range(0, 90, 3):
        folder = tmp_path / str(moment)
        folder.mkdir()
        log = folder / "job.log"
        write(log, BANNER + numbered(0, 10))
        node = Node(folder / "*.log", pipeline=Numbers).rescan().commit()
        last = replaced_by_a_copy(node, log)
        with Failing(moment, number).on():
            node.poll(10.0)
        assert node.commit().settle().seen == [*range(last)], f"call {moment} failed; {node.said}"
        close_nodes()


def test_a_rotated_file_that_can_never_be_read_does_not_hold_up_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.log"
    write(log, BANNER + lines(1))
    node = Node(log).rescan().commit()
    copytruncate(log, Path(f"{log}.1"))
    write(log, lines(2))
    bad, read = Path(f"{log}.1").stat().st_ino, os.pread

    def pread(descriptor: int, count: int, start: int) -> bytes:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, count, start)

    monkeypatch.setattr(os, "pread", pread)
    node.poll(1.0, times=120)
    assert node.seen == [1, 2]
    assert node.stats.dropped["io_error"] >= 1


@pytest.mark.parametrize(("number", "reason"), [(errno.EIO, "io_error"), (errno.ESTALE, "stale")])
def test_a_deleted_log_whose_disk_fails_once_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(log).rescan()
    write(log, lines(2))
    log.unlink()
    read = os.pread

    def fails_once(descriptor: int, count: int, start: int) -> bytes:
        monkeypatch.setattr(os, "pread", read)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pread", fails_once)
    assert node.poll().poll(11.0).settle().seen == [1, 2]
    assert node.stats.dropped == {reason: 1}


def test_a_log_that_its_server_has_forgotten_delays_the_next_one_by_a_few_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(log).rescan().commit()
    log.rename(tmp_path / "forgotten")
    write(log, lines(2))
    forgotten, status, read = (tmp_path / "forgotten").stat().st_ino, os.fstat, os.pread
    (tmp_path / "forgotten").unlink()

    def check(descriptor: int) -> None:
        if status(descriptor).st_ino == forgotten:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def fstat(descriptor: int) -> os.stat_result:
        check(descriptor)
        return status(descriptor)

    def pread(descriptor: int, count: int, start: int) -> bytes:
        check(descriptor)
        return read(descriptor, count, start)

    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(os, "pread", pread)
    assert node.poll(1.0, times=15).seen == [1, 2]
    assert node.stats.dropped == {"stale": 1}
