"""Bytes that anybody may write, into a log, the kernel's or the journal: they are read, whatever they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.decoding import kernel_records
from exporter.core.decoding.formats import decode
from exporter.core.decoding.prefixes import Clock
from exporter.core.model import LogFormat, SourceKind
from exporter.sources.systemd.libsystemd import JournalEntry
from exporter.sources.systemd.units import cri_lines

CLOCK = Clock(latest=1_700_000_000.0)
LATEST = 4102444800.0  # 2100

# What the forms are made of, put together wrongly. Digits come in lengths that no clock, pid or sequence has.
PARTS = [
    b"\x00", b"\r", b"\n", b"\t", b" ", b"\xff", b"\xc3", b"\x1b[", b"\x1b]", b"\x1b\\", b"\x07", b"m", b";", b",",
    b":", b".", b"-", b"+", b"[", b"]", b"<", b">", b"{", b"}", b'"', b"\\", b"\\x", b"\\u", b"\\ud800", b"0", b"7",
    b"9" * 19, b"9" * 5000, b"-1", b"1e999", b"NaN", b"T", b"Z", b"C", b"F", b"P", b"stdout", b"stderr", b"kernel:",
    b"kern", b"err", b"log", b"time", b"stream", b"SUBSYSTEM=pci\n", b" DEVICE=+pci:0000:c1:00.0\n", b"d=",
    b"2023-11-14T22:13:20", b"0000-00-00T00:00:00", b"9999-12-31T23:59:59", b".123456789Z", b"+99:99",
    b"Nov 14 22:13:20 host ", b"Feb 30 25:61:61 ", b"[   12.345678]", b"[    T1]", b"6,1,1000,-;", b"rank0",
    b"]<stdout>:", b'{"log":"', b'","stream":"stdout","time":"', b'"}', b" stdout F ", "é".encode(),
    "\u202e".encode(), b"A" * 300,
]  # fmt: skip
RAW = st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=14).map(b"".join)
FORMATS: list[LogFormat] = ["plain", "cri", "docker", "kmsg"]
SOURCES: list[SourceKind] = ["job", "kernel"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", FORMATS)
@given(raw=RAW)
def test_any_line_is_decoded(raw: bytes, form: LogFormat, source: SourceKind) -> None:
    record = decode(raw, form, source, CLOCK)
    assert "\x00" not in record.text
    assert len(record.text) <= 4 * len(raw)  # a byte that is no text becomes \xNN
    assert record.time is None or 0 <= record.time <= LATEST
    record.text.encode()


@given(raw=RAW)
def test_any_kernel_record_is_parsed_or_refused(raw: bytes) -> None:
    header = kernel_records.parse_header(raw)
    if header is not None:
        assert 0 <= header.text_at <= len(raw)
        assert 0 <= header.pri < 10**20
    kernel_records.fold(raw + b"\n")
    assert kernel_records.unescape(kernel_records.escape(raw)) == raw


@given(raw=RAW)
def test_what_syslog2_gives_is_cut_into_records_of_one_line_each(raw: bytes) -> None:
    records = list(kernel_records.from_syslog(raw))
    assert sum(map(len, records)) <= 8 * len(raw) + 64 * len(records)
    assert all(kernel_records.parse_header(record) for record in records)


FIELDS = st.dictionaries(
    st.sampled_from(["MESSAGE", "PRIORITY", "_TRANSPORT", "_SYSTEMD_UNIT", "SYSLOG_FACILITY", "_KERNEL_DEVICE"]),
    RAW.map(lambda raw: raw.decode("utf-8", "backslashreplace")),
)


@given(fields=FIELDS, at=st.integers(0, 2**64 - 1))
def test_any_journal_entry_becomes_lines_of_its_own(fields: dict[str, str], at: int) -> None:
    lines = cri_lines(JournalEntry(cursor="c", boot_id="b", realtime_us=at, monotonic_us=at, fields=fields))
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines)
    assert len(lines) <= 1 + fields.get("MESSAGE", "").count("\n")


def test_a_time_beyond_all_dates_is_the_last_one() -> None:
    (line,) = cri_lines(
        JournalEntry(cursor="c", boot_id="b", realtime_us=2**63, monotonic_us=0, fields={"MESSAGE": "x"})
    )
    assert line == b"9999-12-31T23:59:59.999999Z stdout F x\n"
