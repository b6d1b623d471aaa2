"""Opening and reading the files of logs: below the roots, a bounded number at a time, every refusal counted once."""

from __future__ import annotations

from exporter.sources.identity import generation, inode_of
from exporter.sources.open_logs import OpenLogs
from exporter.sources.opening import OpenFile, Refused, Roots, reason_of
from exporter.sources.refusals import Refusals
from exporter.sources.tail import Log, Position

RETRY_SECONDS = 10.0  # a file that cannot be opened or read: no open() in every poll (rsyslog#7597)
GONE = (FileNotFoundError, NotADirectoryError)


class OtherBytes(Exception):
    """A log's file is not what was read of it: truncated, or (`reused`) another file with its inode's number."""

    def __init__(self, *, reused: bool) -> None:
        super().__init__()
        self.reused = reused


class Access:
    """What a source may read, and what of it is open."""

    def __init__(self, open_logs: OpenLogs, refusals: Refusals) -> None:
        self.roots = Roots(())
        self.open_logs = open_logs
        self.refusals = refusals

    def open(self, path: str, now: float) -> OpenFile | None:
        """A path's file; None if it may not or cannot be read, which is counted."""
        try:
            return self.roots.open(path)
        except GONE:
            return None
        except Refused as refused:
            self.refusals.note(path, str(refused))
        except OSError as error:
            reason = reason_of(error)
            if reason == "too_many_open":
                self.open_logs.use_fewer(now)
            self.refusals.note(path, reason)
        return None

    def try_open(self, path: str) -> OpenFile | None:
        """A path's file that may be what is looked for; None if it cannot be."""
        try:
            return self.roots.open(path)
        except (OSError, Refused):
            return None

    def reopen(self, log: Log, now: float) -> bool:
        """Open a log's file at its path again. False: not now. Raises OtherBytes."""
        file = self.open(log.position.path, now)
        if file is None:
            log.rest_until = now + RETRY_SECONDS
            return False
        if inode_of(file.status()) != log.position.file:
            file.close()  # moved on since the last visit; the next one will see that
            return False
        if not _same_generation(log.position, file):
            file.close()
            raise OtherBytes(reused=True)
        self.open_logs.hold(log, file, now)
        try:
            log.remember()
        except OSError as error:
            self.cannot(log, error, now)
        return log.reader is not None

    def read(self, log: Log, count: int, now: float) -> tuple[bytes, int] | None:
        """Bytes of a log up to `count` behind its offset, and where they start: at or before what its mark tells of.

        None: not now. Raises OtherBytes. The bytes before the offset come with the same read, so no truncation slips
        in between.
        """
        if log.reader is None and not self.reopen(log, now):
            return None
        assert log.reader is not None
        position, mark = log.position, log.position.mark
        start = min(position.offset, mark.window)
        try:
            block = log.reader.read(max(position.offset + count, mark.length) - start, start)
        except OSError as error:
            self.cannot(log, error, now)
            return None
        self.open_logs.use(log, now)
        self.refusals.forget(position.path)
        same = mark.holds(block[mark.window - start : mark.length - start])
        if same and not log.is_hole_now(block, start):
            return block, start
        if same or not self._go_back(log):
            raise OtherBytes(reused=False)
        return self.read(log, count, now)

    def _go_back(self, log: Log) -> bool:
        try:
            return log.go_back()
        except OSError:
            return False

    def see(self, log: Log, now: float) -> None:
        """See how long a log's open file is now."""
        if isinstance(log.reader, OpenFile):
            try:
                log.see(log.reader.status(), now)
            except OSError as error:
                self.cannot(log, error, now)

    def cannot(self, log: Log, error: OSError, now: float) -> None:
        """A log's file does not let itself be read: a server that has forgotten it (ESTALE), a bad disk."""
        self.refusals.note(log.position.path, reason_of(error))
        log.drop_reader()
        log.rest_until = now + RETRY_SECONDS


def is_file_of(file: OpenFile, position: Position) -> bool:
    """Whether a file with a log's inode number is the log's file."""
    return _same_generation(position, file) and file.begins_with(position.mark)


def _same_generation(position: Position, file: OpenFile) -> bool:
    return position.generation is None or position.generation == generation(file.descriptor)
