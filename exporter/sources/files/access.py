"""Opening and reading the files of logs: below the roots, a bounded number at a time, every refusal counted once.

An I/O error proves nothing about a file: it is counted, and the operation is retried.
"""

import errno
import os
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from exporter.core.shares import most_first
from exporter.sources.calls import Stalled
from exporter.sources.files.contents import COMPARED_BYTES, NOWHERE, Fingerprint, Inode, inode_of
from exporter.sources.files.filesystem import (
    KINDS,
    NO_ANSWER,
    OpenFile,
    Refused,
    Roots,
    closed_on_error,
    most_open_files,
    reason_of,
    stat,
)
from exporter.sources.files.log import Log
from exporter.sources.files.skipped_files import SkippedFiles
from exporter.sources.files.states import LogPosition

# An open file keeps its mount busy. A job that hangs says why when its collectives time out (NCCL's after 10 minutes,
# gloo's after 30), and its folder may be deleted the next moment.
IDLE_SECONDS = 3600.0
MIN_FILES = 8
TIDY_SECONDS = 1.0  # between two looks at all of them, unless there are too many
FEWER_SECONDS = 60.0  # how long descriptors stay scarce once one was refused


class OpenLogs:
    """The open logs, the least recently read first. Closing one costs a reopening, but an unlinked one is gone then."""

    def __init__(self, limit: int) -> None:
        self._most = max(MIN_FILES, min(limit, most_open_files() // 3))  # a walk may hold twice as many for a moment
        self._limit = self._most
        self._fewer_until = 0.0
        self._tidied = -TIDY_SECONDS
        self._used: dict[Log, float] = {}

    def __len__(self) -> int:
        return sum(log.reader is not None for log in self._used)

    @property
    def has_room(self) -> bool:
        return len(self._used) < self._limit

    def hold(self, log: Log, file: OpenFile, now: float) -> None:
        """A log's file has been opened."""
        if len(self._used) > 2 * self._limit:  # in a walk that finds many
            self.tidy(now)
        log.attach(file)
        self.use(log, now)

    def use(self, log: Log, now: float) -> None:
        """A log has been read."""
        self._used.pop(log, None)
        self._used[log] = now

    def use_fewer(self, now: float) -> None:
        """The process or the system has no descriptor left."""
        self._limit = max(MIN_FILES, min(self._limit, len(self._used)) // 2)
        self._fewer_until = now + FEWER_SECONDS
        self.tidy(now)

    def tidy(self, now: float) -> None:
        """Close what is too many or long idle: of whoever has most open, deleted files only if there is nothing else."""
        if now >= self._fewer_until:
            self._limit = self._most
        if len(self._used) <= self._limit and now - self._tidied < TIDY_SECONDS:
            return
        self._tidied = now
        self._used = {log: used for log, used in self._used.items() if log.reader is not None}
        excess = max(0, len(self._used) - self._limit)
        first_in_line = sorted(self._used, key=lambda log: log.stat.unlinked)  # stable: the least recently read first
        idle = [log for log in first_in_line if log.left is None and now - self._used[log] > IDLE_SECONDS]
        for log in {*idle, *islice(most_first(first_in_line, lambda log: log.owner), excess)}:
            self._close(log)

    def _close(self, log: Log) -> None:
        del self._used[log]
        log.drop_reader()


RETRY_SECONDS = 10.0  # a file that cannot be opened or read: no open() in every poll (rsyslog#7597)
STALLED_SECONDS = 1.0  # a file system that did not answer: to ask again costs nothing while it still does not
PATIENCE_SECONDS = 30.0  # a rotated file on a bad block must not hold up what depends on it for ever
AGAIN_BYTES = 1 << 20  # a poll, 0.5 ms: of what was read of logs, compared again while they are read on
MAX_BINARIES = 10_000  # beyond that, some are opened again in every walk
MAX_FAILING = 1024  # paths; beyond them, the longest known one starts anew
GONE = (FileNotFoundError, NotADirectoryError)

T = TypeVar("T")
Default = TypeVar("Default")


class OtherBytes(Exception):
    """A log's file is not what was read of it: truncated, or (`reused`) another file with its inode's number."""

    def __init__(self, *, reused: bool) -> None:
        super().__init__()
        self.reused = reused


class Access:
    """What a source may read, and what of it is open."""

    def __init__(self, folders: Sequence[str], open_logs: OpenLogs, refusals: SkippedFiles) -> None:
        """`folders`: below which files may lie."""
        self.roots = Roots(())
        self.open_logs = open_logs
        self.refusals = refusals
        self._folders = folders
        self._now = 0.0
        self._unspent, self._again = COMPARED_BYTES, AGAIN_BYTES
        self._binaries: dict[str, tuple[Inode, int]] = {}
        self._failing: dict[str, tuple[float, float]] = {}  # by path, when it first and last gave no answer

    def begin(self, now: float) -> None:
        self.roots, self._now = Roots.of(self._folders), now
        self._unspent, self._again = COMPARED_BYTES, AGAIN_BYTES

    # -- what gives no answer

    def read_or_default(self, path: str, read: Callable[[], T], default: Default) -> T | Default:
        """The result of `read`, or `default` if nothing is at the path that may be read.

        Raises OSError while there is no answer; after PATIENCE_SECONDS without one, returns `default`.
        """
        try:
            return read()
        except Refused:
            return default
        except OSError as error:
            if isinstance(error, Stalled) or (error.errno in NO_ANSWER and not self._failed_for_too_long(path)):
                raise
            return default

    @contextmanager
    def counting_errors(self, path: str) -> Iterator[None]:
        """Count an error of a path instead of raising it; the caller tries again later."""
        try:
            yield
        except OSError as error:
            self.failed(path, error)

    def failed(self, path: str, error: OSError) -> None:
        """A path cannot be looked at or read."""
        if isinstance(error, Stalled):
            return  # nothing is skipped, and the source tells of it
        reason = reason_of(error)
        if reason == "too_many_open":
            self.open_logs.use_fewer(self._now)
        self.refusals.note(path, reason)

    def _failed_for_too_long(self, path: str, patience: float = PATIENCE_SECONDS) -> bool:
        now = self._now
        first, last = self._failing.pop(path, (now, now))
        if now - last > PATIENCE_SECONDS:
            first = now
        self._failing[path] = (first, now)
        if len(self._failing) > MAX_FAILING:
            del self._failing[next(iter(self._failing))]
        return now - first >= patience

    # -- files by path

    def status(self, path: str) -> os.stat_result | None:
        """A path's status, if it leads to a file that may be read."""
        if path.encode("utf-8", "ignore").decode() != path:
            self.refusals.note(path, "name_not_utf8")
            return None
        status = None
        with self.counting_errors(path):
            status = self._unless_refused(path, self.roots.status_of)
        if status is None:
            return None  # perhaps gone again, or a link to nowhere
        if not modes.S_ISREG(status.st_mode):
            self.refusals.note(path, KINDS.get(modes.S_IFMT(status.st_mode), "special"))
            return None
        file, size = self._binaries.pop(path, (NOWHERE, 0))
        if file == inode_of(status) and size <= status.st_size:
            self._binaries[path] = (file, size)
            return None
        return status

    def refuse_binary(self, path: str, file: Inode, size: int) -> None:
        """A path's file is not a text, unless it is truncated."""
        self.refusals.note(path, "binary")
        self._binaries[path] = (file, size)
        if len(self._binaries) > MAX_BINARIES:
            del self._binaries[next(iter(self._binaries))]

    def open(self, path: str) -> OpenFile | None:
        """A path's file; None if it may not be read, which is counted."""
        return self._unless_refused(path, self.roots.open)

    def _unless_refused(self, path: str, look: Callable[[str], T]) -> T | None:
        try:
            return look(path)
        except GONE:
            return None
        except Refused as refused:
            self.refusals.note(path, str(refused))
        except OSError as error:
            if error.errno in NO_ANSWER:
                raise
            self.failed(path, error)
        return None

    def try_open(self, path: str) -> OpenFile | None:
        """A path's file that may be what is looked for; None if it cannot be."""
        return self.read_or_default(path, lambda: self.roots.open(path), None)

    def open_if(self, path: str, suits: Callable[[OpenFile], bool]) -> OpenFile | None:
        """A path's file, open, if it is what is looked for."""
        file = self.try_open(path)
        if file is None:
            return None
        with closed_on_error(file):
            if suits(file):
                return file
        file.close()
        return None

    def file_at(self, path: str) -> Inode | None:
        """Which file a path leads to."""
        return self.read_or_default(path, lambda: inode_of(stat(path)), None)

    def holds(self, file: OpenFile, mark: Fingerprint) -> bool:
        """Whether a file begins with what `mark` tells."""
        return self.read_or_default(file.path, lambda: mark.matches(file.read), False)

    def is_file_of(self, file: OpenFile, position: LogPosition) -> bool:
        """Whether a file with a log's inode number is the log's file. Where the generation tells that it is, only the bytes
        before the offset tell whether it was truncated: writers keep a counter in its first line.
        """
        mark = position.mark
        if not self.read_or_default(file.path, lambda: _same_generation(position, file), False):
            return False
        if position.generation is None:
            return self.holds(file, mark)
        return self.read_or_default(
            file.path, lambda: mark.holds(file.read(mark.length - mark.window, mark.window)), False
        )

    def has(self, log: Log, file: OpenFile) -> bool:
        """Whether a file with the inode's number of a log is the log's."""
        return isinstance(log.reader, OpenFile) or self.is_file_of(file, log.position)

    # -- the files of logs

    def reopen(self, log: Log, now: float) -> bool:
        """Open a log's file at its path again. False: not now. Raises OtherBytes, and OSError."""
        with self.reading(log, now):
            file = self.open(log.position.path)
            if file is None:
                log.pause(now + RETRY_SECONDS)
                return False
            with closed_on_error(file):
                moved_on = inode_of(file.status()) != log.position.file
                if not moved_on and not _same_generation(log.position, file):
                    raise OtherBytes(reused=True)
            if moved_on:  # since the last visit; the next one will see that
                file.close()
                return False
            self.open_logs.hold(log, file, now)
            log.remember()
            return True

    def read(self, log: Log, count: int, now: float, is_copied: Callable[[Log], bool]) -> tuple[bytes, int] | None:
        """Bytes of a log up to `count` behind its offset, and where they start: at or before what its mark tells of.

        None: not now. Raises OtherBytes, and OSError. The bytes before the offset are part of the same read, so no
        truncation slips in between. `is_copied` tells whether what was read of it stands elsewhere, too: then it was
        truncated, and begins as it did before.
        """
        if log.reader is None and not self.reopen(log, now):
            return None
        assert log.reader is not None
        position, mark = log.position, log.position.mark
        start = min(position.offset, mark.window)
        with self.reading(log, now):
            block = log.reader.read(max(position.offset + count, mark.length) - start, start)
            same = mark.holds(block[mark.window - start : mark.length - start])
            gone_back = not same and not is_copied(log) and (log.go_back() or log.fall_back())
            if same and isinstance(log.reader, OpenFile):
                if log.stat.unconfirmed and self._unspent < min(mark.summed, COMPARED_BYTES):
                    return None
                same = self._is_unchanged(log, log.reader)
        self.open_logs.use(log, now)
        self.refusals.forget(position.path)
        if gone_back:
            return self.read(log, count, now, is_copied)
        if not same or log.is_hole_now(block, start):
            raise OtherBytes(reused=False)
        return block, start

    def _is_unchanged(self, log: Log, file: OpenFile) -> bool:
        """Whether what was read of a log is still there: after a restart all that its checksums tell, else as time allows."""
        mark, is_first = log.position.mark, log.stat.unconfirmed
        if not is_first and mark.summed > self._again:
            return True
        self._unspent, self._again = self._unspent - mark.summed, self._again - mark.summed
        # A writer who frees the space of what was read leaves holes there: then its end has to do.
        same = mark.sums_up(file.read) or file.has_hole(mark.length - mark.summed, mark.length)
        if same and is_first and not mark.begins_like(file.read):
            self.refusals.count(log.position.path, "perhaps_truncated")
        return same

    def see(self, log: Log, now: float) -> None:
        """See how long a log's open file is now. Raises OSError."""
        if isinstance(log.reader, OpenFile):
            with self.reading(log, now):
                log.see(log.reader.status(), now)

    def is_written_to(self, log: Log) -> bool:
        """Whether somebody still writes to a log whose file was deleted."""
        return log.stat.unlinked and isinstance(log.reader, OpenFile) and log.reader.is_written_to()

    def is_linked(self, log: Log) -> bool:
        """Whether a log's file, as far as it is open, has a name in some folder still."""
        try:
            return isinstance(log.reader, OpenFile) and log.reader.status().st_nlink > 0
        except OSError:
            return False

    @contextmanager
    def reading(self, log: Log, now: float) -> Iterator[None]:
        """Pause a log whose file cannot be read: a server that has forgotten it (ESTALE), a bad disk."""
        try:
            yield
        except OSError as error:
            log.pause(now + (STALLED_SECONDS if isinstance(error, Stalled) else RETRY_SECONDS), failed=True)
            if isinstance(error, Stalled):
                raise
            can_reopen = log.left is None and not log.stat.unlinked
            patience = RETRY_SECONDS if error.errno == errno.ESTALE else PATIENCE_SECONDS
            if can_reopen or self._failed_for_too_long(log.position.path, patience):
                log.drop_reader()
            raise


def _same_generation(position: LogPosition, file: OpenFile) -> bool:
    return position.generation is None or position.generation == file.generation()
