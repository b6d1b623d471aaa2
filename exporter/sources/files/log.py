"""One log that is followed: where it was read to, and which of its bytes are offered next.

Decides from numbers and bytes. `follow` finds the file that a log continues in; the source decides when to poll it.
Times are seconds of the source's own clock, which never goes back. Only methods of `Log` write its fields.
"""

import os
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from exporter.core.model import Job, LogFormat
from exporter.sources.files import states
from exporter.sources.files.contents import HEAD_BYTES, NOWHERE, TAIL_BYTES, Fingerprint, Inode
from exporter.sources.files.filesystem import Reader, may_stay
from exporter.sources.files.states import LogPosition

End = Literal["more", "quiet", "final"]


class Offered(NamedTuple):
    """What was last handed out of a log, the bytes before it that its mark covers, and the byte after it."""

    before: bytes
    data: bytes
    next_byte: int | None
    end: End


def share(data: bytes, end: End, line_bytes: int) -> int:
    """How much of what follows the offset is offered: whole lines, a line that is too long as far as it goes, or all."""
    if end != "final" and data.startswith(b"\0"):
        return 0  # nothing but NULs, see `Log.skip_nuls`
    if end != "more":
        return len(data)
    complete = data.rfind(b"\n") + 1
    return len(data) if complete == 0 and len(data) >= line_bytes else complete


@dataclass(slots=True)
class FileStat:
    """What the last stat told of a log's file."""

    size: int = 0
    size_before: int = 0  # its last change
    modified: int = 0
    touched: int = 0  # its ctime, which nobody can set
    uid: int | None = None
    unlinked: bool = False  # it has no name any more: closed, it is gone
    is_growing: bool = False  # its size or time has changed since it was first looked at
    unconfirmed: bool = False  # stored by an earlier process; it may have changed since


@dataclass(slots=True)
class LastRead:
    """What the last read of a log told."""

    read_to: int = 0  # bytes up to here have been read, if not consumed
    read_at: float = -1.0
    next_byte: int | None = None  # the one at the offset
    recent_bytes: bytes = b""  # what lies before the offset, as far as it is remembered
    reserved: bool = False  # it ends in NULs: space that is yet to be written to
    just_written: bool = False  # its time may not tell of what is written next
    zeros_to: int = 0  # bytes from the offset up to here were NULs
    more: bool = False  # it did not reach the end
    is_text_known: bool = False  # whether it is text

    @property
    def may_have_changed(self) -> bool:
        """Whether no stat would tell that it has changed since."""
        return self.reserved or self.just_written


@dataclass(slots=True)
class Offer:
    """What the pipeline was last offered of a log."""

    in_flight: Offered | None = None
    blocked: bool = False  # the pipeline waits for more than a chunk can hold
    quiet_at: int = -1  # where the log ended when its tail was last offered


@dataclass(slots=True)
class Activity:
    """When a log is to be read, and what of it was counted."""

    changed: bool = True  # since it was last read
    grew: float = 0.0
    waiting: float | None = None  # since when there are bytes to consume
    rest_until: float = 0.0  # it could not be opened or read
    counted_write: tuple[int, int] = (0, 0)  # its ctime and its offset when its job's last write was counted


QUIET_SECONDS = 1.0  # writers flush a line within milliseconds; a count may lag by a second
ACTIVE_SECONDS = 10.0  # 20,000 logs take 10% of a core meanwhile; then inotify or the round over all tells
ZEROS_BYTES = 1 << 20  # checked in one step unless they are a hole
RELOOK_SECONDS = 5.0  # stores into a mapped file change neither its time nor its size, and inotify tells nothing
RECENT_BYTES = 1024  # consumed bytes to compare when a writer goes back: 1 MiB for 1024 open files
MOST_WAITING = 64  # lines that the pipeline may hold back for those behind them; a signature spans 12
MAX_CALLED = 8  # a log has one name at a time, but for links and rotation into the glob


@dataclass(slots=True, eq=False)
class Log:
    """One log. `key` and `origin` stay for its life, through renames and restarts; the rest is what is known now."""

    key: str
    origin: str
    base: str  # the path that it was found under
    position: LogPosition
    job: Job | None = None
    reader: Reader | None = None
    names: tuple[str, ...] = ()  # paths of the globs that lead to it
    state: states.State = field(default_factory=states.Following)
    stat: FileStat = field(default_factory=FileStat)
    last_read: LastRead = field(default_factory=LastRead)
    offer: Offer = field(default_factory=Offer)
    activity: Activity = field(default_factory=Activity)

    def resume(self, *, confirmed: bool) -> None:
        """Go on at a known offset: a file of the same size and time need not be read. `confirmed`: by this process."""
        self.stat.unconfirmed = not confirmed
        position = self.position
        self.stat.size = self.stat.size_before = self.last_read.read_to = position.offset
        self.stat.modified = position.modified
        self.activity.changed, self.last_read.is_text_known = False, position.offset > 0

    def name(self, path: str) -> None:
        """A path of the globs leads to it."""
        self.names = (*self.names, path)
        self.observe(states.Reached())
        called = self.position.called
        if path != self.position.path and path not in called and len(called) < MAX_CALLED:
            self.position = replace(self.position, called=(*called, path))

    def unname(self, path: str) -> None:
        """A path does not lead to it any more."""
        self.names = tuple(name for name in self.names if name != path)

    def written_at(self, block: bytes, start: int) -> float | None:
        """When the last of a block that was read from `start` was written; None if that may have been just now."""
        settled = not self.stat.is_growing and not self.last_read.reserved and start + len(block) <= self.stat.size
        return self.stat.modified / 1e9 if settled else None

    def observe(self, seen: states.Observation) -> None:
        """Take in what was observed of its file. A search that is not needed any more ends."""
        before, self.state = self.state, states.step(self.state, seen)
        if isinstance(before, states.Searching) and self.state is not before:
            before.candidates.close()

    @property
    def next_step(self) -> states.NextStep:
        return states.next_step(self.state, is_open=self.reader is not None)

    @property
    def left(self) -> float | None:
        """Since when no path of the globs leads to it."""
        return self.state.since

    @property
    def over(self) -> bool:
        return isinstance(self.state, states.Gone)

    @property
    def missing(self) -> bool:
        """Whether its bytes are looked for, in folders or in archives."""
        return self.next_step in (states.NextStep.FOLDERS, states.NextStep.ARCHIVES)

    @property
    def is_leaving(self) -> bool:
        """Whether it has no name, or one that programs give to what they have not done with."""
        return self.left is not None or self.position.path.endswith(".tmp")

    @property
    def end(self) -> int:
        """Up to where it is known to reach."""
        return max(self.stat.size, self.last_read.read_to)

    @property
    def unread(self) -> int:
        return self.end - self.position.offset

    @property
    def unseen(self) -> bool:
        """Whether there are bytes that the pipeline has not even looked at."""
        return self.unread > 0 and self.offer.quiet_at < self.end

    @property
    def never_seen(self) -> bool:
        """Whether nobody can tell if all of it was seen: it went while no process looked."""
        return self.stat.unconfirmed and not self.position.whole

    @property
    def lag(self) -> int:
        """Bytes that the pipeline has not looked at and has not been handed."""
        if not self.unseen:
            return 0
        return self.unread if self.offer.in_flight is None else self.end - self.last_read.read_to

    @property
    def owner(self) -> int | None:
        """The user in whose share of followed logs, open files and turns it counts."""
        return self.stat.uid

    def see(self, status: os.stat_result, now: float) -> None:
        """Take in what a stat tells."""
        stat, activity = self.stat, self.activity
        first, touched = stat.touched == 0, stat.touched != status.st_ctime_ns
        stat.unlinked, stat.uid, stat.touched = status.st_nlink == 0, status.st_uid, status.st_ctime_ns
        activity.changed = activity.changed or (touched and not first)
        if (status.st_size, status.st_mtime_ns) == (stat.size, stat.modified):
            stat.unconfirmed = False
            return
        stat.is_growing = not first
        stat.size_before, stat.size, stat.modified = stat.size, status.st_size, status.st_mtime_ns
        activity.changed, activity.grew = True, now
        if activity.waiting is None:
            activity.waiting = now

    def move_to(self, file: Inode, generation: int | None, path: str, place: str) -> None:
        """Its bytes are in another file now, or the file elsewhere."""
        place, (device, inode) = place if place != path else "", file
        moved = replace(self.position, path=path, place=place, device=device, inode=inode)
        self.position = replace(moved, generation=generation, whole=False)

    def lose_file(self) -> None:
        """Its bytes are not in its file any more: what was last seen there may be another log's."""
        self.close()
        if self.stat.unconfirmed:
            self.stat.touched = 0
        self.stat.size = self.stat.size_before
        self.last_read.zeros_to, self.last_read.reserved = 0, False
        whole = not self.stat.unconfirmed and not self.unseen
        self.position = replace(self.position, device=NOWHERE[0], inode=NOWHERE[1], generation=None, whole=whole)

    def locate(self) -> None:
        """A file with its bytes was opened."""
        self.activity.rest_until, self.stat.unconfirmed = 0.0, False
        self.observe(states.Located())

    def attach(self, reader: Reader) -> None:
        """Read from a file or archive that has its bytes."""
        self.drop_reader()
        self.reader = reader

    def attach_archive(self, archive: Reader, now: float) -> None:
        self.attach(archive)
        self.activity.changed, self.activity.grew = True, now

    def drop_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def close(self) -> None:
        """Let go of every descriptor."""
        self.drop_reader()
        self.observe(states.Searched())

    def pause(self, until: float, *, failed: bool = False) -> None:
        """Do not open it before a time; if reading `failed`, read it again then."""
        self.activity.rest_until = until
        self.activity.changed = self.activity.changed or failed

    def mark_grown(self, at: float) -> None:
        self.activity.grew = at

    def count_write(self) -> bool:
        """Count a write or read since the last call; False if nothing changed. By its ctime, which its user cannot set."""
        before, self.activity.counted_write = self.activity.counted_write, (self.stat.touched, self.position.offset)
        return bool(self.stat.touched) and self.activity.counted_write != before

    def set_text_known(self, known: bool) -> None:
        self.last_read.is_text_known = known

    def set_format(self, format_: LogFormat | None) -> None:
        self.position = replace(self.position, format=format_)

    def due(self, now: float, grace: float) -> End | None:
        """What to offer now, if anything."""
        if self.over:
            return "final"
        read, activity = self.last_read, self.activity
        if now < activity.rest_until or self.next_step not in (states.NextStep.PATH, states.NextStep.FILE):
            return None
        if activity.changed or read.more or (read.may_have_changed and now - read.read_at >= RELOOK_SECONDS):
            return "quiet" if self.offer.blocked else "more"
        if self.left is not None and now - max(self.left, activity.grew) >= grace:
            return "final"
        has_tail = read.read_to > self.position.offset and self.offer.quiet_at != read.read_to
        return "quiet" if has_tail and now - activity.grew >= QUIET_SECONDS else None

    def active(self, now: float) -> bool:
        """Whether it is looked at in every poll."""
        read, activity = self.last_read, self.activity
        is_busy = activity.changed or read.more or read.may_have_changed or now - activity.grew < ACTIVE_SECONDS
        return self.state.since is not None or is_busy

    def take_in(self, block: bytes, start: int, count: int, now: float) -> int:
        """Up to `count` bytes behind the offset have been read, in a block from `start`. How many are new?"""
        read, offset, stop = self.last_read, self.position.offset, start + len(block)
        new = max(0, stop - max(read.read_to, offset))
        read.read_at, read.read_to, read.more = now, max(stop, offset), stop - offset >= count
        read.reserved, read.just_written = block.endswith(b"\0"), may_stay(self.stat.touched)
        read.recent_bytes = read.recent_bytes or block[: offset - start]
        self.stat.unconfirmed = self.activity.changed = False
        self._keep_next_byte(block, start)
        if self.unread <= 0:
            self.activity.waiting = None
        return new

    def remember(self) -> None:
        """Load up to the last 1 KiB before the offset if its digest still matches."""
        if not self.last_read.recent_bytes and self.reader is not None and self.position.offset:
            start = max(0, self.position.offset - RECENT_BYTES)
            block = self.reader.read(self.position.offset - start, start)
            same = self.position.mark.holds(block[self.position.mark.window - start :])
            self.last_read.recent_bytes, self.activity.changed = (
                block if same else b"",
                self.activity.changed or not same,
            )

    def go_back(self) -> bool:
        """Where a writer has cut off or written over the last of what was consumed, go on with the first line that differs.

        A line that only goes on where it ended has been counted. False if too little is the same to be sure.
        """
        kept, position = self.last_read.recent_bytes, self.position
        if self.reader is None:
            return False
        start = position.offset - len(kept)
        there = self.reader.read(len(kept), start)
        same = next((at for at, pair in enumerate(zip(kept, there, strict=False)) if pair[0] != pair[1]), len(there))
        if same < min(TAIL_BYTES, position.offset) or not position.mark.begins_like(self.reader.read):
            return False
        stay = same if kept[same : same + 1] == b"\n" else kept.rfind(b"\n", 0, same) + 1
        offset = start + stay
        mark = Fingerprint.taken(self.reader.read, offset)
        if stay == 0 or mark.length < offset:
            return False
        self._go_on_at(offset, position.line - kept.count(b"\n", stay), mark, kept[:stay])
        return True

    def fall_back(self) -> bool:
        """Go on at the end of a file that is an earlier state of itself: a loss of power or a restore took back what was
        written last. All that is there has been consumed. Nobody truncates a file without giving it a later time.

        How many lines it has is not known; the number goes on. False if it is not so, or too short to tell.
        """
        position = self.position
        older = HEAD_BYTES <= self.stat.size < position.offset and self.stat.modified <= position.modified
        if not older or self.reader is None or not position.mark.begins_like(self.reader.read):
            return False
        mark = Fingerprint.taken(self.reader.read, self.stat.size)
        if mark.length < self.stat.size:
            return False
        self._go_on_at(mark.length, position.line, mark, b"")
        return True

    def _go_on_at(self, offset: int, line: int, mark: Fingerprint, kept: bytes) -> None:
        self.position = replace(self.position, offset=offset, line=line, mark=mark)
        self.last_read.recent_bytes, self.last_read.read_to = kept, offset
        self.activity.changed, self.offer.quiet_at = True, -1

    def is_hole_now(self, block: bytes, start: int) -> bool:
        """Whether there are NULs where a line began: truncated, though all that was consumed was NULs too."""
        return bool(self.last_read.next_byte) and block[self.position.offset - start :][:1] == b"\0"

    def skip_nuls(self, block: bytes, start: int) -> bool:
        """Skip NULs at the offset: a writer that keeps its old offset after a truncation leaves such a hole.

        NULs up to the end stay, for they may be space that is yet to be written to. True if the next bytes lie elsewhere
        than in the block, or have not been found yet.
        """
        position, read = self.position, self.last_read
        data = block[position.offset - start :]
        nuls = len(data) - len(data.lstrip(b"\0"))
        if nuls == 0 or self.reader is None:
            return False
        target = position.offset + nuls
        if nuls < len(data):
            self.position = replace(position, offset=target, mark=position.mark.moved(target, block, start))
            read.recent_bytes = b""
            self._keep_next_byte(block, start)
            return False
        if read.zeros_to > self.stat.size:
            read.zeros_to = 0
        after = self.reader.data_after(max(read.zeros_to, target)) if read.more else None
        ahead = self.reader.read(ZEROS_BYTES, after) if after is not None else b""
        if after is None or not ahead:
            read.more, read.read_to = False, self.end
            return False
        read.zeros_to = after + len(ahead) - len(ahead.lstrip(b"\0"))
        if read.zeros_to < after + len(ahead):
            mark = Fingerprint.taken(self.reader.read, read.zeros_to)
            self.position = replace(position, offset=read.zeros_to, mark=mark)
            read.recent_bytes, self.activity.changed = b"", True
        return True

    def keep_mark(self, block: bytes) -> bool:
        """While nothing is consumed, the mark tells what was looked at. True if that is news."""
        if self.position.mark.length == len(block):
            return False
        self.position = replace(self.position, mark=self.position.mark.moved(len(block), block, 0))
        return True

    def hand_out(self, block: bytes, start: int, end: End, line_bytes: int) -> bytes:
        """Of a block that was read from `start`, what is offered now."""
        begin = self.position.offset - start
        stop = begin + share(block[begin:], end, line_bytes)
        data = block[begin:stop]
        if end == "quiet":
            self.offer.quiet_at = self.last_read.read_to
        if data or end == "final":
            self.offer.in_flight = Offered(block[:begin], data, block[stop] if stop < len(block) else None, end)
        return data

    def consume(self, consumed: int, lines: int) -> None:
        """The first bytes of what was handed out are done with."""
        in_flight, position = self.offer.in_flight, self.position
        if in_flight is None:
            raise ValueError(f"{self.key} was not handed out")
        self.offer.in_flight = None
        read = self.last_read
        self.offer.blocked = in_flight.end == "more" and consumed == 0 and read.more
        if consumed == 0:
            return
        # Lines that are left for lack of time are offered again at once; a line that waits for those behind it is not.
        left = in_flight.data.count(b"\n", consumed)
        self.activity.changed = self.activity.changed or left > MOST_WAITING or (in_flight.end == "quiet" and left > 0)
        self.offer.quiet_at = -1 if left else self.offer.quiet_at
        offset = position.offset + consumed
        block = in_flight.before + in_flight.data[:consumed]
        kept = read.recent_bytes + in_flight.data[:consumed] if len(block) < RECENT_BYTES else block
        # A copy: what was read of a short log fills a page.
        read.recent_bytes = memoryview(kept)[-RECENT_BYTES:].tobytes()
        # What came to its path later is newer.
        modified = self.stat.modified if self.left is None else position.modified
        mark = position.mark.moved(offset, block, offset - len(block))
        self.position = replace(position, offset=offset, line=position.line + lines, mark=mark, modified=modified)
        read.next_byte = in_flight.data[consumed] if consumed < len(in_flight.data) else in_flight.next_byte
        if self.unread <= 0:
            self.activity.waiting = None

    def _keep_next_byte(self, block: bytes, start: int) -> None:
        index = self.position.offset - start
        self.last_read.next_byte = block[index] if index < len(block) else None
