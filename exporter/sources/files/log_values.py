"""The values that make up what is known of a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.core.model import LogFormat
from exporter.sources.files.identity import Fingerprint, Inode

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


@dataclass(slots=True)
class FileStat:
    """What the last stat told of a log's file."""

    size: int = 0
    size_before: int = 0  # its last change
    modified: int = 0
    touched: int = 0  # its ctime, which nobody can set
    uid: int | None = None
    unlinked: bool = False  # it has no name any more: closed, it is gone
    moves: bool = False  # its size or time has changed since it was first looked at
    unconfirmed: bool = False  # stored by an earlier process; it may have changed since


@dataclass(slots=True)
class LastRead:
    """What the last read of a log told."""

    looked_to: int = 0  # bytes up to here have been read, if not consumed
    looked_at: float = -1.0
    next_byte: int | None = None  # the one at the offset
    kept: bytes = b""  # what lies before the offset, as far as it is remembered
    reserved: bool = False  # it ends in NULs: space that is yet to be written to
    just_written: bool = False  # its time may not tell of what is written next
    zeros_to: int = 0  # bytes from the offset up to here were NULs
    more: bool = False  # it did not reach the end
    judged: bool = False  # whether it is text

    @property
    def may_have_changed(self) -> bool:
        """Whether no stat would tell that it has changed since."""
        return self.reserved or self.just_written


@dataclass(slots=True)
class Offer:
    """What the pipeline was last offered of a log."""

    handed: Handed | None = None
    stuck: bool = False  # the pipeline waits for more than a chunk can hold
    quiet_at: int = -1  # where the log ended when its tail was last offered


@dataclass(slots=True)
class Activity:
    """When a log is to be read, and what of it was counted."""

    changed: bool = True  # since it was last read
    grew: float = 0.0
    waiting: float | None = None  # since when there are bytes to consume
    rest_until: float = 0.0  # it could not be opened or read
    counted_write: tuple[int, int] = (0, 0)  # its ctime and its offset when its job's last write was counted
