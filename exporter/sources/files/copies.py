"""New files that may repeat a log: copies that are being made, and files that rotation has compressed.

A file that is so far the same as a log beside it may be a copy, to be followed by a truncation of the log. Reading it at
once would count its lines twice; not reading it would lose those of a rank whose banner is the same. So it waits until it
differs, the log has been truncated, or nothing has happened for a while. One that grows along with the log for too long,
or is one too many, is read: a crash counted twice is better than one missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from exporter.sources.files import contents
from exporter.sources.files.access import Access
from exporter.sources.files.contents import HEAD_BYTES, GzipReader, Inode, Version, inode_of, version_of
from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.follow import Follower
from exporter.sources.files.log import Log
from exporter.sources.files.moves import Begin, GoOn, Leave, Move, Planner, Revive
from exporter.sources.files.register import Register
from exporter.sources.files.resolver import ShortCopies

COPY_SECONDS = 5.0  # a copy that grows no more is truncated within milliseconds, or was no copytruncate
WAIT_SECONDS = 60.0  # in all, and a second for each COMPARED_BYTES of the log: a copy of 10 GB takes minutes to make
MAX_WAITING = 64  # open files; a copy beyond them is read at once
COMPARED_BYTES = 8 << 20  # a poll, of each of two files: 10 ms, and about five minutes for a log of 10 GB


@dataclass(slots=True)
class Suspect:
    """A file that waits: whose copy it may be, and as whose next log (`base`) it would be read."""

    base: str
    file: OpenFile
    log: Log
    log_file: Inode
    size: int
    since: float
    until: float  # whoever writes to both a log and its copy must not keep this one unread
    compared: int = 0  # so many bytes are the same in both


class Copies:
    """The files that wait."""

    def __init__(
        self, register: Register, follower: Follower, planner: Planner, access: Access, short_copies: ShortCopies
    ) -> None:
        self.waiting: dict[Inode, Suspect] = {}
        self._register = register
        self._follower = follower
        self._planner = planner
        self._access = access
        self._short_copies = short_copies
        self._unspent = 0  # bytes that may still be compared in this poll

    def begin_unless_copied(self, base: str, file: OpenFile, originals: Sequence[Log], now: float) -> Begin | None:
        """How a new file is read; None if it has to wait, since all of it may be a copy of one of `originals`."""
        status = file.status()
        for log in originals:
            if self._is_copy(file, log, status.st_size, now):
                if len(self.waiting) >= MAX_WAITING and not status.st_size:
                    file.close()  # the next walk finds it again, with something to read
                    return None
                if len(self.waiting) >= MAX_WAITING:
                    self._access.refusals.count(file.path, "perhaps_read_twice")
                    break
                until = now + WAIT_SECONDS + log.stat.size / COMPARED_BYTES
                suspect = Suspect(base, file, log, log.position.file, status.st_size, now, until)
                self.waiting[inode_of(status)] = suspect
                return None
        return Begin(self._short_copies.read_of(file))

    def settle(self, now: float) -> None:
        """Read or leave the files that need not wait any longer."""
        self._unspent = COMPARED_BYTES
        for inode, suspect in list(self.waiting.items()):
            with self._access.counting_errors(suspect.file.path):
                offset = self._judge(suspect, now)
                expired = offset is None and now >= suspect.until
                if self._register.table.log_at(inode) is not None:  # the log goes on in this very file
                    move: Move = Leave()
                elif offset is None and not expired:
                    continue
                elif self._goes_on_in(suspect):
                    move = GoOn(suspect.log)
                else:
                    move = Begin(offset or 0)
                self._follower.apply(move, suspect.base, suspect.file, now)
                if expired and isinstance(move, Begin):
                    self._access.refusals.count(suspect.file.path, "perhaps_read_twice")
                del self.waiting[inode]

    def close(self) -> None:
        for suspect in self.waiting.values():
            suspect.file.close()

    def _goes_on_in(self, suspect: Suspect) -> bool:
        log = suspect.log
        return self._register.table.knows(log) and self._planner.log_in(suspect.file, [log]) is not None

    def _judge(self, suspect: Suspect, now: float) -> int | None:
        """From where on to read a file; None while that cannot be told."""
        log, size = suspect.log, suspect.file.status().st_size
        is_copy = self._register.table.knows(log) and self._is_copy(suspect.file, log, size, now)
        is_copy = is_copy and self._is_same(suspect, size, now)
        if not self._register.table.knows(log) or log.position.file != suspect.log_file:
            return self._read_to(suspect, size)
        if not is_copy:
            return 0
        if size != suspect.size:
            suspect.size, suspect.since = size, now
        if now - suspect.since < COPY_SECONDS or suspect.compared < size:
            return None
        may_be_chance = size < HEAD_BYTES and not log.stat.unlinked
        return 0 if may_be_chance else size  # and costs little

    def _is_same(self, suspect: Suspect, size: int, now: float) -> bool:
        """Whether what can be compared of a file in this poll is what the log has in the same place."""
        log, start = suspect.log, min(suspect.compared, size)
        suspect.compared = min(size, start + self._unspent)
        self._unspent -= suspect.compared - start
        same = isinstance(log.reader, OpenFile) and contents.same_bytes(
            suspect.file, log.reader, start, suspect.compared
        )
        if not same:
            suspect.compared = 0
            self._follower.read(log, 0, now)  # truncated just now, perhaps
        return same

    def _read_to(self, suspect: Suspect, size: int) -> int:
        """How much of a file was read in a log whose bytes are gone: of what could not be compared, its mark tells."""
        log = suspect.log
        is_compared = suspect.compared >= size or self._access.holds(suspect.file, log.position.mark)
        return min(size, log.position.offset) if is_compared else self._short_copies.read_of(suspect.file)

    def _is_copy(self, file: OpenFile, log: Log, size: int, now: float) -> bool:
        """Whether a log's file still begins with all that is in another one, as far as the first look tells."""
        its_file = log.position.file
        self._follower.read(log, 0, now)  # finds out whether the log was truncated
        same = isinstance(log.reader, OpenFile) and contents.same_beginning(file, log.reader, size)
        if not same:
            self._follower.read(log, 0, now)  # just now, perhaps
        return same and log.position.file == its_file


MAX_TAKEN = 1024


class Archives:
    """Takes those that no log was read from."""

    def __init__(self, follower: Follower, planner: Planner, access: Access) -> None:
        self._follower = follower
        self._planner = planner
        self._access = access
        self._taken: dict[Version, None] = {}

    def take(self, base: str, path: str, now: float, log: Log | None) -> None:
        """Read a compressed file at `path`, which was the log or one of the logs of `base`, unless it has been read; `log` is,
        or has been, called `base`.
        """
        if not path.endswith(".gz") or path.endswith(".tar.gz"):
            self._access.refusals.note(path, "rotated_compressed")
            return
        if self._access.file_at(path.removesuffix(".gz")) is not None:
            return  # compressing it has not ended, and may never end; it is read as it is
        file = self._access.try_open(path)
        if file is None:
            return
        archive = GzipReader(file)
        with closed_on_error(archive):
            version = version_of(archive.status)
            kin = self._planner.kin_of(archive, base, log) if version not in self._taken else []
            for other in kin:
                if other.left is None and contents.same_head(archive, other.position.mark):
                    read = partial(self._follower.read, other, 0, now)  # whether its file still holds what was read
                    self._access.read_or_default(other.position.path, read, None)
            move = self._planner.plan_archive(archive, base, kin) if version not in self._taken else Leave()
            if isinstance(move, Begin | Revive):
                self._taken[version] = None
                if len(self._taken) > MAX_TAKEN:
                    del self._taken[next(iter(self._taken))]
            self._follower.apply_archive(move, base, archive, now)
