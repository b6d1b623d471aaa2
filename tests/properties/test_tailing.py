"""Random programs of writing, rotating, truncating, deleting, linking, crashing and reading, against a model of which
lines were written. The programs do nothing that makes a loss unavoidable, so each line is counted exactly once.

What is unavoidable, and left out: a file deleted before it was seen, or compressed before that under a name that the globs
have or while few files may be open; a truncation of unread lines without
a copy, a line written to a deleted file that nobody reads before a crash, silence beyond the grace, and a file that is
truncated and begins again with the very bytes that were read of it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.tailing import Node, amid

KEPT = 4  # rotated files
NAMES = st.sampled_from(["a.log", "b.log"])
GLOBS = st.sampled_from(["*.log", "*.log*", "**/*.log", "?.log"])
CUTS = st.sampled_from([0, 3, 9, 17])
STEPS = 5  # of a rotation, at most

Meanwhile = int | Literal["nothing", "commit", "crash"]  # a number: in a poll, before that system call of it
PLANS = st.lists(st.sampled_from(["nothing", "commit", "crash"]) | st.integers(0, 150), min_size=STEPS, max_size=STEPS)


class Tailing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.written = 0
        self.writers: dict[str, BinaryIO] = {}  # that have a path, or what was there, open
        self.cut: dict[int, tuple[bytes, int]] = {}  # by inode: the rest of its last line, and the line's number
        self.torn: set[int] = set()  # numbers of lines that were never completed

    @initialize(glob=GLOBS, open_files=st.sampled_from([8, 1024]))
    def begin(self, glob: str, open_files: int) -> None:
        self.few_files = open_files < 1024
        self.archives_in_globs = glob == "*.log*"
        self.node = Node(self.folder / glob, exclude=("*.gz",), open_files=open_files)
        for name in ("a.log", "b.log"):
            self._append(name, 1, 0)
        self._read()

    def teardown(self) -> None:
        try:
            if hasattr(self, "node"):
                for name in ("a.log", "b.log"):
                    self._append(name, 1, 0)
                self.node.settle()
                for rest, number in self.cut.values():
                    self._tear(rest, number)
                assert self.node.seen == [n for n in range(1, self.written + 1) if n not in self.torn], self.node.stats
                self.node.close()
        finally:
            for writer in self.writers.values():
                writer.close()
            shutil.rmtree(self.folder)

    # -- what jobs do

    @rule(name=NAMES, count=st.integers(1, 40), cut=CUTS)
    def write(self, name: str, count: int, cut: int) -> None:
        self._append(name, count, cut)

    @rule(name=NAMES, append=st.booleans())
    def open(self, name: str, append: bool) -> None:
        self._close(name)
        if self._path(name).exists():
            writer = self._path(name).open("ab" if append else "r+b", buffering=0)
            writer.seek(0, os.SEEK_END)
            self.writers[name] = writer

    @rule(name=NAMES, count=st.integers(1, 20), cut=CUTS)
    def write_to_what_is_open(self, name: str, count: int, cut: int) -> None:
        if name in self.writers:
            writer = self.writers[name]
            linked = os.fstat(writer.fileno()).st_nlink > 0
            if not linked and self.few_files:
                return  # the file may have been closed already
            self._write(writer, count, cut if linked else 0)
            if not linked:
                self.node.poll(10.0).poll().commit()  # where inotify tells, an idle log is looked at every ten seconds

    @rule(name=NAMES)
    def link(self, name: str) -> None:
        path, other = self._path(name), self._path(f"linked-{name}")
        if path.exists() and not (other.exists() and other.samefile(path)):
            if other.exists():
                self._tear_at(other)
                self._read()
                other.unlink()
            os.link(path, other)

    # -- what rotation does

    @rule(name=NAMES, create=st.booleans(), plan=PLANS)
    def rename(self, name: str, create: bool, plan: list[Meanwhile]) -> None:
        if self._path(name).exists():
            self._shift(name)
            steps = [lambda: self._path(name).rename(self._path(f"{name}.1"))]
            if create:
                steps.append(self._path(name).touch)
            self._run(steps, plan)

    @rule(name=NAMES, again=st.integers(0, 20), plan=PLANS)
    def copytruncate(self, name: str, again: int, plan: list[Meanwhile]) -> None:
        path, copy = self._path(name), self._path(f"{name}.1")
        if path.exists():
            self._shift(name)
            self._tear_at(path)
            data = path.read_bytes()
            half = len(data) // 2
            steps: list[Callable[[], object]] = [copy.touch, lambda: copy.write_bytes(data[:half])]
            steps += [lambda: copy.write_bytes(data), lambda: os.truncate(path, 0)]
            if again:
                steps.append(lambda: self._append(name, again, 0))
            self._run(steps, plan)

    @rule(name=NAMES)
    def truncate(self, name: str) -> None:
        if self._path(name).exists():
            self._complete(name)
            self._read()
            os.truncate(self._path(name), 0)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self._path(name).exists():
            self._complete(name)
            self._read()
            self._path(name).unlink()

    @rule(name=NAMES, number=st.integers(1, KEPT), seen=st.booleans())
    def compress(self, name: str, number: int, *, seen: bool) -> None:
        path = self._path(f"{name}.{number}")
        if path.exists() and path.stat().st_nlink == 1:  # gzip leaves a file with other links alone
            if not self._path(name).exists():
                self._path(name).touch()
            self._close(name)
            self._tear_at(path)
            if seen or self.few_files or self.archives_in_globs:
                self._read()
            status = path.stat()
            packed = path.with_name(f"{path.name}.gz")
            packed.write_bytes(gzip.compress(path.read_bytes()))
            os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
            path.unlink()

    # -- what the node does

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.2, 5.5, 11.0]), times=st.integers(1, 3))
    def poll(self, seconds: float, times: int) -> None:
        if seconds > 2.0:
            self._forget_writers_of_left_files()
        self.node.poll(seconds, times=times)

    @rule()
    def commit(self) -> None:
        self.node.commit()

    @rule()
    def crash(self) -> None:
        for name, writer in list(self.writers.items()):
            if os.fstat(writer.fileno()).st_nlink == 0:
                self._close(name)
        self.node.crash()

    @invariant()
    def nothing_counts_twice(self) -> None:
        if hasattr(self, "node"):
            assert self.node.twice == []

    # -- parts

    def _run(self, steps: list[Callable[[], object]], plan: list[Meanwhile]) -> None:
        """Take the steps of a rotation, and between them or in the middle of a poll what the plan says."""
        for step, meanwhile in zip(steps, plan, strict=False):
            if isinstance(meanwhile, int):
                with amid(meanwhile, step):
                    self.node.poll()
                continue
            step()
            if meanwhile == "crash":
                self.crash()
            elif meanwhile == "commit":
                self.node.poll().commit()

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _append(self, name: str, count: int, cut: int) -> None:
        writer = self.writers.get(name)
        if writer is not None and writer.mode != "ab":
            self._close(name)  # would write over what another one appends
        with self._path(name).open("ab", buffering=0) as file:
            self._write(file, count, cut)

    def _write(self, file: BinaryIO, count: int, cut: int) -> None:
        """The rest of the line before, some lines, the last of them without its last bytes."""
        inode = os.fstat(file.fileno()).st_ino
        text, _ = self.cut.pop(inode, (b"", 0))
        for _ in range(count):
            self.written += 1
            text += b"%06d CRASH seq=%06d\n" % (self.written, self.written)
        if cut:
            cut = 1 if cut == 17 else cut + 6  # the newline alone, or part of the words: never part of a number
            text, self.cut[inode] = text[:-cut], (text[-cut:], self.written)
        file.write(text)

    def _complete(self, name: str) -> None:
        inode = self._path(name).stat().st_ino
        rest, _ = self.cut.pop(inode, (b"", 0))
        if rest:
            writer = self.writers.get(name)
            if writer is not None and os.fstat(writer.fileno()).st_ino == inode:
                writer.write(rest)
            else:
                with self._path(name).open("ab", buffering=0) as file:
                    file.write(rest)

    def _tear_at(self, path: Path) -> None:
        """Nobody will complete the last line of a file."""
        if torn := self.cut.pop(path.stat().st_ino, None):
            self._tear(*torn)

    def _tear(self, rest: bytes, number: int) -> None:
        if rest != b"\n":
            self.torn.add(number)

    def _read(self) -> None:
        """All there is has been seen, read and committed."""
        self._forget_writers_of_left_files()
        self.node.rescan().poll(5.5).poll(5.5).poll().commit()

    def _shift(self, name: str) -> None:
        if self._path(f"{name}.{KEPT}").exists():
            self._tear_at(self._path(f"{name}.{KEPT}"))
            self._read()
        for number in range(KEPT, 0, -1):
            for suffix in ("", ".gz"):
                path = self._path(f"{name}.{number}{suffix}")
                if path.exists():
                    path.rename(self._path(f"{name}.{number + 1}{suffix}"))
        for suffix in ("", ".gz"):
            self._path(f"{name}.{KEPT + 1}{suffix}").unlink(missing_ok=True)

    def _close(self, name: str) -> None:
        if name in self.writers:
            self.writers.pop(name).close()

    def _forget_writers_of_left_files(self) -> None:
        """Files that no path leads to are followed for a while only, so nobody writes to them for longer."""
        for name, writer in list(self.writers.items()):
            path = self._path(name)
            if not path.exists() or os.fstat(writer.fileno()).st_ino != path.stat().st_ino:
                self._close(name)


def test_any_program_is_counted_exactly() -> None:
    run_state_machine_as_test(Tailing, settings=settings(stateful_step_count=40))
