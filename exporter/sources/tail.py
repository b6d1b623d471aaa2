"""One log that is followed: where it was read to, and what of it may be handed out next.

Decides from numbers and bytes; which file a log continues in is `follow`'s to find, when to look is the source's.
Times are seconds of the source's own clock, which never goes back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from exporter.core.model import Job, LogFormat
from exporter.sources.identity import NOWHERE, Fingerprint, Inode
from exporter.sources.opening import Reader
from exporter.sources.unpacked import Search

QUIET_SECONDS = 1.0  # writers flush a line within milliseconds; a count may lag by a second
ACTIVE_SECONDS = 60.0

End = Literal["more", "quiet", "final"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What is stored of a log: where its bytes are, and where the first of them lies that is not consumed yet.

    `mark` tells the bytes up to `offset`; while nothing is consumed, those that were looked at.
    """

    path: str
    place: str = ""  # where `path` led to, if it is a link or has been given to another file
    device: int = 0
    inode: int = 0
    generation: int | None = None
    modified: int = 0  # nanoseconds of the file system's clock
    offset: int = 0
    line: int = 1
    mark: Fingerprint = field(default_factory=Fingerprint)
    format: LogFormat | None = None

    @property
    def file(self) -> Inode:
        return self.device, self.inode


class Handed(NamedTuple):
    """What was last read of a log and handed out: `block` begins at `start`, what was handed out at the offset."""

    block: bytes
    start: int
    size: int
    end: End


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
    names: set[str] = field(default_factory=set)  # paths of the globs that lead to it
    size: int = 0  # when last looked at
    modified: int = 0
    looked_to: int = 0  # bytes up to here have been read, if not consumed
    changed: bool = True  # since it was last read
    more: bool = False  # the last read did not reach the end
    stuck: bool = False  # the pipeline waits for more than a chunk can hold
    quiet_at: int = -1  # where it ended when its tail was last offered
    grew: float = 0.0
    waiting: float | None = None  # since when there are bytes to consume
    left: float | None = None  # since when no path of the globs leads to it
    search: Search | None = None  # for its bytes among compressed files
    over: bool = False  # its bytes are out of reach
    rest_until: float = 0.0  # it could not be opened or read
    judged: bool = False  # whether it is text
    handed: Handed | None = None

    @property
    def unread(self) -> int:
        return max(self.size, self.looked_to) - self.position.offset

    @property
    def unseen(self) -> bool:
        """Whether there are bytes that the pipeline has not even looked at."""
        return self.unread > 0 and self.quiet_at < max(self.size, self.looked_to)

    def see(self, status: os.stat_result, now: float) -> None:
        """Take in what a stat tells."""
        if (status.st_size, status.st_mtime_ns) == (self.size, self.modified):
            return
        self.size, self.modified = status.st_size, status.st_mtime_ns
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
        )

    def lose_file(self) -> None:
        """Its bytes are not in its file any more."""
        self.drop_reader()
        self.position = replace(self.position, device=NOWHERE[0], inode=NOWHERE[1], generation=None)

    def drop_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def due(self, now: float, grace: float) -> End | None:
        """What to offer now, if anything."""
        if self.over:
            return "final"
        if now < self.rest_until or self.search is not None:
            return None
        if self.changed or self.more:
            return "quiet" if self.stuck else "more"
        if self.left is not None and now - max(self.left, self.grew) >= grace:
            return "final"
        unconsumed = self.looked_to > self.position.offset
        return "quiet" if unconsumed and self.quiet_at != self.looked_to and now - self.grew >= QUIET_SECONDS else None

    def active(self, now: float) -> bool:
        """Whether it is looked at in every poll."""
        return self.left is not None or self.over or self.changed or self.more or now - self.grew < ACTIVE_SECONDS

    def consume(self, consumed: int, lines: int) -> None:
        """The first bytes of what was handed out are done with."""
        handed, position = self.handed, self.position
        assert handed is not None
        self.handed = None
        self.stuck = handed.end == "more" and consumed == 0 and self.more
        if consumed == 0:
            return
        offset = position.offset + consumed
        self.position = replace(
            position,
            offset=offset,
            line=position.line + lines,
            mark=position.mark.moved(offset, handed.block, handed.start),
            modified=self.modified,
        )
        if self.unread <= 0:
            self.waiting = None
