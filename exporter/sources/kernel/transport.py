"""What every way to the kernel's records is, and the values it deals in. The ways are the other files of this folder.

Which way to take, and what has been consumed, is decided in `exporter.sources.kernel.source`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far the kernel's log has been read. One value for every way, so that a node which changes its way goes on.

    Each way sets what it knows: `us` all of them, `seq` the device, `same` syslog(2), `cursor` the journal,
    what stands below `cursor` a file. `boot_id` is empty for a file, which may hold several boots.
    """

    boot_id: str = ""
    us: int = -1  # the last record's time on the kernel's clock, microseconds
    seq: int | None = None
    same: str = ""  # chained digest of the lines with that time (`core.kmsg.chain`)
    cursor: str = ""
    file: str = ""  # device and inode
    at: int = 0  # bytes
    head: str = ""  # the file's first bytes, in hexadecimal digits
    last: str = ""  # those before `at`: by them the file is known again, whatever it is called and wherever it lies
    modified: int = 0  # when the file was last written to, nanoseconds
    line: int = 0  # the number of the line at `at`; 0: not known

    def of_boot(self, boot_id: str) -> Place:
        """This place, or the beginning if it lies in another boot: there everything is new."""
        return self if self.boot_id == boot_id else Place(boot_id=boot_id)

    def gap_to(self, later: Place) -> int:
        """How many records lie between two places. Numbers that start again are a new boot's."""
        if self.seq is None or later.seq is None or self.boot_id != later.boot_id:
            return 0
        return max(0, later.seq - self.seq - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line in the canonical form of `core.kmsg`, and the place behind it.

    `boot_time` is told only of a boot that is over: the wall time of its clock's zero. `number` is that of the line in its
    file; 0 where there is no file, or it is not known.
    """

    data: bytes
    place: Place
    boot_time: float | None = None
    number: int = 0


class Kept:
    """A way that leaves what it reads where it is, so that it can be read again."""

    takes = False
    rest = b""


class Transport(Protocol):
    """One way to the kernel's records, open. Anything may raise OSError: open it again.

    `takes`: what was read is no longer where it was. `rest` is an incomplete last line; empty elsewhere.
    """

    @property
    def takes(self) -> bool: ...

    @property
    def rest(self) -> bytes: ...

    def read(self, now: float) -> Iterator[Line]:
        """What is there now. May be left at any line: the next call goes on behind it."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there is news, if there is one."""

    def close(self) -> None: ...
