"""One log that is followed: where it was read to, and what of it may be handed out next.

Decides from numbers and bytes; which file a log continues in is `follow`'s to find, when to look is the source's.
Times are seconds of the source's own clock, which never goes back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from exporter.core.model import Job
from exporter.sources.files import states
from exporter.sources.files.clock import may_stay
from exporter.sources.files.filesystem import Reader
from exporter.sources.files.identity import HEAD_BYTES, NOWHERE, TAIL_BYTES, Fingerprint, Inode
from exporter.sources.files.log_values import Activity, End, FileStat, Handed, LastRead, Offer, Position, share

QUIET_SECONDS = 1.0  # writers flush a line within milliseconds; a count may lag by a second
ACTIVE_SECONDS = 10.0  # 20,000 logs take 10% of a core meanwhile; then inotify or the round over all tells
ZEROS_BYTES = 1 << 20  # checked in one step unless they are a hole
RELOOK_SECONDS = 5.0  # stores into a mapped file change neither its time nor its size, and inotify tells nothing
KEPT_BYTES = (
    1024  # of what was consumed, to see how much of it stays when a writer goes back: 1 MiB for 1024 open files
)
MOST_WAITING = 64  # lines that the pipeline may hold back for those behind them; a signature spans 12
MAX_CALLED = 8  # a log has one name at a time, but for links and rotation into the glob


@dataclass(slots=True, eq=False)
class Log:
    """One log. `key` and `origin` stay for its life, through renames and restarts; the rest is what is known now."""

    key: str
    origin: str
    base: str  # the path that it was found under
    position: Position
    job: Job | None = None
    reader: Reader | None = None
    names: tuple[str, ...] = ()  # paths of the globs that lead to it
    state: states.State = field(default_factory=states.Following)
    stat: FileStat = field(default_factory=FileStat)
    last_read: LastRead = field(default_factory=LastRead)
    offer: Offer = field(default_factory=Offer)
    activity: Activity = field(default_factory=Activity)

    def take_up(self) -> None:
        """Go on where an earlier process left it: a file of the same size and time need not be read."""
        position = self.position
        self.stat.size = self.stat.size_before = self.last_read.looked_to = position.offset
        self.stat.modified = position.modified
        self.activity.changed, self.last_read.judged = False, position.offset > 0

    def name(self, path: str) -> None:
        """A path of the globs leads to it."""
        self.names = (*self.names, path)
        self.observe(states.Reached())
        called = self.position.called
        if path != self.position.path and path not in called and len(called) < MAX_CALLED:
            self.position = replace(self.position, called=(*called, path))

    def written_at(self, block: bytes, start: int) -> float | None:
        """When the last of a block that was read from `start` was written; None if that may have been just now."""
        settled = not self.stat.moves and not self.last_read.reserved and start + len(block) <= self.stat.size
        return self.stat.modified / 1e9 if settled else None

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
    def end(self) -> int:
        """Up to where it is known to reach."""
        return max(self.stat.size, self.last_read.looked_to)

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
        return self.unread if self.offer.handed is None else self.end - self.last_read.looked_to

    def see(self, status: os.stat_result, now: float) -> None:
        """Take in what a stat tells."""
        stat, activity = self.stat, self.activity
        first, touched = stat.touched == 0, stat.touched != status.st_ctime_ns
        stat.unlinked, stat.uid, stat.touched = status.st_nlink == 0, status.st_uid, status.st_ctime_ns
        activity.changed = activity.changed or (touched and not first)
        if (status.st_size, status.st_mtime_ns) == (stat.size, stat.modified):
            stat.unconfirmed = False
            return
        stat.moves = not first
        stat.size_before, stat.size, stat.modified = stat.size, status.st_size, status.st_mtime_ns
        activity.changed, activity.grew = True, now
        if activity.waiting is None:
            activity.waiting = now

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
        if self.stat.unconfirmed:
            self.stat.touched = 0
        self.stat.size = self.stat.size_before
        self.last_read.zeros_to, self.last_read.reserved = 0, False
        whole = not self.stat.unconfirmed and not self.unseen
        self.position = replace(self.position, device=NOWHERE[0], inode=NOWHERE[1], generation=None, whole=whole)

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
        read, activity = self.last_read, self.activity
        if now < activity.rest_until or self.next_look not in (states.Look.PATH, states.Look.FILE):
            return None
        if activity.changed or read.more or (read.may_have_changed and now - read.looked_at >= RELOOK_SECONDS):
            return "quiet" if self.offer.stuck else "more"
        if self.left is not None and now - max(self.left, activity.grew) >= grace:
            return "final"
        has_tail = read.looked_to > self.position.offset and self.offer.quiet_at != read.looked_to
        return "quiet" if has_tail and now - activity.grew >= QUIET_SECONDS else None

    def active(self, now: float) -> bool:
        """Whether it is looked at in every poll."""
        read, activity = self.last_read, self.activity
        moves = activity.changed or read.more or read.may_have_changed or now - activity.grew < ACTIVE_SECONDS
        return self.state.since is not None or moves

    def take_in(self, block: bytes, start: int, count: int, now: float) -> int:
        """Up to `count` bytes behind the offset have been read, in a block from `start`. How many are new?"""
        read, offset, stop = self.last_read, self.position.offset, start + len(block)
        new = max(0, stop - max(read.looked_to, offset))
        read.looked_at, read.looked_to, read.more = now, max(stop, offset), stop - offset >= count
        read.reserved, read.just_written = block.endswith(b"\0"), may_stay(self.stat.touched)
        read.kept = read.kept or block[: offset - start]
        self.stat.unconfirmed = self.activity.changed = False
        self._look_at(block, start)
        if self.unread <= 0:
            self.activity.waiting = None
        return new

    def remember(self) -> None:
        """Read what lies before the offset, if it is what it was: size and time do not tell whether it is."""
        if not self.last_read.kept and self.reader is not None and self.position.offset:
            start = max(0, self.position.offset - KEPT_BYTES)
            block = self.reader.read(self.position.offset - start, start)
            same = self.position.mark.holds(block[self.position.mark.window - start :])
            self.last_read.kept, self.activity.changed = block if same else b"", self.activity.changed or not same

    def go_back(self) -> bool:
        """Where a writer has cut off or written over the last of what was consumed, go on with the first line that differs.

        A line that only goes on where it ended has been counted. False if too little is the same to be sure.
        """
        kept, position = self.last_read.kept, self.position
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
        self.last_read.kept, self.last_read.looked_to = kept, offset
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
            read.kept = b""
            self._look_at(block, start)
            return False
        if read.zeros_to > self.stat.size:
            read.zeros_to = 0
        after = self.reader.data_after(max(read.zeros_to, target)) if read.more else None
        ahead = self.reader.read(ZEROS_BYTES, after) if after is not None else b""
        if after is None or not ahead:
            read.more, read.looked_to = False, self.end
            return False
        read.zeros_to = after + len(ahead) - len(ahead.lstrip(b"\0"))
        if read.zeros_to < after + len(ahead):
            mark = Fingerprint.taken(self.reader.read, read.zeros_to)
            self.position = replace(position, offset=read.zeros_to, mark=mark)
            read.kept, self.activity.changed = b"", True
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
            self.offer.quiet_at = self.last_read.looked_to
        if data or end == "final":
            self.offer.handed = Handed(block[:begin], data, block[stop] if stop < len(block) else None, end)
        return data

    def consume(self, consumed: int, lines: int) -> None:
        """The first bytes of what was handed out are done with."""
        handed, position = self.offer.handed, self.position
        if handed is None:
            raise ValueError(f"{self.key} was not handed out")
        self.offer.handed = None
        read = self.last_read
        self.offer.stuck = handed.end == "more" and consumed == 0 and read.more
        if consumed == 0:
            return
        # Lines that are left for lack of time are offered again at once; a line that waits for those behind it is not.
        left = handed.data.count(b"\n", consumed)
        self.activity.changed = self.activity.changed or left > MOST_WAITING or (handed.end == "quiet" and left > 0)
        self.offer.quiet_at = -1 if left else self.offer.quiet_at
        offset = position.offset + consumed
        block = handed.before + handed.data[:consumed]
        kept = read.kept + handed.data[:consumed] if len(block) < KEPT_BYTES else block
        read.kept = memoryview(kept)[-KEPT_BYTES:].tobytes()  # a copy: what was read of a short log fills a page
        # What came to its path later is newer.
        modified = self.stat.modified if self.left is None else position.modified
        mark = position.mark.moved(offset, block, offset - len(block))
        self.position = replace(position, offset=offset, line=position.line + lines, mark=mark, modified=modified)
        read.next_byte = handed.data[consumed] if consumed < len(handed.data) else handed.next_byte
        if self.unread <= 0:
            self.activity.waiting = None

    def _look_at(self, block: bytes, start: int) -> None:
        index = self.position.offset - start
        self.last_read.next_byte = block[index] if index < len(block) else None
