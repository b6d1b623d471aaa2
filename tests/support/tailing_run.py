"""One run of a program: what jobs, rotation and the node do, and a model of which lines were written. It does nothing that
makes a loss unavoidable, so each line is counted exactly once.

What is unavoidable, and left out: a file deleted before it was seen, or compressed before that under a name that the globs
have or while few files may be open; a truncation of unread lines without a copy, a line written to a deleted file that
nobody reads before a crash, silence beyond the grace, and a file that is truncated and begins again with the very bytes
that were read of it.
"""

from __future__ import annotations

import errno
import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from exporter.core.matching.pipeline import Pipeline, Processed
from exporter.core.model import Chunk
from tests.support.folder_of_logs import Files, Writer
from tests.support.tailing import Node

KEPT = 4  # rotated files
KNOWN_BYTES = 1024  # by so many, a copy of a log is known
NAMES = ("a", "b")  # of two logs; the files are called as the program says
NUMBERED = re.compile(rb"CRASH seq=(\d{6})(?!\d)")
LINE = b"%06d CRASH seq=%06d\n"

Meanwhile = int | Literal["nothing", "commit", "crash"]  # a number: in a poll, before that system call of it


class Numbered(NamedTuple):
    captures: Mapping[str, str]


class Miscounted(AssertionError):
    """A line was lost or counted twice."""


class Numbers(Pipeline):
    """Counts lines by their numbers, the last one of a quiet log also without its newline: a tenth of the work of looking
    for patterns.
    """

    def __init__(self, _line_bytes: int) -> None:
        self._early: dict[str, str] = {}  # by log: the offset of a line that was counted before it was consumed
        self._changed: set[str] = set()

    def restore(self, rows: Mapping[str, str]) -> None:
        self._early = dict(rows)

    def forget(self, log: str) -> None:
        self._early.pop(log, None)
        self._changed.add(log)

    def unsaved(self) -> dict[str, str | None]:
        return {log: self._early.get(log) for log in self._changed}

    def saved(self) -> None:
        self._changed.clear()

    def process(self, chunk: Chunk, _until: int | None = None) -> Processed:
        data, matches = chunk.data, list[Any]()
        whole = data.rfind(b"\n") + 1
        limit = whole if chunk.end == "more" else len(data)
        for found in NUMBERED.finditer(data, 0, limit):
            at = str(chunk.offset + found.start())
            if self._early.get(chunk.log) != at:
                matches.append(Numbered({"seq": found[1].decode()}))
            if found.end() > whole:
                self._early[chunk.log] = at
                self._changed.add(chunk.log)
        consumed = whole if chunk.end == "quiet" else limit
        return Processed(consumed, data.count(b"\n", 0, consumed), tuple(matches))


class Run:
    """One run of a program."""

    def __init__(
        self,
        files: Files,
        pipeline: Callable[[int], Pipeline],
        *,
        names: Mapping[str, str],
        globs: Sequence[str],
        open_files: int,
    ) -> None:
        self.files = files
        self.names = names
        self.written = 0
        self.writers: dict[str, Writer] = {}  # that have a path, or what was there, open
        self.cut: dict[int, tuple[bytes, int]] = {}  # by inode: the rest of its last line, and the line's number
        self.torn: set[int] = set()  # numbers of lines that were never completed
        self.few_files = open_files < 1024
        self.rotated_in_globs = any(glob.startswith("*.log") and glob != "*.log" for glob in globs)
        self.node = Node(*map(files.path, globs), exclude=("*.gz",), open_files=open_files, pipeline=pipeline)

    def begin(self) -> None:
        for name in self.names.values():
            self._append(name, 1, 0)
        self._read()

    def take(self, what: str, arguments: Mapping[str, Any]) -> None:
        """Take one step: `what` names a method below."""
        named = {"name": self.names[arguments["name"]]} if "name" in arguments else {}
        getattr(self, what)(**{**arguments, **named})
        if self.node.twice:
            raise Miscounted(f"counted twice: {self.node.twice}")

    def end(self) -> None:
        for name in self.names.values():
            self._append(name, 1, 0)
        self.node.settle()
        for rest, number in self.cut.values():
            self._tear(rest, number)
        expected = [n for n in range(1, self.written + 1) if n not in self.torn]
        if self.node.seen != expected:
            raise Miscounted(f"lost: {sorted(set(expected) - set(self.node.seen))}, twice: {self.node.twice}")

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.node.close()

    # -- what jobs do

    def write(self, name: str, count: int, cut: int) -> None:
        self._append(name, count, cut)

    def open(self, name: str, *, append: bool) -> None:
        self._close(name)
        if self.files.exists(name):
            self.writers[name] = self.files.open(name, append=append)

    def write_to_what_is_open(self, name: str, count: int, cut: int) -> None:
        if name in self.writers:
            writer = self.writers[name]
            linked = writer.links > 0
            if not linked and self.few_files:
                return  # the file may have been closed already
            self._write(writer, count, cut if linked else 0)
            if not linked:
                self.node.poll(10.0).poll().commit()  # where inotify tells, an idle log is looked at every ten seconds

    def link(self, name: str) -> None:
        files, other = self.files, f"linked-{name}"
        if files.exists(name) and not (files.exists(other) and files.inode(other) == files.inode(name)):
            if files.exists(other):
                self._tear_at(other)
                self._read()
                files.remove(other)
            files.link(name, other)

    # -- what rotation does

    def rename(self, name: str, *, create: bool, plan: Sequence[Meanwhile]) -> None:
        if self.files.exists(name):
            self._shift(name)
            steps: list[Callable[[], object]] = [lambda: self.files.rename(name, f"{name}.1")]
            if create:
                steps.append(lambda: self.files.touch(name))
            self._run(steps, plan)

    def copytruncate(self, name: str, again: int, plan: Sequence[Meanwhile]) -> None:
        files, copy = self.files, f"{name}.1"
        if files.exists(name):
            self._shift(name)
            self._tear_at(name)
            data = files.read(name)
            half = data[: len(data) // 2]
            steps: list[Callable[[], object]] = [lambda: files.touch(copy), lambda: files.overwrite(copy, half)]
            steps += [lambda: files.overwrite(copy, data), lambda: files.truncate(name)]
            if again:
                steps.append(lambda: self._append(name, again, 0))
            self._run(steps, plan)

    def replace(self, name: str, *, keeps_time: bool, plan: Sequence[Meanwhile]) -> None:
        """A copy takes the place of a log, as rsync and editors make it. One that is too short to be known is another log."""
        files, copy = self.files, f".{name}.new"
        if files.exists(name) and len(files.read(name)) > KNOWN_BYTES and files.links(name) == 1:
            self._close(name)
            self._complete(name)
            self._read()
            data = files.read(name)
            steps: list[Callable[[], object]] = [lambda: files.overwrite(copy, data)]
            if keeps_time:
                steps.append(lambda: files.give_time_of(copy, name))
            steps.append(lambda: files.rename(copy, name))
            self._run(steps, plan)

    def truncate(self, name: str) -> None:
        if self.files.exists(name):
            self._complete(name)
            self._read()
            self.files.truncate(name)

    def delete(self, name: str) -> None:
        if self.files.exists(name):
            self._complete(name)
            self._read()
            self.files.remove(name)

    def compress(self, name: str, number: int, *, seen: bool) -> None:
        files, rotated = self.files, f"{name}.{number}"
        if files.exists(rotated) and files.links(rotated) == 1:  # gzip leaves a file with other links alone
            if not files.exists(name):
                files.touch(name)
            self._close(name)
            self._tear_at(rotated)
            if seen or self.few_files or self.rotated_in_globs:
                self._read()
            packed = f"{rotated}.gz"
            files.overwrite(packed, gzip.compress(files.read(rotated)))
            files.give_time_of(packed, rotated)
            files.remove(rotated)

    # -- what the node does

    def poll(self, seconds: float, times: int) -> None:
        if seconds > 2.0:
            self._forget_writers_of_left_files()
        self.node.poll(seconds, times=times)

    def commit(self) -> None:
        self.node.commit()

    def crash(self) -> None:
        for name, writer in list(self.writers.items()):
            if writer.links == 0:
                self._close(name)
        self.node.crash()

    def stop(self) -> None:
        """SIGTERM, and a new process: a log that nobody has a name for is not found again."""
        for name, writer in list(self.writers.items()):
            if writer.links == 0:
                self._close(name)
        self.node.restart()

    def fail(self, call: int, error: str) -> None:
        """A system call of a poll fails."""
        with self.files.failing(call, getattr(errno, error)):
            self.node.poll()

    # -- parts

    def _run(self, steps: list[Callable[[], object]], plan: Sequence[Meanwhile]) -> None:
        """Take the steps of a rotation, and between them or in the middle of a poll what the plan says."""
        for step, meanwhile in zip(steps, plan, strict=False):
            if isinstance(meanwhile, int):
                with self.files.amid(meanwhile, step):
                    self.node.poll()
                continue
            step()
            if meanwhile == "crash":
                self.crash()
            elif meanwhile == "commit":
                self.node.poll().commit()

    def _append(self, name: str, count: int, cut: int) -> None:
        writer = self.writers.get(name)
        if writer is not None and not writer.appends:
            self._close(name)  # would write over what another one appends
        if not self.files.exists(name):
            self.files.touch(name)
        file = self.files.open(name, append=True)
        self._write(file, count, cut)
        file.close()

    def _write(self, file: Writer, count: int, cut: int) -> None:
        """The rest of the line before, some lines, the last of them without its last bytes."""
        text, _ = self.cut.pop(file.inode, (b"", 0))
        for _ in range(count):
            self.written += 1
            text += LINE % (self.written, self.written)
        if cut:
            cut = 1 if cut == 17 else cut + 6  # the newline alone, or part of the words: never part of a number
            text, self.cut[file.inode] = text[:-cut], (text[-cut:], self.written)
        file.write(text)

    def _complete(self, name: str) -> None:
        inode = self.files.inode(name)
        rest, _ = self.cut.pop(inode, (b"", 0))
        if rest:
            writer = self.writers.get(name)
            if writer is not None and writer.inode == inode:
                writer.write(rest)
            else:
                file = self.files.open(name, append=True)
                file.write(rest)
                file.close()

    def _tear_at(self, name: str) -> None:
        """Nobody will complete the last line of a file."""
        if torn := self.cut.pop(self.files.inode(name), None):
            self._tear(*torn)

    def _tear(self, rest: bytes, number: int) -> None:
        if rest != b"\n":
            self.torn.add(number)

    def _read(self) -> None:
        """All there is has been seen, read and committed."""
        self._forget_writers_of_left_files()
        self.node.rescan().poll(5.5).poll(5.5).poll().commit()

    def _shift(self, name: str) -> None:
        files = self.files
        if files.exists(f"{name}.{KEPT}"):
            self._tear_at(f"{name}.{KEPT}")
            self._read()
        for number in range(KEPT, 0, -1):
            for suffix in ("", ".gz"):
                if files.exists(f"{name}.{number}{suffix}"):
                    files.rename(f"{name}.{number}{suffix}", f"{name}.{number + 1}{suffix}")
        for suffix in ("", ".gz"):
            if files.exists(f"{name}.{KEPT + 1}{suffix}"):
                files.remove(f"{name}.{KEPT + 1}{suffix}")

    def _close(self, name: str) -> None:
        if name in self.writers:
            self.writers.pop(name).close()

    def _forget_writers_of_left_files(self) -> None:
        """Files that no path leads to are followed for a while only, so nobody writes to them for longer."""
        for name, writer in list(self.writers.items()):
            if not self.files.exists(name) or writer.inode != self.files.inode(name):
                self._close(name)
