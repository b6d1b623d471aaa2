"""The kernel log as a source: selects a transport that works here, tracks consumed records, and dates them.

The transports are the other modules of this folder; `exporter.core.decoding.kernel_records` parses records and decides
which ones to trust (facility 0).
"""

import contextlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from exporter.core.decoding.formats import begins_as_kernel_message, resembles_kernel_line
from exporter.core.decoding.kernel_records import parse_header
from exporter.core.model import Chunk
from exporter.core.text.stored_values import from_json, to_json
from exporter.sources.backlog import Backlog, changes
from exporter.sources.base import SourceStats
from exporter.sources.boot import boot_time_now, this_boot
from exporter.sources.kernel import ring
from exporter.sources.kernel.file import FollowedFile
from exporter.sources.kernel.journald import KERNEL, KernelJournal
from exporter.sources.kernel.ring import KmsgDevice, SyslogRing
from exporter.sources.kernel.transport import KernelPosition, Line, Transport
from exporter.sources.systemd.libsystemd import OpenJournal, SystemdJournal

Mode = Literal["auto", "kmsg", "syslog", "journal", "file"]

LINES_A_POLL = 4096
BACKLOG_BYTES = 1 << 20  # the pipeline's block; while the pipeline is stalled, the rest is left to the kernel's ring
RETRY_SECONDS = 30.0  # what is refused stays refused until somebody changes the node
FOREIGN_LINES = 10  # in a row: a file in another form; one that is a kernel's line in text form is enough
HEADER_BYTES = 256
RETRY_FILE_SECONDS = 1.0  # a missing file may appear at any moment
_AUTO: tuple[Mode, ...] = ("kmsg", "syslog", "journal")
_ADVICE: Mapping[Mode, str] = {
    "kmsg": "needs CAP_SYSLOG or kernel.dmesg_restrict=0; a container's device cgroup refuses it unless privileged",
    "syslog": "needs CAP_SYSLOG or kernel.dmesg_restrict=0",
    "journal": "needs gpufault[journald], the group systemd-journal and the host's journal",
    "file": "make it a file that gpufault may read, or a FIFO that it may read and write",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPosition:
    """The stored position: that after the last consumed line, and its offset and line for the pipeline."""

    place: KernelPosition = field(default_factory=KernelPosition)
    offset: int = 0
    line: int = 1
    taken: str = ""  # off a FIFO and not consumed yet, as Latin-1: it can be read nowhere else


@dataclass(frozen=True, slots=True)
class _Boot:
    """The unconsumed log of one boot. `boot_time` is None for the current boot."""

    boot_id: str
    boot_time: float | None
    backlog: Backlog[KernelPosition]


class KmsgSource:
    """One kernel log. All modes share one form of position, so a change of mode repeats nothing."""

    def __init__(
        self,
        mode: Mode,
        path: str | None,
        stored: Mapping[str, str],
        *,
        boot_id: str | None = None,
        boot_time: Callable[[], float] | None = None,
        open_journal: OpenJournal = SystemdJournal,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        if mode == "file" and path is None:
            raise ValueError("mode: file needs a path")
        self.name = f"kmsg:{path}" if path else "kmsg"
        self.stats = SourceStats(deferred={"jobs": 0})
        self.overwritten = True
        self.active_mode: Mode | None = None  # the one that is open
        self._mode: Mode = "file" if mode == "auto" and path else mode
        self._path = path
        self._boot_id = boot_id or this_boot()
        self._boot_time = boot_time or boot_time_now
        self._open_journal = open_journal
        self._log_warning = log
        self._current = self._saved = dict(stored)
        self._consumed = _newest(stored.values())
        self._read_to = self._consumed.place
        self._taken = self._consumed.taken.encode(
            "latin-1", "replace"
        )  # to be given to the transport that is opened next
        self._takes = False  # whether what the transport reads is gone from where it was
        self._boots: deque[_Boot] = deque()
        self._open: Transport | None = None
        self._rested: float | None = None
        self._polled = 0.0
        self._foreign = 0  # lines of a file since the last record

    def poll(self, now: float) -> Sequence[Chunk]:
        if self._open is None and not self._rests(now):
            self._find_transport(now)
        if self._open is not None:
            self._read(self._open, now)
        self.stats.files = self.stats.open_files = int(self._open is not None)
        self._polled = now
        self._measure()
        return self._offer(now)

    def advance(self, log: str, consumed: int, lines: int) -> None:
        boot = self._boots[0]
        if log != self._log(boot.boot_id):
            raise ValueError(f"{log} was not handed out")
        for position in boot.backlog.advance(consumed, lines):
            self.stats.lost_records += self._consumed.place.gap_to(position)
            self._consumed = StoredPosition(place=position, offset=boot.backlog.offset, line=boot.backlog.line)
        self._measure()

    def unsaved(self) -> Mapping[str, str | None]:
        stored = replace(self._consumed, taken=self._held().decode("latin-1"))
        if stored != StoredPosition():
            key = self._log(stored.place.boot_id)
            self._current = {key: to_json(stored)}
        return changes(self._current, self._saved)

    def saved(self) -> None:
        self._saved = self._current

    def fileno(self) -> int | None:
        return self._open.fileno() if self._open else None

    def close(self) -> None:
        if self._open:
            self._taken = self._open.rest
            self._open.close()
        self._open, self.active_mode, self.stats.up = None, None, False

    def _rests(self, now: float) -> bool:
        seconds = RETRY_FILE_SECONDS if self._mode == "file" else RETRY_SECONDS
        return self._rested is not None and 0 <= now - self._rested < seconds

    def _find_transport(self, now: float) -> None:
        refusals = []
        for mode in _AUTO if self._mode == "auto" else (self._mode,):
            try:
                self._open = self._open_transport(mode)
            except OSError as error:
                refusals.append(f"{mode}: {error.strerror or error} ({_ADVICE[mode]})")
                continue
            self.active_mode, self.stats.up, self.stats.down_reason = mode, True, ""
            if isinstance(self._open, FollowedFile) and (last := self._open.last_line):
                self._check_form(last)  # after a restart, no line may follow for days
            return
        self._rested, self.stats.down_reason = now, "; ".join(refusals)

    def _open_transport(self, mode: Mode) -> Transport:
        path, position = self._path or ring.PATH, self._read_to
        if mode == "syslog":
            return SyslogRing(position.of_boot(self._boot_id), self.stats)
        if mode == "journal":
            return KernelJournal(position, self._boot_id, self.stats, self._open_journal(KERNEL, self._path))
        if self._path and not stat.S_ISCHR(os.stat(path).st_mode):
            followed = FollowedFile(path, position, self.stats, self._taken)
            self._taken, self._takes = b"", followed.takes
            return followed
        return KmsgDevice.open(path, position.of_boot(self._boot_id))

    def _read(self, transport: Transport, now: float) -> None:
        if self._boots and len(self._boots[-1].backlog) >= BACKLOG_BYTES:
            return
        try:
            for line in itertools.islice(transport.read(now), LINES_A_POLL):
                backlog = self._backlog_of(line)
                backlog.add(line.data, line.position, now, line.number)
                self._check_form(line.data)
                self._read_to = line.position
                self.stats.bytes_read += len(line.data)
                self.stats.last_read = now
                if len(backlog) >= BACKLOG_BYTES:
                    return
        except OSError as error:
            self.stats.down_reason = (
                f"{self.active_mode}: {error.strerror or error}; it is opened again at the same place"
            )
            self.close()
            self._rested = None

    def _check_form(self, data: bytes) -> None:
        """Mark the source as down if the file is not in /dev/kmsg form: none of its lines would count."""
        if not isinstance(self._open, FollowedFile):
            return
        if parse_header(data[:HEADER_BYTES]):
            self._foreign = 0
            if not self.stats.up:
                self.stats.up, self.stats.down_reason = True, ""
            return
        is_text = resembles_kernel_line(data) or begins_as_kernel_message(data)
        self._foreign = FOREIGN_LINES if is_text else self._foreign + 1
        if self._foreign >= FOREIGN_LINES and self.stats.up:
            self.stats.up = False
            self.stats.down_reason = (
                f"{self._path}: its lines are not records in the form of /dev/kmsg, so none of them counts (is it the text "
                "of dmesg or syslog?); no mode reads that: leave `mode` and `path` out to read the kernel's log itself, or "
                "set `mode: journal` without `path` to read it from the journal"
            )
            self._log_warning(self.stats.down_reason)

    def _held(self) -> bytes:
        """Unconsumed records that cannot be read again."""
        rest = self._taken
        if (
            self._open
        ):  # after a kill another record may follow: one whose number is not all there would get a wrong one
            whole, newline, begun = self._open.rest.rpartition(b"\n")
            rest = whole + newline + (begun if b";" in begun else b"")
        return b"".join(boot.backlog.data for boot in self._boots) + rest if self._takes else rest

    def _backlog_of(self, line: Line) -> Backlog[KernelPosition]:
        boot_id = line.position.boot_id
        if not self._boots or self._boots[-1].boot_id != boot_id:
            goes_on = self._consumed if self._consumed.place.boot_id == boot_id else StoredPosition()
            backlog = Backlog[KernelPosition](goes_on.offset, goes_on.line)
            self._boots.append(_Boot(boot_id=boot_id, boot_time=line.boot_time, backlog=backlog))
        return self._boots[-1].backlog

    def _offer(self, now: float) -> list[Chunk]:
        """The lines of the oldest boot. Those of the next boot wait until these are consumed: positions only move forward."""
        while len(self._boots) > 1 and not self._boots[0].backlog:
            self._boots.popleft()
        if not self._boots:
            return []
        boot = self._boots[0]
        end = "final" if len(self._boots) > 1 else boot.backlog.due(now)
        if end is None:
            return []
        return [
            Chunk(
                log=self._log(boot.boot_id),
                origin=boot.boot_id or self._boot_id,
                path=self._path or ring.PATH,
                source="kernel",
                format="kmsg",
                offset=boot.backlog.offset,
                line=boot.backlog.line,
                data=boot.backlog.data,
                read_at=now,
                end=end,
                numbers=boot.backlog.numbers,
                boot_time=self._boot_time() if boot.boot_time is None else boot.boot_time,
            )
        ]

    def _measure(self) -> None:
        self.stats.lag_bytes = sum(len(boot.backlog) for boot in self._boots)
        self.stats.lag_seconds = max((boot.backlog.age(self._polled) for boot in self._boots), default=0.0)

    def _log(self, boot_id: str) -> str:
        return f"kmsg:{boot_id or self._path}"


def _newest(stored: Iterable[str]) -> StoredPosition:
    """The stored position; the beginning if it is invalid."""
    for text in stored:
        with contextlib.suppress(ValueError):
            return from_json(StoredPosition, text)
    return StoredPosition()
