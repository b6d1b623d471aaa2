"""The interface of transports, which read kernel records, and its values. The transports are the other modules here.

`exporter.sources.kernel.kernel_log` selects the transport and tracks what was consumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPosition:
    """How far the kernel log has been read. All transports share it, so a node can change its transport.

    Each transport sets what it knows: all of them `us`, the device `seq`, syslog(2) `same`, the journal `cursor`, a file the
    fields below `cursor`. `boot_id` is empty for a file, which may have several boots.
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

    def of_boot(self, boot_id: str) -> KernelPosition:
        """This position; the beginning if it belongs to another boot."""
        return self if self.boot_id == boot_id else KernelPosition(boot_id=boot_id)

    def gap_to(self, later: KernelPosition) -> int:
        """How many records are missing between two positions. Numbers that restart belong to a new boot."""
        if self.seq is None or later.seq is None or self.boot_id != later.boot_id:
            return 0
        return max(0, later.seq - self.seq - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line in /dev/kmsg form, and the position after it.

    boot_time: wall time of the zero of its boot's clock; only for an earlier boot. number: line number in the file; 0
    without a file, or if unknown.
    """

    data: bytes
    position: KernelPosition
    boot_time: float | None = None
    number: int = 0


class PersistentTransport:
    """A transport whose records stay available and can be read again."""

    takes = False
    rest = b""


class Transport(Protocol):
    """An open transport. After an OSError from any method, open it again.

    takes: reading removes the records, as from a FIFO. rest: an incomplete last line; empty for most transports.
    """

    @property
    def takes(self) -> bool: ...

    @property
    def rest(self) -> bytes: ...

    def read(self, now: float) -> Iterator[Line]:
        """The available lines. The caller may stop at any line; the next call continues after it."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there are new records; None without one."""

    def close(self) -> None: ...
