"""The kernel log source over real devices, rings, files and FIFOs. Times are given to it, never waited for."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core.decoding.kernel_records import escape, fold, parse_header, unescape
from exporter.core.model import Chunk
from exporter.sources.boot import boot_time_now
from exporter.sources.kernel.kernel_log import KmsgSource, Mode
from exporter.sources.kernel.ring import SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER, KmsgDevice, klogctl
from exporter.sources.kernel.transport import KernelPosition, Line

NOW = 1_800_000_000.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT = "11111111-2222-3333-4444-555555555555"
USER_DEBUG = b"<15>"  # facility 1, level 7: not printed on the console
SMALL_RING = 256 << 10  # a larger one is a real node's, whose records are not ours to overwrite


def may(use: Callable[[], object]) -> bool:
    try:
        use()
    except OSError:
        return False
    return True


def say(text: bytes) -> None:
    """Write one record to the kernel log.

    printk_devkmsg allows each open descriptor ten in five seconds; a record without newline shows only when the next
    one comes, since it might go on.
    """
    descriptor = os.open("/dev/kmsg", os.O_WRONLY)
    os.write(descriptor, USER_DEBUG + text + b"\n")
    os.close(descriptor)


needs_device = pytest.mark.skipif(
    not (os.access("/dev/kmsg", os.W_OK) and may(lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY)))),
    reason="/dev/kmsg may not be read and written here",
)
needs_syslog = pytest.mark.skipif(
    not may(lambda: klogctl(SYSLOG_ACTION_READ_ALL, bytearray(1))), reason="syslog(2) is refused here"
)


@pytest.fixture
def tag() -> bytes:
    return b"gpufault-test-" + uuid.uuid4().hex.encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kernel.log"


_sources: list[KmsgSource] = []


def opened(mode: Mode, path: str | None, stored: Mapping[str, str], **settings: Any) -> KmsgSource:
    """A source that is closed after the test."""
    source = KmsgSource(mode, path, stored, **settings)
    _sources.append(source)
    return source


@pytest.fixture(autouse=True)
def _close_sources() -> Iterator[None]:
    yield
    while _sources:
        _sources.pop().close()


def lines_in(chunk: Chunk) -> list[bytes]:
    assert chunk.data.endswith(b"\n")
    return [line + b"\n" for line in chunk.data.split(b"\n")[:-1]]


def take_all(source: KmsgSource, chunks: list[Chunk]) -> list[bytes]:
    lines: list[bytes] = []
    for chunk in chunks:
        found = lines_in(chunk)
        source.advance(chunk.log, len(chunk.data), len(found))
        lines += found
    return lines


def read_all(source: KmsgSource, now: float = NOW) -> list[bytes]:
    return take_all(source, list(source.poll(now)))


def commit(source: KmsgSource, stored: dict[str, str]) -> None:
    for key, text in source.unsaved().items():
        if text is None:
            del stored[key]
        else:
            stored[key] = text
    source.saved()


# -- the device


@needs_device
def test_a_record_written_to_the_kernel_log_is_read_once_with_its_text_as_the_kernel_escapes_it(tag: bytes) -> None:
    source = opened("kmsg", None, {})
    read_all(source)
    say(tag + b": \t tab, \\ backslash, \xc3\xa9\nsecond line")
    [line] = [line for line in read_all(source) if tag in line]
    header = parse_header(line)
    assert header is not None
    assert (header.pri, header.flags, header.device) == (15, "-", None)
    assert line[header.text_at :] == escape(tag + b": \t tab, \\ backslash, \xc3\xa9\nsecond line") + b"\n"
    assert not [line for line in read_all(source, NOW + 9) if tag in line]


@needs_device
def test_a_chunk_of_the_ring_says_which_boot_it_is_of_and_when_that_began() -> None:
    source = opened("kmsg", None, {})
    [chunk] = source.poll(NOW)
    boot_id = BOOT_ID.read_text("ascii").strip()
    assert (chunk.log, chunk.origin, chunk.path) == (f"kmsg:{boot_id}", boot_id, "/dev/kmsg")
    assert (chunk.source, chunk.format, chunk.offset, chunk.line, chunk.end) == ("kernel", "kmsg", 0, 1, "more")
    assert chunk.boot_time == pytest.approx(boot_time_now(), abs=5)
    assert (source.stats.up, source.active_mode, source.stats.lag_bytes) == (True, "kmsg", len(chunk.data))
    source.close()
    assert not source.stats.up


@needs_device
def test_a_fresh_record_is_dated_by_the_wall_clock_of_its_writing(tag: bytes) -> None:
    source = opened("kmsg", None, {})
    read_all(source)
    say(tag)
    [chunk] = source.poll(NOW)
    [line] = [line for line in lines_in(chunk) if tag in line]
    header = parse_header(line)
    assert header is not None
    assert header.us is not None
    assert chunk.boot_time is not None
    assert chunk.boot_time + header.us / 1e6 == pytest.approx(time.time(), abs=1)


@needs_device
def test_a_restart_goes_on_behind_the_stored_record(tag: bytes) -> None:
    first, stored = opened("kmsg", None, {}), dict[str, str]()
    read_all(first)
    say(tag + b" one")
    read_all(first)
    commit(first, stored)
    say(tag + b" two")
    first.close()
    second = opened("kmsg", None, stored)
    [chunk] = second.poll(NOW)
    assert [line[-4:] for line in chunk.data.splitlines() if tag in line] == [b" two"]
    assert (chunk.offset, chunk.line) == (
        json.loads(stored[chunk.log])["offset"],
        json.loads(stored[chunk.log])["line"],
    )
    assert second.stats.lost_records == 0


@needs_device
def test_after_another_boot_everything_is_new_and_the_old_position_is_forgotten() -> None:
    old = opened("kmsg", None, {}, boot_id=BOOT)
    before, stored = read_all(old), dict[str, str]()
    commit(old, stored)
    assert list(stored) == [f"kmsg:{BOOT}"]
    new = opened("kmsg", None, stored)
    assert read_all(new)[: len(before)] == before
    commit(new, stored)
    assert list(stored) == [f"kmsg:{BOOT_ID.read_text('ascii').strip()}"]
    old.close()
    new.close()


@needs_device
def test_news_in_the_ring_wakes_the_daemon(tag: bytes) -> None:
    source = opened("kmsg", None, {})
    read_all(source)
    poll = select.poll()
    descriptor = source.fileno()
    assert descriptor is not None
    poll.register(descriptor, select.POLLIN)
    say(tag)
    assert poll.poll(1000)


@needs_device
@needs_syslog
def test_an_overrun_ring_costs_exactly_the_records_that_were_overwritten(tag: bytes) -> None:
    ring_bytes = klogctl(SYSLOG_ACTION_SIZE_BUFFER)
    if ring_bytes > SMALL_RING:
        pytest.skip("the ring of this machine is large, and its records may matter")
    by_number, by_look = opened("kmsg", None, {}), opened("syslog", None, {})
    read_all(by_look)
    seen = parse_header(read_all(by_number)[-1])
    for _ in range(2 * ring_bytes // 900):
        say(tag + b"x" * 880)
    lines = list(itertools.chain.from_iterable(iter(lambda: read_all(by_number), [])))
    numbers = [header.seq for line in lines if (header := parse_header(line)) and header.seq is not None]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert seen is not None
    assert seen.seq is not None
    assert by_number.stats.lost_records == numbers[0] - seen.seq - 1 > 0
    assert by_number.stats.up

    assert sum(tag in line for line in read_all(by_look, NOW + 2)) > 0
    assert by_look.stats.dropped == {"ring_wrapped": 1}
    by_number.close()


@pytest.fixture
def ring() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A descriptor that gives one record a read, as /dev/kmsg does, and the end to write records to."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def lines_of(device: KmsgDevice) -> list[Line]:
    return list(device.read(NOW))


def test_a_gap_in_the_numbers_is_counted_and_a_restart_knows_it_too(ring: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ring
    known = KernelPosition(boot_id=BOOT, us=90, seq=9)
    device = KmsgDevice(ours.fileno(), known)
    for record in (b"6,8,80,-;known", b"6,9,90,-;known", b"3,12,100,-;a", b"3,13,101,-;b", b"3,20,102,-;c"):
        theirs.send(record + b"\n")
    lines = lines_of(device)
    assert [line.data for line in lines] == [b"3,12,100,-;a\n", b"3,13,101,-;b\n", b"3,20,102,-;c\n"]
    places = [line.position for line in lines]
    assert places[-1] == KernelPosition(boot_id=BOOT, us=102, seq=20)
    assert [one.gap_to(next_one) for one, next_one in itertools.pairwise([known, *places])] == [2, 0, 6]


def test_a_place_without_a_number_is_found_by_time(ring: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ring
    device = KmsgDevice(ours.fileno(), KernelPosition(boot_id=BOOT, us=90, same="left by syslog(2)"))
    for record in (b"6,8,80,-;known", b"6,9,90,-;known", b"3,10,91,-;new", b"3,11,91,-;of the same time"):
        theirs.send(record + b"\n")
    assert [line.data for line in lines_of(device)] == [b"3,10,91,-;new\n", b"3,11,91,-;of the same time\n"]


def test_a_record_that_cannot_be_parsed_is_handed_on_and_moves_no_place(
    ring: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ring
    device = KmsgDevice(ours.fileno(), KernelPosition(boot_id=BOOT))
    theirs.send(b"\xff\x00garbage")
    assert [(line.data, line.position) for line in lines_of(device)] == [
        (b"\xff\x00garbage\n", KernelPosition(boot_id=BOOT))
    ]


def test_a_reset_of_the_descriptor_is_survived() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.send(b"never read")
    theirs.close()  # with unread data: our next read gives ECONNRESET, the one after it the end
    device = KmsgDevice(ours.fileno(), KernelPosition(boot_id=BOOT))
    assert lines_of(device) == []
    ours.close()


def test_a_link_to_a_console_is_not_taken_for_the_kernels_log() -> None:
    source = opened("kmsg", "/dev/null", {})
    assert source.poll(NOW) == []
    assert not source.stats.up
    assert "/dev/null is not the kernel's log device" in source.stats.down_reason


# -- syslog(2)


@needs_device
@needs_syslog
def test_syslog_and_the_device_tell_the_same_texts_at_the_same_times() -> None:
    def told_by(mode: Mode) -> list[tuple[int, int | None, bytes]]:
        source = opened(mode, None, {})
        lines = read_all(source)
        source.close()
        found = []
        for line in lines:
            header = parse_header(line)
            assert header is not None
            texts = unescape(line[header.text_at : -1]).split(b"\n")
            found += [(header.pri, header.us, text) for text in texts]
        return found

    by_device, by_syslog = told_by("kmsg"), told_by("syslog")
    assert by_syslog[: len(by_device)] == by_device[: len(by_syslog)]


@needs_device
@needs_syslog
def test_a_look_at_the_ring_gives_what_is_new_and_at_most_every_two_seconds(tag: bytes) -> None:
    source = opened("syslog", None, {})
    read_all(source)
    say(tag + b" one\n" + tag + b" of the same microsecond")
    assert source.poll(NOW + 1.9) == []
    assert sum(tag in line for line in read_all(source, NOW + 2)) == 2
    say(tag + b" two")
    assert [unescape(line)[-4:-1] for line in read_all(source, NOW + 4) if tag in line] == [b"two"]
    assert source.stats.dropped == {}


@needs_device
@needs_syslog
@pytest.mark.parametrize("after", ["syslog", "kmsg"])
@pytest.mark.parametrize("before", ["syslog", "kmsg"])
def test_a_restart_in_this_mode_or_another_repeats_nothing(before: Mode, after: Mode, tag: bytes) -> None:
    stored: dict[str, str] = {}
    first = opened(before, None, stored)
    say(tag + b" one")
    assert sum(tag in line for line in read_all(first)) == 1
    commit(first, stored)
    first.close()
    say(tag + b" two")
    second = opened(after, None, stored)
    assert [unescape(line)[-4:-1] for line in read_all(second) if tag in line] == [b"two"]
    assert (second.stats.lost_records, second.stats.dropped) == (0, {})


WHAT_NOBODY_SEES = """
from exporter.sources.kernel.kernel_log import KmsgSource
source = KmsgSource("auto", None, {})
assert list(source.poll(1000.0)) == [] and not source.stats.up
print(source.stats.down_reason)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root has rights to do without")
@pytest.mark.skipif(
    Path("/proc/sys/kernel/dmesg_restrict").read_text("ascii").strip() != "1", reason="anybody may read the log here"
)
def test_without_any_right_it_is_down_and_says_for_each_mode_what_to_do() -> None:
    command = ["setpriv", "--bounding-set=-syslog,-sys_admin", sys.executable, "-c", WHAT_NOBODY_SEES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert "kmsg: Operation not permitted (needs CAP_SYSLOG or kernel.dmesg_restrict=0" in done.stdout
    assert "; syslog: Operation not permitted (needs CAP_SYSLOG" in done.stdout
    assert "; journal: " in done.stdout


# -- files and FIFOs in the device's form

RECORDS = [
    b"3,1,1000000,-;amdgpu 0000:c1:00.0: page fault\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0\n",
    b"6,2,1000001,-;plain\n",
    b"6,3,1000002,-;no device\n SUBSYSTEM=drm\n",
]


def append(path: Path, data: bytes, at: float = NOW) -> None:
    with path.open("ab") as file:
        file.write(data)
    os.utime(path, (at, at))


def test_a_file_is_read_from_its_beginning_and_followed(log: Path) -> None:
    append(log, b"".join(RECORDS))
    source = opened("auto", str(log), {}, boot_id=BOOT, boot_time=lambda: 5.0)
    [chunk] = source.poll(NOW + 1)
    assert (chunk.log, chunk.origin, chunk.path, chunk.boot_time) == (f"kmsg:{log}", BOOT, str(log), 5.0)
    assert chunk.data.splitlines(keepends=True) == [fold(record) for record in RECORDS]
    take_all(source, [chunk])
    append(log, b"6,4,1000003,-;later\n", NOW + 2)
    [chunk] = source.poll(NOW + 3)
    assert (chunk.data, chunk.line, source.stats.lag_bytes) == (b"6,4,1000003,-;later\n", 4, 20)


def test_a_record_has_the_number_of_its_line_in_the_file(tmp_path: Path, log: Path) -> None:
    append(log, b"".join(RECORDS))
    source = opened("auto", str(log), {}, boot_id=BOOT)
    [chunk] = source.poll(NOW + 1)
    assert chunk.numbers == (1, 4, 5)
    take_all(source, [chunk])
    stored = {key: text for key, text in source.unsaved().items() if text is not None}
    source.close()

    append(log, b"6,4,1000003,-;after a restart\n", NOW + 2)
    source = opened("auto", str(log), stored, boot_id=BOOT)
    [chunk] = source.poll(NOW + 3)
    assert chunk.numbers == (7,)
    take_all(source, [chunk])
    log.rename(tmp_path / "kernel.log.1")
    append(log, b"6,5,1000004,-;after a rotation\n", NOW + 4)
    chunks = [chunk for second in range(20) for chunk in source.poll(NOW + 5 + second)]
    assert chunks[0].numbers == (1,)


def test_a_record_of_a_fifo_has_no_line_number(tmp_path: Path) -> None:
    fifo = tmp_path / "kernel.fifo"
    os.mkfifo(fifo)
    source = opened("auto", str(fifo), {}, boot_id=BOOT)
    source.poll(NOW)
    fifo.write_bytes(b"".join(RECORDS[1:]))
    [chunk] = source.poll(NOW + 0.1)
    assert chunk.numbers == (0,)


def test_a_record_waits_for_its_properties_but_not_for_long(log: Path) -> None:
    append(log, b"3,1,1000000,-;amdgpu: page fault\n")
    source = opened("file", str(log), {})
    assert source.poll(NOW) == []
    append(log, b" SUBSYSTEM=pci\n DEVICE=+pci:00", NOW)
    assert source.poll(NOW) == []
    append(log, b"00:c1:00.0\n", NOW)
    assert source.poll(NOW) == []
    assert read_all(source, NOW + 0.06) == [b"3,1,1000000,-,d=+pci:0000:c1:00.0;amdgpu: page fault\n"]
    append(log, b" DEVICE=+pci:too late\n6,2,1,-;next\n", NOW + 1)
    assert read_all(source, NOW + 2) == [b"6,2,1,-;next\n"]
    assert source.stats.dropped == {"orphan_property": 1}


def test_a_file_that_is_not_there_is_said_so_and_found_when_it_comes(log: Path) -> None:
    source = opened("auto", str(log), {})
    assert source.poll(NOW) == []
    assert source.stats.down_reason.startswith("file: No such file or directory (make it a file")
    append(log, RECORDS[1])
    assert source.poll(NOW + 0.9) == []
    assert read_all(source, NOW + 1) == [RECORDS[1]]
    assert (source.stats.up, source.stats.down_reason) == (True, "")


def test_a_file_in_another_form_is_not_ready(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    line = b"Nov 23 10:00:00 n17 kernel: [ 8123.4] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
    append(log, line * 70)
    warnings: list[str] = []
    source = opened("auto", str(log), {}, log=warnings.append)
    source.poll(NOW)
    source.poll(NOW + 10)
    assert not source.stats.up
    assert source.stats.down_reason.startswith(f"{log}: its lines are not records in the form of /dev/kmsg")
    assert warnings == [source.stats.down_reason]
    append(log, RECORDS[1] * 2)
    source.poll(NOW + 20)
    source.poll(NOW + 30)
    assert (source.stats.up, source.stats.down_reason) == (True, "")


@pytest.mark.parametrize(
    "line",
    [
        b"Nov 26 16:04:39 gpu-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79\n",
        b"2026-11-26T16:04:39.123456+00:00 gpu-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79\n",
        b"2026-11-26T16:04:39,123456+00:00 NVRM: Xid (PCI:0000:3b:00): 79\n",
        b"[Thu Nov 26 16:04:39 2026] NVRM: Xid (PCI:0000:3b:00): 79\n",
        b"[ 8123.412345] NVRM: Xid (PCI:0000:3b:00): 79\n",
        b"NVRM: Xid (PCI:0000:3b:00): 79\n",
    ],
)
def test_one_kernel_line_in_text_form_is_enough_to_refuse_a_file(tmp_path: Path, line: bytes) -> None:
    log = tmp_path / "kern.log"
    append(log, RECORDS[1] + line)
    source = opened("file", str(log), {})
    source.poll(NOW)
    source.poll(NOW + 10)
    assert not source.stats.up
    assert "`mode: journal` without `path`" in source.stats.down_reason


@pytest.mark.parametrize("mode", ["auto", "file", "kmsg"])
def test_a_file_in_text_form_is_refused_after_a_restart_too(tmp_path: Path, mode: Mode) -> None:
    log = tmp_path / "kern.log"
    append(log, b"Nov 26 16:04:39 gpu-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79\n")
    first = opened(mode, str(log), {})
    read_all(first, NOW + 10)
    stored = {key: value for key, value in first.unsaved().items() if value is not None}
    first.close()
    second = opened(mode, str(log), stored)
    assert read_all(second, NOW + 20) == []
    assert not second.stats.up
    append(log, RECORDS[1])
    assert read_all(second, NOW + 30) == [RECORDS[1]]
    assert second.stats.up


def test_a_record_that_is_cut_off_does_not_refuse_a_file(log: Path) -> None:
    append(log, RECORDS[1] + b"3,1042,5678\n")
    source = opened("file", str(log), {})
    source.poll(NOW)
    source.poll(NOW + 10)
    assert source.stats.up


def test_a_folder_is_no_kernel_log(tmp_path: Path) -> None:
    source = opened("file", str(tmp_path), {})
    assert source.poll(NOW) == []
    assert "is neither a file nor a FIFO" in source.stats.down_reason


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path: Path, log: Path) -> None:
    append(log, RECORDS[0])
    source = opened("file", str(log), {})
    assert read_all(source, NOW + 1) == [fold(RECORDS[0])]
    append(log, RECORDS[1])
    log.rename(tmp_path / "kernel.log.1")
    assert read_all(source, NOW + 1) == [RECORDS[1]]
    append(log, RECORDS[2])
    assert read_all(source, NOW + 2) == []  # the writer may go on in the old one for a moment
    assert read_all(source, NOW + 3) + read_all(source, NOW + 4) == [fold(RECORDS[2])]
    assert (source.stats.rotations, source.stats.truncations) == (1, 0)


def test_a_truncated_file_is_read_from_its_new_beginning(log: Path) -> None:
    append(log, b"".join(RECORDS))
    source = opened("file", str(log), {})
    read_all(source, NOW + 1)
    log.write_bytes(b"6,4,1,-;new\n")
    os.utime(log, (NOW, NOW))
    assert read_all(source, NOW + 2) == [b"6,4,1,-;new\n"]
    assert (source.stats.rotations, source.stats.truncations) == (0, 1)


def test_a_file_that_was_replaced_or_cut_while_nobody_looked_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, stored = tmp_path / "kernel.log", dict[str, str]()
    append(log, b"".join(RECORDS))
    first = opened("file", str(log), stored)
    read_all(first, NOW + 1)
    commit(first, stored)
    first.close()
    (tmp_path / "other").write_bytes(RECORDS[1])
    os.truncate(log, 0)
    append(log, RECORDS[2])
    cut = opened("file", str(log), stored)
    assert read_all(cut, NOW + 1) == [fold(RECORDS[2])]
    assert (cut.stats.rotations, cut.stats.truncations) == (0, 1)
    (tmp_path / "other").rename(log)
    replaced = opened("file", str(log), stored)
    assert read_all(replaced, NOW + 1) == [RECORDS[1]]
    assert (replaced.stats.rotations, replaced.stats.truncations) == (1, 0)


def test_what_never_ends_is_cut_and_handed_on(log: Path) -> None:
    append(log, b"x" * 200_000 + b"\n" + RECORDS[1])
    source = opened("file", str(log), {})
    lines = read_all(source, NOW + 1)
    assert b"".join(line[:-1] for line in lines[:-1]) == b"x" * 200_000
    assert max(map(len, lines)) < 100_000
    assert lines[-1] == RECORDS[1]


def test_no_more_is_read_than_the_pipeline_takes_at_once(log: Path) -> None:
    lines = [b"6,%d,1,-;%b\n" % (number, b"x" * 2000) for number in range(1500)]
    append(log, b"".join(lines))
    source = opened("file", str(log), {})
    source.poll(NOW + 1)
    [chunk] = source.poll(NOW + 2)
    assert (1 << 20) <= len(chunk.data) < (1 << 20) + 3000
    assert [(again.end, again.data == chunk.data) for again in source.poll(NOW + 3)] == [("quiet", True)]
    read = take_all(source, [chunk]) + read_all(source, NOW + 4) + read_all(source, NOW + 5)
    assert read == lines


def test_a_gap_in_a_file_is_loss_and_a_new_boot_in_it_is_none(log: Path) -> None:
    append(log, b"6,5,1,-;a\n6,9,2,-;b\n6,0,0,-;Linux version\n6,1,1,-;c\n")
    source = opened("file", str(log), {})
    assert len(read_all(source, NOW + 1)) == 4
    assert source.stats.lost_records == 3


def test_a_fifo_neither_blocks_nor_ends_without_writers(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    source = opened("auto", str(fifo), {})
    assert source.poll(NOW) == []
    assert source.stats.up
    for number in range(3):
        fifo.write_bytes(b"6,%d,1,-;line\n" % number)
        assert read_all(source, NOW + number) == []
        assert read_all(source, NOW + number + 0.5) == [b"6,%d,1,-;line\n" % number]


def test_a_fifo_wakes_the_daemon_for_news_and_again_when_they_have_settled(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    source = opened("auto", str(fifo), {})
    source.poll(NOW)
    poll = select.poll()
    descriptor = source.fileno()
    assert descriptor is not None
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(0) == []
    fifo.write_bytes(RECORDS[1])
    assert poll.poll(0)
    assert source.poll(NOW) == []
    assert poll.poll(0) == []
    assert poll.poll(5000)  # returns after 55 ms
    assert read_all(source, NOW + 0.055) == [RECORDS[1]]
    assert poll.poll(0) == []


def test_what_was_not_consumed_is_offered_again_with_what_is_new_and_when_it_is_quiet(log: Path) -> None:
    append(log, b"6,1,1,-;a\n6,2,2,-;b\n")
    source = opened("file", str(log), {})
    [chunk] = source.poll(NOW + 1)
    source.advance(chunk.log, 10, 1)
    assert source.poll(NOW + 1.9) == []
    [chunk] = source.poll(NOW + 2)
    assert (chunk.data, chunk.offset, chunk.line, chunk.end) == (b"6,2,2,-;b\n", 10, 2, "quiet")
    append(log, b"6,3,3,-;c\n", NOW + 2)
    [chunk] = source.poll(NOW + 2.1)
    assert (chunk.data, chunk.end) == (b"6,2,2,-;b\n6,3,3,-;c\n", "more")
    [chunk] = source.poll(NOW - 3600)  # somebody set the clock back
    assert chunk.end == "quiet"


def test_only_what_was_consumed_is_told_to_be_saved(log: Path) -> None:
    append(log, b"6,1,1,-;a\n6,2,2,-;b\n")
    source = opened("file", str(log), {})
    [chunk] = source.poll(NOW + 1)
    assert source.unsaved() == {}
    source.advance(chunk.log, 10, 1)
    position = source.unsaved()[chunk.log]
    assert position is not None
    assert (json.loads(position)["offset"], json.loads(position)["place"]["at"]) == (10, 10)
    source.advance(chunk.log, 10, 1)
    source.saved()
    assert list(source.unsaved()) == [chunk.log]
    source.saved()
    assert source.unsaved() == {}


def test_a_position_that_cannot_be_read_is_as_good_as_none(log: Path) -> None:
    append(log, RECORDS[1])
    source = opened("file", str(log), {f"kmsg:{log}": '{"place": 7'})
    assert read_all(source, NOW + 1) == [RECORDS[1]]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"6,%d,%d,-;number %d\n" % (number, number, number) for number in range(first, last + 1)]


class FileNode:
    """A kernel log in a file, and a daemon that reads it, is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "kernel.log"
        self.stored: dict[str, str] = {}
        self.lines: list[bytes] = []
        self.now = NOW
        self.written = 0
        self.source = opened("file", str(self.log), self.stored)

    def write(self, count: int) -> None:
        append(self.log, b"".join(numbered(self.written + 1, self.written + count)), self.now)
        self.written += count

    def rotate(self) -> None:
        rotated = sorted(self.log.parent.glob("kernel.log.*"), key=lambda path: -int(path.suffix[1:]))
        for path in rotated:
            path.rename(path.with_suffix(f".{int(path.suffix[1:]) + 1}"))
        self.log.rename(self.log.with_name("kernel.log.1"))

    def copy_and_truncate(self) -> None:
        shutil.copyfile(self.log, self.log.with_name("kernel.log.1"))
        os.utime(self.log.with_name("kernel.log.1"), (self.now, self.now))
        os.truncate(self.log, 0)

    def look(self) -> None:
        for _ in range(12):
            self.now += 1
            self.lines += read_all(self.source, self.now)
        commit(self.source, self.stored)

    def start_again(self) -> None:
        self.source.close()
        self.source = opened("file", str(self.log), self.stored)

    def exact(self) -> None:
        self.look()
        self.start_again()
        self.look()
        assert self.lines == numbered(1, self.written)
        assert self.source.stats.lost_records == 0
        self.source.close()


@pytest.fixture
def read_file(tmp_path: Path) -> FileNode:
    """A file of which fifty records are read."""
    node = FileNode(tmp_path)
    node.write(50)
    node.look()
    assert node.lines == numbered(1, 50)
    return node


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("rotations", [1, 5, 12])
def test_a_file_was_rotated_again_and_again_between_two_looks(
    read_file: FileNode, rotations: int, *, down: bool
) -> None:
    for _ in range(rotations):
        read_file.write(10)
        read_file.rotate()
        read_file.now += 1
    read_file.write(10)
    if down:
        read_file.start_again()
    read_file.exact()


def test_a_writer_goes_on_for_a_moment_in_the_file_that_rotation_has_renamed(read_file: FileNode) -> None:
    read_file.rotate()
    append(read_file.log, b"".join(numbered(61, 70)), NOW + 20)
    read_file.now = NOW + 20.2
    read_file.lines += read_all(read_file.source, read_file.now)
    read_file.lines += read_all(read_file.source, read_file.now)
    append(read_file.log.with_name("kernel.log.1"), b"".join(numbered(51, 60)), NOW + 20.3)
    read_file.written = 70
    read_file.exact()


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("more", [5, 200])
def test_a_file_was_copied_and_truncated(read_file: FileNode, more: int, *, down: bool) -> None:
    read_file.write(10)
    read_file.copy_and_truncate()
    read_file.now += 1
    read_file.write(more)
    if down:
        read_file.start_again()
    read_file.exact()


@pytest.mark.parametrize("down", [False, True])
def test_a_loss_of_power_takes_back_what_was_read_of_a_file(read_file: FileNode, *, down: bool) -> None:
    before = read_file.log.stat()
    read_file.now += 1
    read_file.write(30)
    read_file.look()
    os.truncate(read_file.log, before.st_size + 9)
    os.utime(read_file.log, ns=(before.st_mtime_ns, before.st_mtime_ns))
    if down:
        read_file.start_again()
    read_file.look()
    read_file.write(20)
    read_file.exact()


def test_zeros_that_a_loss_of_power_left_cost_no_record(read_file: FileNode) -> None:
    append(read_file.log, bytes(100_000))
    read_file.look()
    read_file.write(10)
    read_file.exact()


@pytest.mark.parametrize("down", [False, True])
def test_a_copy_took_a_files_place(read_file: FileNode, tmp_path: Path, *, down: bool) -> None:
    shutil.copyfile(read_file.log, tmp_path / "copy")
    (tmp_path / "copy").rename(read_file.log)
    read_file.write(10)
    if down:
        read_file.start_again()
    read_file.exact()


@pytest.mark.parametrize("down", [False, True])
def test_a_file_was_written_over_with_more_than_it_had(read_file: FileNode, *, down: bool) -> None:
    os.truncate(read_file.log, 0)
    read_file.write(200)
    if down:
        read_file.start_again()
    read_file.exact()


def test_a_new_file_that_cannot_be_opened_yet_costs_nothing(
    read_file: FileNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: str, *arguments: int, **more: int) -> int:
        if str(path) == str(read_file.log):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **more)

    read_file.write(10)
    read_file.rotate()
    read_file.write(10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        read_file.look()
        assert "Permission denied" in read_file.source.stats.down_reason
    read_file.exact()


def test_a_fifo_that_is_made_again_is_read_on(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    source = opened("auto", str(fifo), {})
    source.poll(NOW)
    fifo.write_bytes(RECORDS[1])
    fifo.unlink()
    assert read_all(source, NOW + 1) + read_all(source, NOW + 2) == [RECORDS[1]]
    makes: list[Callable[[Path], None]] = [os.mkfifo, Path.touch, os.mkfifo]
    for number, make in enumerate(makes, 3):
        fifo.unlink(missing_ok=True)
        make(fifo)
        for more in range(3):
            read_all(source, NOW + 10 * number - 3 + more)
        append(fifo, b"6,%d,1,-;line\n" % number, NOW + 10 * number)
        lines = [line for more in range(1, 4) for line in read_all(source, NOW + 10 * number + more)]
        assert lines == [b"6,%d,1,-;line\n" % number]


def test_what_was_taken_off_a_fifo_and_not_consumed_is_there_after_a_restart(tmp_path: Path) -> None:
    fifo, stored = tmp_path / "kmsg", dict[str, str]()
    os.mkfifo(fifo)
    first = opened("auto", str(fifo), stored)
    first.poll(NOW)
    fifo.write_bytes(b"".join(RECORDS) + b"6,4,4,-;\xff\n6,5,5,-;half of")
    [chunk] = first.poll(NOW + 1)
    lines = lines_in(chunk)
    first.advance(chunk.log, len(lines[0]), 1)
    first.close()
    commit(first, stored)
    keeper = os.open(fifo, os.O_RDWR)
    second = opened("auto", str(fifo), stored)
    fifo.write_bytes(b" it\n")
    read = read_all(second, NOW + 2) + read_all(second, NOW + 3)
    assert lines[:1] + read == [fold(record) for record in RECORDS] + [b"6,4,4,-;\xff\n", b"6,5,5,-;half of it\n"]
    assert second.stats.lost_records == 0
    commit(second, stored)
    second.close()
    third = opened("auto", str(fifo), stored)
    assert read_all(third, NOW + 4) == []
    third.close()
    os.close(keeper)


HEAD = st.sampled_from([b"3,%d,1,-;amdgpu: fault\n", b"6,%d,2,c;a;b,c\n", b"garbage %d\n", b"6,%d,,-;\r\x00\xff\n"])
PROPERTIES = st.sampled_from([b"", b"", b" SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0\n", b" DEVICE=b8:0\n", b" \n"])
STEPS = st.lists(
    st.tuples(st.just("write"), st.integers(1, 40))
    | st.tuples(st.just("consume"), st.integers(0, 5))
    | st.tuples(st.sampled_from(["commit", "kill"]), st.just(0)),
    max_size=30,
)


@settings(max_examples=150)
@given(heads=st.lists(HEAD, max_size=12), properties=st.lists(PROPERTIES, min_size=12, max_size=12), steps=STEPS)
def test_however_a_file_is_written_and_the_daemon_killed_each_record_counts_once(
    heads: list[bytes], properties: list[bytes], steps: list[tuple[str, int]]
) -> None:
    records = [head % number + more for number, (head, more) in enumerate(zip(heads, properties, strict=False))]
    unwritten = b"".join(records)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "kernel.log")
        append(log, b"")
        stored: dict[str, str] = {}
        counted: list[bytes] = []
        committed = 0
        source = opened("file", str(log), stored)
        for step, number in [*steps, ("write", len(unwritten))]:
            if step == "write":
                append(log, unwritten[:number])
                unwritten = unwritten[number:]
            elif step == "consume":
                for chunk in source.poll(NOW):
                    lines = lines_in(chunk)[:number]
                    assert chunk.line == len(counted) + 1
                    source.advance(chunk.log, len(b"".join(lines)), len(lines))
                    counted += lines
            elif step == "commit":
                commit(source, stored)
                committed = len(counted)
            else:
                source.close()
                del counted[committed:]
                source = opened("file", str(log), stored)
        for now in (NOW + 1, NOW + 2, NOW + 3):
            counted += read_all(source, now)
        source.close()
    assert counted == [fold(record) for record in records]


@settings(max_examples=50)
@given(heads=st.lists(HEAD, max_size=8), properties=st.lists(PROPERTIES, min_size=8, max_size=8), data=st.data())
def test_however_a_fifo_is_written_the_records_are_the_same(
    heads: list[bytes], properties: list[bytes], data: st.DataObject
) -> None:
    records = [head % number + more for number, (head, more) in enumerate(zip(heads, properties, strict=False))]
    unwritten = b"".join(records)
    with tempfile.TemporaryDirectory() as folder:
        fifo = Path(folder, "kmsg")
        os.mkfifo(fifo)
        source = opened("file", str(fifo), {})
        source.poll(NOW)
        lines = []
        while unwritten:
            size = data.draw(st.integers(1, 60))
            fifo.write_bytes(unwritten[:size])
            unwritten = unwritten[size:]
            lines += read_all(source)
        lines += read_all(source, NOW + 1)
        source.close()
    assert lines == [fold(record) for record in records]
