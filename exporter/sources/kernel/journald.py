"""Kernel records from the systemd journal, for nodes where nothing else is readable."""

from collections.abc import Iterator

from exporter.core.decoding import kernel_records
from exporter.sources.base import SourceStats
from exporter.sources.kernel.transport import KernelPosition, Line, PersistentTransport
from exporter.sources.systemd.libsystemd import JournalEntry, JournalReader

ENTRIES_A_POLL = 1000  # an entry costs 50 to 100 microseconds of libsystemd and Python
KERNEL = ("_TRANSPORT", "kernel")  # journald sets it: a user may log with any identifier, but not by this transport


class KernelJournal(PersistentTransport):
    """Kernel records after the position's cursor; without a cursor, those of the current boot.

    `journal` has KERNEL entries only. Earlier boots after the cursor are read too: the last lines before a reset may be in
    the journal.
    """

    def __init__(
        self,
        position: KernelPosition,
        boot_id: str,
        stats: SourceStats,
        journal: JournalReader,
    ) -> None:
        self._journal = journal
        self._boot_id = boot_id
        self._position = position if position.cursor else position.of_boot(boot_id)
        if not position.cursor:
            self._journal.seek_boot(boot_id)
        elif not self._journal.seek(position.cursor):
            stats.drop("cursor_gone")

    def read(self, now: float) -> Iterator[Line]:  # noqa: ARG002 (some transports need the time)
        for _ in range(ENTRIES_A_POLL):
            entry = self._journal.next()
            if entry is None:
                return
            us, data = kernel_line(entry) or (None, b"")
            if us is None or not (self._position.cursor or self._is_new(entry, us)):
                continue
            self._position = KernelPosition(boot_id=entry.boot_id, us=us, cursor=entry.cursor)
            ended = entry.boot_id != self._boot_id
            boot_time = (entry.realtime_us - entry.monotonic_us) / 1e6 if ended else None
            yield Line(data=data, position=self._position, boot_time=boot_time)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._journal.close()

    def _is_new(self, entry: JournalEntry, us: int) -> bool:
        """Whether an entry is after a position without a cursor: the start of this boot, or that of another transport."""
        return entry.boot_id == self._boot_id and us > self._position.us


def kernel_line(entry: JournalEntry) -> tuple[int, bytes] | None:
    """The time and the canonical line of a KERNEL entry; None if it lacks one of its fields."""
    fields = entry.fields
    try:
        facility, level = int(fields["SYSLOG_FACILITY"]), int(fields["PRIORITY"])
        us, text = int(fields["_SOURCE_MONOTONIC_TIMESTAMP"]), fields["MESSAGE"]
    except (KeyError, ValueError):
        return None
    if facility and "SYSLOG_IDENTIFIER" in fields:  # journald takes it off what user space writes to /dev/kmsg
        text = f"{fields['SYSLOG_IDENTIFIER']}: {text}"
    device = fields.get("_KERNEL_DEVICE", "")
    return us, kernel_records.compose(
        pri=facility * 8 + level, us=us, text=text.encode("utf-8", "backslashreplace"), device=device
    )
