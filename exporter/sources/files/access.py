"""Opening and reading the files of logs: below the roots, a bounded number at a time, every refusal counted once.

An I/O error proves nothing about a file: it is counted, and the operation is retried.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from exporter.sources.calls import Stalled
from exporter.sources.files.comparison import COMPARED_BYTES
from exporter.sources.files.filesystem import NO_ANSWER, OpenFile, Refused, Roots, closed_on_error, reason_of, stat
from exporter.sources.files.identity import Fingerprint, Inode, inode_of
from exporter.sources.files.log_values import Position
from exporter.sources.files.open_logs import OpenLogs
from exporter.sources.files.skipped_files import SkippedFiles
from exporter.sources.files.tail import Log

RETRY_SECONDS = 10.0  # a file that cannot be opened or read: no open() in every poll (rsyslog#7597)
STALLED_SECONDS = 1.0  # a file system that did not answer: to ask again costs nothing while it still does not
PATIENCE_SECONDS = 30.0  # a rotated file on a bad block must not hold up what depends on it for ever
AGAIN_BYTES = 1 << 20  # a poll, 0.5 ms: of what was read of logs, compared again while they are read on
MAX_FAILING = 1024  # paths; beyond them, the longest known one starts anew
GONE = (FileNotFoundError, NotADirectoryError)

T = TypeVar("T")
Otherwise = TypeVar("Otherwise")


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
        self._failing: dict[str, tuple[float, float]] = {}  # by path, when it first and last gave no answer

    def begin(self, now: float) -> None:
        """A poll begins."""
        self.roots, self._now = Roots.of(self._folders), now
        self._unspent, self._again = COMPARED_BYTES, AGAIN_BYTES

    # -- what gives no answer

    def tells(self, path: str, look: Callable[[], T], otherwise: Otherwise) -> T | Otherwise:
        """What a look at a path tells, or `otherwise` where nothing is there that may be read.

        Raises OSError while there is no answer. One that stays away is `otherwise`, too.
        """
        try:
            return look()
        except Refused:
            return otherwise
        except OSError as error:
            if isinstance(error, Stalled) or (error.errno in NO_ANSWER and not self._stays_away(path)):
                raise
            return otherwise

    @contextmanager
    def survived(self, path: str) -> Iterator[None]:
        """What cannot be told of a path now is counted, and nothing is done; it is to be asked again."""
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

    def _stays_away(self, path: str) -> bool:
        now = self._now
        first, last = self._failing.pop(path, (now, now))
        if now - last > PATIENCE_SECONDS:
            first = now
        self._failing[path] = (first, now)
        if len(self._failing) > MAX_FAILING:
            del self._failing[next(iter(self._failing))]
        return now - first >= PATIENCE_SECONDS

    # -- files by path

    def open(self, path: str) -> OpenFile | None:
        """A path's file; None if it may not be read, which is counted."""
        try:
            return self.roots.open(path)
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
        return self.tells(path, lambda: self.roots.open(path), None)

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
        return self.tells(path, lambda: inode_of(stat(path)), None)

    def holds(self, file: OpenFile, mark: Fingerprint) -> bool:
        """Whether a file begins with what `mark` tells."""
        return self.tells(file.path, lambda: mark.found_in(file.read), False)

    def is_file_of(self, file: OpenFile, position: Position) -> bool:
        """Whether a file with a log's inode number is the log's file. Where the generation tells that it is, only the bytes
        before the offset tell whether it was truncated: writers keep a counter in its first line.
        """
        mark = position.mark
        if not self.tells(file.path, lambda: _same_generation(position, file), False):
            return False
        if position.generation is None:
            return self.holds(file, mark)
        return self.tells(file.path, lambda: mark.holds(file.read(mark.length - mark.window, mark.window)), False)

    # -- the files of logs

    def reopen(self, log: Log, now: float) -> bool:
        """Open a log's file at its path again. False: not now. Raises OtherBytes, and OSError."""
        with self.reading(log, now):
            file = self.open(log.position.path)
            if file is None:
                log.activity.rest_until = now + RETRY_SECONDS
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
            log.activity.rest_until, log.activity.changed = now + RETRY_SECONDS, True
            if isinstance(error, Stalled):
                log.activity.rest_until = now + STALLED_SECONDS
                raise
            found_again = log.left is None and not log.stat.unlinked
            if found_again or error.errno == errno.ESTALE or self._stays_away(log.position.path):
                log.drop_reader()
            raise


def _same_generation(position: Position, file: OpenFile) -> bool:
    return position.generation is None or position.generation == file.generation()
