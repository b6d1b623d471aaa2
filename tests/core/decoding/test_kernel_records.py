"""The kernel log's canonical form: folding, headers, escapes, and the way from syslog(2) to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.decoding.kernel_records import (
    Header,
    chain,
    escape,
    find_in_syslog,
    fold,
    from_syslog,
    parse_header,
    unescape,
)

HAZARDS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\0", b"\xff", b"\x1b", b"\\", b"\\x0a", b"; ", b",", b" DEVICE=+pci:0", b"<4>"])
    | st.sampled_from([b"3,1,2,-;", b"[ 1.000000] ", b"\n ", b"d=", b"9" * 5000, b"a"])
).map(b"".join)


def test_the_device_of_a_record_is_folded_into_its_header() -> None:
    record = b"3,1042,567890123,-;amdgpu 0000:c1:00.0: page fault\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0\n"
    assert fold(record) == b"3,1042,567890123,-,d=+pci:0000:c1:00.0;amdgpu 0000:c1:00.0: page fault\n"


def test_the_device_follows_the_fields_of_the_kernel() -> None:
    record = b"6,7,8,-,caller=T421;virtio_blk virtio1: new size\n SUBSYSTEM=virtio\n DEVICE=+virtio:virtio1\n"
    assert fold(record) == b"6,7,8,-,caller=T421,d=+virtio:virtio1;virtio_blk virtio1: new size\n"


@pytest.mark.parametrize(
    "record", [b"5,0,0,-;Linux version 6.18.44\n", b"5,0,0,-;no newline", b"no header at all\n", b""]
)
def test_a_record_without_a_device_is_its_first_line(record: bytes) -> None:
    assert fold(record) == record.removesuffix(b"\n") + b"\n"


@given(HAZARDS)
def test_whatever_is_folded_is_one_line_and_folding_it_again_changes_nothing(record: bytes) -> None:
    line = fold(record)
    assert line.count(b"\n") == 1
    assert fold(line) == line


def test_a_header_tells_its_fields_and_where_the_text_starts() -> None:
    line = b"3,1042,567890123,-,caller=T1,d=+pci:0000:c1:00.0;a;b,c\n"
    header = parse_header(line)
    assert header == Header(
        pri=3, seq=1042, us=567890123, flags="-", device="+pci:0000:c1:00.0", text_at=line.index(b";") + 1
    )


def test_missing_header_fields_are_none() -> None:
    assert parse_header(b"4,,,c;x\n") == Header(pri=4, seq=None, us=None, flags="c", device=None, text_at=6)


@pytest.mark.parametrize("line", [b"", b"text", b"4,1,2;x", b"-4,1,2,-;x", b"4,1,2,-\n;x", b"9" * 5000 + b",1,2,-;x"])
def test_an_invalid_header_is_none(line: bytes) -> None:
    assert parse_header(line) is None


@given(HAZARDS)
def test_reading_a_header_or_a_ring_never_raises(line: bytes) -> None:
    parse_header(line)
    list(from_syslog(line))
    find_in_syslog(line, 1_000_000, "0")


@given(st.binary())
def test_escapes_are_undone_once_and_leave_printable_ascii(text: bytes) -> None:
    escaped = escape(text)
    assert unescape(escaped) == text
    assert escaped.isascii()
    assert escaped.decode().isprintable()


def test_an_escaped_backslash_does_not_begin_another_escape() -> None:
    assert unescape(rb"tab\x09 and \x5cx41") == rb"tab" + b"\t and " + rb"\x41"


def test_syslog_lines_become_records_without_numbers() -> None:
    ring = (
        b"<6>[    0.000000] Linux version 6.18.44\n"
        b"<3>[12345.678901][  T421] amdgpu 0000:c1:00.0: \t Faulty UTCL2 client ID: CPF (0x4)\n"
        b"<12>[12345.678902] monitor: saw \xc3\xa9 and \\\n"
        b"<4>no time\n"
    )
    assert list(from_syslog(ring)) == [
        b"6,,0,-;Linux version 6.18.44\n",
        rb"3,,12345678901,-,caller=T421;amdgpu 0000:c1:00.0: \x09 Faulty UTCL2 client ID: CPF (0x4)" + b"\n",
        rb"12,,12345678902,-;monitor: saw \xc3\xa9 and \x5c" + b"\n",
        b"4,,,-;no time\n",
    ]


def test_lines_without_a_prefix_belong_to_the_record_before_them() -> None:
    ring = (
        b"the end of a record that is gone\n<2>[    1.000000] xe: wedged\nsecond line\nthird\n<6>[    2.000000] next\n"
    )
    assert list(from_syslog(ring)) == [
        rb"2,,1000000,-;xe: wedged\x0asecond line\x0athird" + b"\n",
        b"6,,2000000,-;next\n",
    ]


RING = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "x [    0.000001] y", "<6>[    0.000002] z"])))


@given(RING, st.data())
def test_reading_goes_on_behind_the_last_line_seen_however_many_look_like_it(
    lines: list[tuple[int, str]], data: st.DataObject
) -> None:
    raw = [b"<6>[%5d.%06d] %b\n" % (0, us, text.encode()) for us, text in sorted(lines, key=lambda line: line[0])]
    seen = data.draw(st.integers(0, len(raw)))
    us, digest = last_of(raw[:seen])
    start = find_in_syslog(b"".join(raw), us, digest)
    assert list(from_syslog(b"".join(raw), start or 0)) == list(from_syslog(b"".join(raw[seen:])))


def test_a_line_that_another_processor_stamped_a_little_earlier_is_found_too() -> None:
    raw = [b"<6>[    0.000005] a\n", b"<6>[    0.000006] b\n", b"<6>[    0.000005] c\n", b"<6>[    0.000006] d\n"]
    us, digest = last_of(raw[:3])
    start = find_in_syslog(b"".join(raw), us, digest)
    assert start is not None
    assert list(from_syslog(b"".join(raw), start)) == [b"6,,6,-;d\n"]


def last_of(raw: list[bytes]) -> tuple[int, str]:
    us, digest = -1, ""
    for line in from_syslog(b"".join(raw)):
        header = parse_header(line)
        assert header is not None
        assert header.us is not None
        digest = chain(digest if header.us == us else "", line)
        us = header.us
    return us, digest


def test_a_line_that_the_ring_has_dropped_is_not_found() -> None:
    digest = chain("", b"6,,1000000,-;old\n")
    assert find_in_syslog(b"<6>[    1.000000] other\n<6>[    2.000000] new\n", 1_000_000, digest) is None
