"""The journal as a source: units' output, and the kernel's records. Entries are real ones, in the export format."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core.model import Chunk
from exporter.sources.base import SourceStats
from exporter.sources.kernel.journald import KERNEL, KernelJournal
from exporter.sources.kernel.kernel_log import KmsgSource
from exporter.sources.kernel.transport import KernelPosition, Line
from exporter.sources.systemd.libsystemd import JournalEntry, JournalReader
from exporter.sources.systemd.units import JournaldSource

NOW = 1_800_000_000.0
BOOT = "da70bfbb-ce7b-40bb-a2bd-e5b212a9a9a9"
EARLIER_BOOT = "0a0a0a0a-0000-4000-8000-000000000001"

# journalctl -o export of systemd 252 on a machine with an ACPI host bridge, and of /dev/kmsg written to by root
KERNEL_EXPORT = b"""\
__CURSOR=s=415be32e;i=ca;b=da70bfbbce7b40bba2bde5b212a9a9a9;m=58050000;t=660bfc1d40000;x=1
__REALTIME_TIMESTAMP=1795226567270000
__MONOTONIC_TIMESTAMP=1476800000
_BOOT_ID=da70bfbbce7b40bba2bde5b212a9a9a9
_TRANSPORT=kernel
SYSLOG_FACILITY=0
SYSLOG_IDENTIFIER=kernel
PRIORITY=6
_SOURCE_MONOTONIC_TIMESTAMP=145137
_KERNEL_SUBSYSTEM=pci
_KERNEL_DEVICE=+pci:0000:00:01.0
_UDEV_SYSNAME=0000:00:01.0
MESSAGE=pci 0000:00:01.0: [1af4:1045] type 00 class 0xffff00

__CURSOR=s=415be32e;i=160;b=da70bfbbce7b40bba2bde5b212a9a9a9;m=58063d73;t=660bfc1d56bf6;x=2
__REALTIME_TIMESTAMP=1795226567273462
__MONOTONIC_TIMESTAMP=1476803955
_BOOT_ID=da70bfbbce7b40bba2bde5b212a9a9a9
_TRANSPORT=kernel
PRIORITY=4
SYSLOG_FACILITY=1
_SOURCE_MONOTONIC_TIMESTAMP=1083468226
SYSLOG_IDENTIFIER=gpufault
MESSAGE
\x11\0\0\0\0\0\0\0first
second line

__CURSOR=s=415be32e;i=164;b=da70bfbbce7b40bba2bde5b212a9a9a9;m=58063de1;t=660bfc1d56c64;x=3
__REALTIME_TIMESTAMP=1795226567273572
__MONOTONIC_TIMESTAMP=1476804065
_BOOT_ID=da70bfbbce7b40bba2bde5b212a9a9a9
PRIORITY=6
SYSLOG_FACILITY=0
SYSLOG_IDENTIFIER=kernel
_TRANSPORT=syslog
_PID=5286
MESSAGE=NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.
_SOURCE_MONOTONIC_TIMESTAMP=1083468300

"""


def exported(data: bytes) -> list[JournalEntry]:
    """The entries of a text in the Journal Export Format (systemd.io/JOURNAL_EXPORT_FORMATS)."""
    entries, fields = list[JournalEntry](), dict[str, str]()
    while data:
        line, _, data = data.partition(b"\n")
        if not line:
            entries.append(entry_of(fields))
            fields = {}
            continue
        name, is_text, value = line.partition(b"=")
        if not is_text:
            size = int.from_bytes(data[:8], "little")
            value, data = data[8 : 8 + size], data[8 + size + 1 :]
        fields[name.decode()] = value.decode()
    return entries


def entry_of(fields: Mapping[str, str]) -> JournalEntry:
    return JournalEntry(
        cursor=fields["__CURSOR"],
        boot_id=str(uuid.UUID(fields["_BOOT_ID"])),
        realtime_us=int(fields["__REALTIME_TIMESTAMP"]),
        monotonic_us=int(fields["__MONOTONIC_TIMESTAMP"]),
        fields={name: value for name, value in fields.items() if not name.startswith("__")},
    )


class ExportedJournal:
    """A journal of exported entries, which may grow, lose its oldest ones and be damaged for a moment."""

    def __init__(self, entries: list[JournalEntry]) -> None:
        self.entries = entries
        self.broken = False
        self.opened = 0
        self._at = 0
        self._only: tuple[str, str] | None = None

    def open(self, only: tuple[str, str] | None, directory: str | None) -> JournalReader:
        assert directory is None
        self.opened += 1
        self.broken = False
        self._only = only
        return self

    def seek(self, cursor: str) -> bool:
        cursors = [entry.cursor for entry in self.entries]
        self._at = cursors.index(cursor) + 1 if cursor in cursors else 0
        return cursor in cursors

    def seek_boot(self, boot_id: str) -> None:
        boots = [entry.boot_id for entry in self.entries]
        self._at = boots.index(boot_id) if boot_id in boots else 0

    def seek_end(self) -> str:
        self._at = len(self.entries)
        return self.entries[-1].cursor if self.entries else ""

    def next(self) -> JournalEntry | None:
        if self.broken:
            raise OSError(errno.EBADMSG, "Bad message")
        while self._at < len(self.entries):
            entry = self.entries[self._at]
            self._at += 1
            if self._only is None or entry.fields.get(self._only[0]) == self._only[1]:
                return entry
        return None

    def close(self) -> None: ...


def said(number: int, unit: str, message: str, **more: str) -> JournalEntry:
    return entry_of(
        {
            "__CURSOR": f"s=415be32e;i={number:x}",
            "__REALTIME_TIMESTAMP": str(1795226567000000 + number),
            "__MONOTONIC_TIMESTAMP": str(1476000000 + number),
            "_BOOT_ID": BOOT,
            "_TRANSPORT": "stdout",
            "_SYSTEMD_UNIT": unit,
            "MESSAGE": message,
            **more,
        }
    )


# -- the kernel's records


def kernel_lines(journal: ExportedJournal, position: KernelPosition, stats: SourceStats) -> list[Line]:
    return list(KernelJournal(position, BOOT, stats, journal.open(KERNEL, None)).read(NOW))


def test_kernel_entries_become_the_kernels_own_lines_and_others_do_not() -> None:
    lines = kernel_lines(ExportedJournal(exported(KERNEL_EXPORT)), KernelPosition(), SourceStats())
    assert [line.data for line in lines] == [
        b"6,,145137,-,d=+pci:0000:00:01.0;pci 0000:00:01.0: [1af4:1045] type 00 class 0xffff00\n",
        rb"12,,1083468226,-;gpufault: first\x0asecond line" + b"\n",
    ]
    assert [line.position.us for line in lines] == [145137, 1083468226]
    assert [line.boot_time for line in lines] == [None, None]


def test_without_a_cursor_only_the_running_boot_is_read_behind_what_another_way_has_read() -> None:
    earlier = said(1, "", "last words", _TRANSPORT="kernel", _BOOT_ID=EARLIER_BOOT.replace("-", ""))
    journal = ExportedJournal([earlier, *exported(KERNEL_EXPORT)])
    [line] = kernel_lines(journal, KernelPosition(boot_id=BOOT, us=145137, seq=207), SourceStats())
    assert b"second line" in line.data


def test_the_last_words_of_a_boot_that_is_over_are_read_before_the_next_ones_and_dated_by_their_own_clock() -> None:
    fields = {
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": "0",
        "PRIORITY": "2",
        "_BOOT_ID": EARLIER_BOOT.replace("-", ""),
    }
    known = said(1, "", "known", **fields, _SOURCE_MONOTONIC_TIMESTAMP="1")
    last = said(2, "", "last words", **fields, _SOURCE_MONOTONIC_TIMESTAMP="2")
    journal = ExportedJournal([known, last, *exported(KERNEL_EXPORT)])
    lines = kernel_lines(journal, KernelPosition(boot_id=EARLIER_BOOT, us=1, cursor=known.cursor), SourceStats())
    assert [line.position.boot_id for line in lines] == [EARLIER_BOOT, BOOT, BOOT]
    assert lines[0].data == b"2,,2,-;last words\n"
    assert lines[0].boot_time == (1795226567000002 - 1476000002) / 1e6


def test_each_boot_is_a_log_of_its_own_and_one_that_is_over_is_final() -> None:
    fields = {
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": "0",
        "PRIORITY": "2",
        "_BOOT_ID": EARLIER_BOOT.replace("-", ""),
    }
    known = said(1, "", "known", **fields, _SOURCE_MONOTONIC_TIMESTAMP="1")
    last = said(2, "", "last words", **fields, _SOURCE_MONOTONIC_TIMESTAMP="2")
    journal = ExportedJournal([known, last, *exported(KERNEL_EXPORT)])
    place = {"boot_id": EARLIER_BOOT, "us": 1, "cursor": known.cursor}
    stored = {f"kmsg:{EARLIER_BOOT}": json.dumps({"place": place, "offset": 14, "line": 2})}
    source = KmsgSource("journal", None, stored, boot_id=BOOT, boot_time=lambda: 5.0, open_journal=journal.open)
    [over] = source.poll(NOW)
    assert (over.log, over.origin, over.offset, over.line) == (f"kmsg:{EARLIER_BOOT}", EARLIER_BOOT, 14, 2)
    assert (over.data, over.end, over.boot_time) == (b"2,,2,-;last words\n", "final", 1795225091.0)
    source.advance(over.log, len(over.data), 1)
    [running] = source.poll(NOW)
    assert (running.log, running.offset, running.line) == (f"kmsg:{BOOT}", 0, 1)
    assert (running.end, running.boot_time) == ("more", 5.0)
    source.advance(running.log, len(running.data), 2)
    told = source.unsaved()
    assert list(told) == [f"kmsg:{BOOT}", f"kmsg:{EARLIER_BOOT}"]
    assert told[f"kmsg:{EARLIER_BOOT}"] is None


def test_a_cursor_that_rotation_has_taken_away_is_counted() -> None:
    stats = SourceStats()
    lines = kernel_lines(
        ExportedJournal(exported(KERNEL_EXPORT)), KernelPosition(boot_id=BOOT, us=9**9, cursor="gone"), stats
    )
    assert (len(lines), stats.dropped) == (2, {"cursor_gone": 1})


@pytest.mark.parametrize("missing", ["SYSLOG_FACILITY", "PRIORITY", "_SOURCE_MONOTONIC_TIMESTAMP", "MESSAGE"])
def test_a_kernel_entry_that_lacks_a_field_is_passed_over(missing: str) -> None:
    [entry, *_] = exported(KERNEL_EXPORT)
    fields = {name: value for name, value in entry.fields.items() if name != missing}
    broken = JournalEntry(
        cursor=entry.cursor,
        boot_id=BOOT,
        realtime_us=entry.realtime_us,
        monotonic_us=entry.monotonic_us,
        fields=fields,
    )
    assert kernel_lines(ExportedJournal([broken]), KernelPosition(), SourceStats()) == []


# -- units


def take_all(source: JournaldSource, chunks: list[Chunk]) -> list[bytes]:
    lines = []
    for chunk in chunks:
        found = chunk.data.splitlines(keepends=True)
        source.advance(chunk.log, len(chunk.data), len(found))
        lines += found
    return lines


def commit(source: JournaldSource, stored: dict[str, str]) -> None:
    for key, text in source.unsaved().items():
        if text is None:
            del stored[key]
        else:
            stored[key] = text
    source.saved()


def test_a_units_messages_become_lines_of_a_log_of_its_own() -> None:
    journal = ExportedJournal([said(1, "sshd.service", "before the start")])
    source = JournaldSource(["slurmstepd*"], {}, open_journal=journal.open)
    assert source.poll(NOW) == []
    assert source.stats.up
    journal.entries += [
        said(2, "slurmstepd.scope", "error: Detected 1 oom_kill event\nsecond line"),
        said(3, "sshd.service", "NVRM: Xid"),
        said(4, "slurmstepd@7.scope", "of another unit"),
    ]
    [chunk, other] = source.poll(NOW)
    assert (chunk.log, chunk.path, chunk.origin) == ("journal:slurmstepd.scope",) * 3
    assert (chunk.source, chunk.format, chunk.offset, chunk.line, chunk.end) == ("job", "cri", 0, 1, "more")
    assert chunk.data == (
        b"2026-11-21T02:02:47.000002Z stdout F error: Detected 1 oom_kill event\n"
        b"2026-11-21T02:02:47.000002Z stdout F second line\n"
    )
    assert (other.log, other.data) == (
        "journal:slurmstepd@7.scope",
        b"2026-11-21T02:02:47.000004Z stdout F of another unit\n",
    )
    assert source.stats.lag_bytes == len(chunk.data) + len(other.data)


def test_what_is_in_the_journal_at_the_very_first_start_is_not_read_but_its_end_is_remembered() -> None:
    journal, stored = ExportedJournal([said(1, "a.scope", "old")]), dict[str, str]()
    source = JournaldSource(["*"], stored, open_journal=journal.open)
    assert source.poll(NOW) == []
    commit(source, stored)
    journal.entries.append(said(2, "a.scope", "written while nobody looked"))
    again = JournaldSource(["*"], stored, open_journal=journal.open)
    assert take_all(again, list(again.poll(NOW))) == [
        b"2026-11-21T02:02:47.000002Z stdout F written while nobody looked\n"
    ]


def test_a_damaged_journal_is_opened_again_at_the_same_entry() -> None:
    journal = ExportedJournal([said(1, "a.scope", "old")])
    source = JournaldSource(["*"], {}, open_journal=journal.open)
    source.poll(NOW)
    journal.entries.append(said(2, "a.scope", "new"))
    journal.broken = True
    assert source.poll(NOW + 1) == []
    assert (source.stats.up, source.stats.down_reason.startswith("Bad message")) == (False, True)
    assert len(take_all(source, list(source.poll(NOW + 2)))) == 1
    assert (source.stats.up, journal.opened) == (True, 2)


def test_a_cursor_that_is_gone_is_counted_and_what_is_left_is_read() -> None:
    journal = ExportedJournal([said(7, "a.scope", "left")])
    stored = {"cursor": "gone", "journal:a.scope": "[100, 5, 3]"}
    source = JournaldSource(["*"], stored, open_journal=journal.open)
    [chunk] = source.poll(NOW)
    assert (chunk.offset, chunk.line, source.stats.dropped) == (100, 5, {"cursor_gone": 1})


def test_what_one_unit_has_consumed_behind_another_ones_open_line_is_not_repeated_after_two_restarts() -> None:
    journal = ExportedJournal([said(1, "a.scope", "old")])
    stored: dict[str, str] = {}
    first = JournaldSource(["*.scope"], stored, open_journal=journal.open)
    first.poll(NOW)
    journal.entries += [said(2, "a.scope", "open"), said(3, "b.scope", "consumed"), said(4, "c.service", "no matter")]
    [_, b] = first.poll(NOW)
    take_all(first, [b])
    commit(first, stored)
    assert stored == {
        "cursor": journal.entries[0].cursor,
        "journal:a.scope": "[0, 1, 0]",
        "journal:b.scope": f"[{len(b.data)}, 2, 1]",
    }
    second = JournaldSource(["*.scope"], stored, open_journal=journal.open)
    assert second.unsaved() == {}
    third = JournaldSource(["*.scope"], stored, open_journal=journal.open)
    [a] = third.poll(NOW)
    assert a.data.endswith(b" F open\n")
    take_all(third, [a])
    commit(third, stored)
    assert stored["cursor"] == journal.entries[-1].cursor
    assert stored["journal:b.scope"] == f"[{len(b.data)}, 2, 0]"


def test_without_the_extra_it_is_down_and_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cysystemd'] = sys.modules['cysystemd.reader'] = None\n"
        "from exporter.sources.systemd.units import JournaldSource\n"
        "source = JournaldSource(['*'], {})\n"
        "assert source.poll(1000.0) == [] and not source.stats.up\n"
        "print(source.stats.down_reason)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[journald]'" in done.stdout


STEPS = st.lists(
    st.tuples(st.just("write"), st.sampled_from(["a.scope", "b.scope", "other.service"]))
    | st.tuples(st.just("consume"), st.sampled_from(["journal:a.scope", "journal:b.scope"]))
    | st.tuples(st.sampled_from(["poll", "commit", "kill", "break"]), st.just("")),
    max_size=40,
)


@settings(max_examples=200)
@given(STEPS, st.data())
def test_however_units_are_read_and_the_daemon_killed_each_line_counts_once(
    steps: list[tuple[str, str]], data: st.DataObject
) -> None:
    journal, stored = ExportedJournal([said(0, "a.scope", "old")]), dict[str, str]()
    written: dict[str, list[str]] = {}
    counted: dict[str, list[str]] = {}
    committed: dict[str, list[str]] = {}

    def start() -> JournaldSource:
        return JournaldSource(["?.scope"], stored, open_journal=journal.open)

    def consume(source: JournaldSource, only: str, now: float) -> None:
        for chunk in source.poll(now):
            if not chunk.log.startswith(only):
                continue
            lines = chunk.data.splitlines(keepends=True)
            lines = lines[: data.draw(st.integers(0, len(lines)))] if only != "journal:" else lines
            log = counted.setdefault(chunk.log, [])
            assert chunk.line == len(log) + 1
            source.advance(chunk.log, len(b"".join(lines)), len(lines))
            log += [line.decode().split(" F ")[1][:-1] for line in lines]

    source = start()
    source.poll(NOW)
    commit(source, stored)
    for number, (step, what) in enumerate(steps, 1):
        if step == "write":
            texts = [f"{number}.{part}" for part in range(number % 3 + 1)]
            journal.entries.append(said(number, what, "\n".join(texts)))
            written.setdefault(f"journal:{what}", []).extend(texts)
        elif step == "consume":
            consume(source, what, NOW + 10 * number)
        elif step == "commit":
            commit(source, stored)
            committed = {log: list(lines) for log, lines in counted.items()}
        elif step == "kill":
            source.close()
            counted = {log: list(lines) for log, lines in committed.items()}
            source = start()
        elif step == "break":
            journal.broken = True
        else:
            source.poll(NOW + 10 * number)
    for extra in range(3):
        consume(source, "journal:", NOW + 10_000 + 100 * extra)
    written.pop("journal:other.service", None)
    assert {log: lines for log, lines in counted.items() if lines} == written
    commit(source, stored)
    assert [json.loads(text)[2] for key, text in stored.items() if key != "cursor"] == [0] * (len(stored) - 1)


# -- a real journald, in a mount namespace of its own

JOURNALD = Path("/lib/systemd/systemd-journald")
IN_ITS_OWN_RUN = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal && exec " + str(JOURNALD)


@pytest.fixture
def journal_folder() -> Iterator[Path]:
    if os.geteuid() != 0 or not JOURNALD.exists() or not shutil.which("unshare") or not os.access("/dev/kmsg", os.W_OK):
        pytest.skip("no journald that could be started here")
    if Path("/run/systemd/journal/socket").exists():
        pytest.skip("this machine has a journald, which must not be disturbed")
    journald = subprocess.Popen(["unshare", "-m", "sh", "-c", IN_ITS_OWN_RUN], stderr=subprocess.DEVNULL)
    try:
        yield Path(f"/proc/{journald.pid}/root/run/log/journal")
    finally:
        journald.terminate()
        journald.wait(10)


def read_until(source: KmsgSource, tag: bytes) -> list[bytes]:
    """Everything up to the first line with `tag`, which journald takes up in a moment."""
    lines: list[bytes] = []
    deadline = time.monotonic() + 20
    now = itertools.count(NOW, 100)
    while not any(tag in line for line in lines):
        assert time.monotonic() < deadline, source.stats.down_reason
        for chunk in source.poll(next(now)):
            source.advance(chunk.log, len(chunk.data), chunk.data.count(b"\n"))
            lines += chunk.data.splitlines()
    return lines


def test_a_real_journald_hands_on_what_the_kernel_logs_and_a_restart_repeats_none_of_it(journal_folder: Path) -> None:
    pytest.importorskip("cysystemd")
    tag = uuid.uuid4().hex.encode()
    device, stored = Path("/dev/kmsg"), dict[str, str]()
    first = KmsgSource("journal", str(journal_folder), stored)
    device.write_bytes(b"<15>gpufault-test: %b one\n" % tag)
    lines = read_until(first, tag)
    assert lines[-1].startswith(b"15,,")
    assert lines[-1].endswith(b";gpufault-test: %b one" % tag)
    stored |= {key: text for key, text in first.unsaved().items() if text}
    first.close()

    device.write_bytes(b"<15>gpufault-test: %b two\n" % tag)
    second = KmsgSource("journal", str(journal_folder), stored)
    lines = [line for line in read_until(second, tag) if tag in line]
    assert [line[-4:] for line in lines] == [b" two"]
    assert (second.stats.up, second.stats.dropped) == (True, {})
    second.close()

    elsewhere = {key: re.sub(r"x=\w+", "x=0", text) for key, text in stored.items()}
    third = KmsgSource("journal", str(journal_folder), elsewhere)
    lines = [line for line in read_until(third, tag) if tag in line]
    assert [line[-4:] for line in lines] == [b" one", b" two"]
    assert third.stats.dropped == {"cursor_gone": 1}
    third.close()
