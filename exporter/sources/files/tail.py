"""One log that is followed: where it was read to, and what of it may be handed out next.

Decides from numbers and bytes; which file a log continues in is `follow`'s to find, when to look is the source's.
Times are seconds of the source's own clock, which never goes back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from exporter.core.model import Job, LogFormat
from exporter.sources.files import states
from exporter.sources.files.clock import may_stay
from exporter.sources.files.identity import HEAD_BYTES, NOWHERE, TAIL_BYTES, Fingerprint, Inode
from exporter.sources.files.opening import Reader

QUIET_SECONDS = 1.0  # writers flush a line within milliseconds; a count may lag by a second
ACTIVE_SECONDS = 10.0  # 20,000 logs take 10 % of a core meanwhile; then inotify or the round over all tells
ZEROS_BYTES = 1 << 20  # checked in one step unless they are a hole
RELOOK_SECONDS = (
    5.0  # stores into a mapped file change neither its time nor its size, and inotify does not tell of them
)
KEPT_BYTES = (
    1024  # of what was consumed, to see how much of it stays when a writer goes back: 1 MiB for 1024 open files
)
MOST_WAITING = 64  # lines that the pipeline may hold back for those behind them; a signature spans 12
MAX_CALLED = 8  # a log has one name at a time, but for links and rotation into the glob

End = Literal["more", "quiet", "final"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What is stored of a log: where its bytes are, and where the first of them lies that is not consumed yet.

    `mark` tells the bytes up to `offset`; while nothing is consumed, those that were looked at.
    """

    path: str
    place: str = ""  # where `path` led to, if it is a link or has been given to another file
    called: tuple[str, ...] = ()  # other paths of the globs that have led here: links, or names before a rotation
    device: int = 0
    inode: int = 0
    generation: int | None = None
    modified: int = 0  # nanoseconds of the file system's clock
    offset: int = 0
    line: int = 1
    mark: Fingerprint = field(default_factory=Fingerprint)
    format: LogFormat | None = None
    whole: bool = False  # all of it had been seen when its bytes were lost

    @property
    def file(self) -> Inode:
        return self.device, self.inode


class Handed(NamedTuple):
    """What was last handed out of a log, the bytes before it that its mark tells of, and the byte behind it."""

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


@dataclass(slots=True, eq=False)
class Log:
    """One log. `key` and `origin` stay for its life, through renames and restarts; the rest is what is known now."""

    key: str
    origin: str
    base: str  # the path that it was found under, as whose `number`th log
    number: int
    position: Position
    job: Job | None = None
    reader: Reader | None = None
    names: tuple[str, ...] = ()  # paths of the globs that lead to it
    size: int = 0  # when last looked at
    size_before: int = 0  # its last change
    modified: int = 0
    touched: int = 0  # its ctime, which nobody can set
    uid: int | None = None  # who owns its file
    looked_to: int = 0  # bytes up to here have been read, if not consumed
    looked_at: float = -1.0
    next_byte: int | None = None  # the one at the offset, when it was last looked at
    kept: bytes = b""  # what lies before the offset, as far as it is remembered
    reserved: bool = False  # it ends in NULs: space that is yet to be written to
    just_written: bool = False  # when it was last read: its time may not tell of what is written next
    zeros_to: int = 0  # bytes from the offset up to here were NULs when they were last looked at
    changed: bool = True  # since it was last read
    moves: bool = False  # its size or time has changed since it was first looked at
    more: bool = False  # the last read did not reach the end
    stuck: bool = False  # the pipeline waits for more than a chunk can hold
    quiet_at: int = -1  # where it ended when its tail was last offered
    grew: float = 0.0
    waiting: float | None = None  # since when there are bytes to consume
    state: states.State = field(default_factory=states.Following)
    unlinked: bool = False  # its file has no name any more: closed, it is gone
    unconfirmed: bool = False  # stored by an earlier process; its file may have changed since
    rest_until: float = 0.0  # it could not be opened or read
    judged: bool = False  # whether it is text
    handed: Handed | None = None

    def take_up(self) -> None:
        """Go on where an earlier process left it: a file of the same size and time need not be read."""
        position = self.position
        self.size = self.size_before = self.looked_to = position.offset
        self.modified = position.modified
        self.changed, self.judged = False, position.offset > 0

    def name(self, path: str) -> None:
        """A path of the globs leads to it."""
        if path not in self.names:
            self.names = (*self.names, path)
        self.observe(states.Reached())
        called = self.position.called
        if path != self.position.path and path not in called and len(called) < MAX_CALLED:
            self.position = replace(self.position, called=(*called, path))

    def written_at(self, block: bytes, start: int) -> float | None:
        """When the last of a block that was read from `start` was written; None if that may have been just now."""
        settled = not self.moves and not self.reserved and start + len(block) <= self.size
        return self.modified / 1e9 if settled else None

    def observe(self, seen: states.Observation) -> None:
        """Take in what was observed of its file. A search that is not needed any more ends."""
        before, self.state = self.state, states.step(self.state, seen)
        if isinstance(before, states.Searching) and self.state is not before:
            before.candidates.close()

    @property
    def next_look(self) -> states.Look:
        return states.next_look(self.state, is_open=self.reader is not None)

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
        return self.next_look in (states.Look.FOLDERS, states.Look.ARCHIVES)

    @property
    def is_leaving(self) -> bool:
        """Whether it has no name, or one that programs give to what they have not done with."""
        return self.left is not None or self.position.path.endswith(".tmp")

    @property
    def unread(self) -> int:
        return max(self.size, self.looked_to) - self.position.offset

    @property
    def unseen(self) -> bool:
        """Whether there are bytes that the pipeline has not even looked at."""
        return self.unread > 0 and self.quiet_at < max(self.size, self.looked_to)

    @property
    def never_seen(self) -> bool:
        """Whether nobody can tell if all of it was seen: it went while no process looked."""
        return self.unconfirmed and not self.position.whole

    @property
    def lag(self) -> int:
        """Bytes that the pipeline has not looked at and has not been handed."""
        if not self.unseen:
            return 0
        return max(self.size, self.looked_to) - self.looked_to if self.handed is not None else self.unread

    def see(self, status: os.stat_result, now: float) -> None:
        """Take in what a stat tells."""
        self.unlinked, self.uid = status.st_nlink == 0, status.st_uid
        first, self.touched, before = self.touched == 0, status.st_ctime_ns, self.touched
        self.changed = self.changed or (not first and self.touched != before)
        if (status.st_size, status.st_mtime_ns) == (self.size, self.modified):
            self.unconfirmed = False
            return
        self.moves = not first
        self.size_before, self.size, self.modified = self.size, status.st_size, status.st_mtime_ns
        self.changed, self.grew = True, now
        if self.waiting is None:
            self.waiting = now

    def move_to(self, file: Inode, generation: int | None, path: str, place: str) -> None:
        """Its bytes are in another file now, or the file elsewhere."""
        self.position = replace(
            self.position,
            path=path,
            place=place if place != path else "",
            device=file[0],
            inode=file[1],
            generation=generation,
            whole=False,
        )

    def lose_file(self) -> None:
        """Its bytes are not in its file any more: what was last seen there may be another log's."""
        self.close()
        if self.unconfirmed:
            self.touched = 0
        self.size, whole = self.size_before, not self.unconfirmed
        self.zeros_to, self.reserved = 0, False
        self.position = replace(
            self.position, device=NOWHERE[0], inode=NOWHERE[1], generation=None, whole=whole and not self.unseen
        )

    def drop_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def close(self) -> None:
        """Let go of every descriptor."""
        self.drop_reader()
        self.observe(states.Searched())

    def due(self, now: float, grace: float) -> End | None:
        """What to offer now, if anything."""
        if self.over:
            return "final"
        if now < self.rest_until or self.next_look not in (states.Look.PATH, states.Look.FILE):
            return None
        look_again = (self.reserved or self.just_written) and now - self.looked_at >= RELOOK_SECONDS
        if self.changed or self.more or look_again:
            return "quiet" if self.stuck else "more"
        if self.left is not None and now - max(self.left, self.grew) >= grace:
            return "final"
        unconsumed = self.looked_to > self.position.offset
        return "quiet" if unconsumed and self.quiet_at != self.looked_to and now - self.grew >= QUIET_SECONDS else None

    def active(self, now: float) -> bool:
        """Whether it is looked at in every poll."""
        moves = self.changed or self.more or self.reserved or self.just_written or now - self.grew < ACTIVE_SECONDS
        return self.state.since is not None or moves

    def take_in(self, block: bytes, start: int, count: int, now: float) -> int:
        """Up to `count` bytes behind the offset have been read, in a block from `start`. How many are new?"""
        stop = start + len(block)
        self.looked_at, self.reserved = now, block.endswith(b"\0")
        self.unconfirmed = False
        self.just_written = may_stay(self.touched)
        self.kept = self.kept or block[: self.position.offset - start]
        new = max(0, stop - max(self.looked_to, self.position.offset))
        self.changed, self.more = False, stop - self.position.offset >= count
        self.looked_to = max(stop, self.position.offset)
        self._look_at(block, start)
        if self.unread <= 0:
            self.waiting = None
        return new

    def remember(self) -> None:
        """Read what lies before the offset, if it is what it was: size and time do not tell whether it is."""
        if not self.kept and self.reader is not None and self.position.offset:
            start = max(0, self.position.offset - KEPT_BYTES)
            block = self.reader.read(self.position.offset - start, start)
            same = self.position.mark.holds(block[self.position.mark.window - start :])
            self.kept, self.changed = block if same else b"", self.changed or not same

    def go_back(self) -> bool:
        """Where a writer has cut off or written over the last of what was consumed, go on with the first line that differs.

        A line that only goes on where it ended has been counted. False if too little is the same to be sure.
        """
        kept, position = self.kept, self.position
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
        self.position = replace(position, offset=offset, line=position.line - kept.count(b"\n", stay), mark=mark)
        self.kept, self.looked_to, self.changed, self.quiet_at = kept[:stay], offset, True, -1
        return True

    def fall_back(self) -> bool:
        """Go on at the end of a file that is an earlier state of itself: a loss of power or a restore took back what was
        written last. All that is there has been consumed. Nobody truncates a file without giving it a later time.

        How many lines it has is not known; the number goes on. False if it is not so, or too short to tell.
        """
        position = self.position
        older = HEAD_BYTES <= self.size < position.offset and self.modified <= position.modified
        if not older or self.reader is None or not position.mark.begins_like(self.reader.read):
            return False
        mark = Fingerprint.taken(self.reader.read, self.size)
        if mark.length < self.size:
            return False
        self.position = replace(position, offset=mark.length, mark=mark)
        self.kept, self.looked_to, self.changed, self.quiet_at = b"", mark.length, True, -1
        return True

    def is_hole_now(self, block: bytes, start: int) -> bool:
        """Whether there are NULs where a line began: truncated, though all that was consumed was NULs too."""
        return bool(self.next_byte) and block[self.position.offset - start :][:1] == b"\0"

    def skip_nuls(self, block: bytes, start: int) -> bool:
        """Skip NULs at the offset: a writer that keeps its old offset after a truncation leaves such a hole.

        NULs up to the end stay, for they may be space that is yet to be written to. True if the next bytes lie elsewhere
        than in the block, or have not been found yet.
        """
        position = self.position
        data = block[position.offset - start :]
        nuls = len(data) - len(data.lstrip(b"\0"))
        if nuls == 0 or self.reader is None:
            return False
        target = position.offset + nuls
        if nuls < len(data):
            self.position = replace(position, offset=target, mark=position.mark.moved(target, block, start))
            self.kept = b""
            self._look_at(block, start)
            return False
        if self.zeros_to > self.size:
            self.zeros_to = 0
        after = self.reader.data_after(max(self.zeros_to, target)) if self.more else None
        ahead = self.reader.read(ZEROS_BYTES, after) if after is not None else b""
        if after is None or not ahead:
            self.more, self.looked_to = False, max(self.looked_to, self.size)
            return False
        self.zeros_to = after + len(ahead) - len(ahead.lstrip(b"\0"))
        if self.zeros_to < after + len(ahead):
            self.position = replace(
                position, offset=self.zeros_to, mark=Fingerprint.taken(self.reader.read, self.zeros_to)
            )
            self.kept, self.changed = b"", True
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
            self.quiet_at = self.looked_to
        if data or end == "final":
            self.handed = Handed(block[:begin], data, block[stop] if stop < len(block) else None, end)
        return data

    def consume(self, consumed: int, lines: int) -> None:
        """The first bytes of what was handed out are done with."""
        handed, position = self.handed, self.position
        if handed is None:
            raise ValueError(f"{self.key} was not handed out")
        self.handed = None
        self.stuck = handed.end == "more" and consumed == 0 and self.more
        if consumed == 0:
            return
        # Lines that are left for lack of time are offered again at once; a line that waits for those behind it is not.
        left = handed.data.count(b"\n", consumed)
        self.changed = self.changed or left > MOST_WAITING or (handed.end == "quiet" and left > 0)
        self.quiet_at = -1 if left else self.quiet_at
        offset = position.offset + consumed
        block = handed.before + handed.data[:consumed]
        kept = self.kept + handed.data[:consumed] if len(block) < KEPT_BYTES else block
        self.kept = memoryview(kept)[-KEPT_BYTES:].tobytes()  # a copy: what was read of a short log fills a page
        self.position = replace(
            position,
            offset=offset,
            line=position.line + lines,
            mark=position.mark.moved(offset, block, offset - len(block)),
            modified=self.modified if self.left is None else position.modified,  # what came to its path later is newer
        )
        self.next_byte = handed.data[consumed] if consumed < len(handed.data) else handed.next_byte
        if self.unread <= 0:
            self.waiting = None

    def _look_at(self, block: bytes, start: int) -> None:
        index = self.position.offset - start
        self.next_byte = block[index] if index < len(block) else None
