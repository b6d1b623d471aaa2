"""Decoding: what a writer meant, whatever carried its line, and whatever a hostile one writes."""

from __future__ import annotations

import calendar
import json
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from exporter.core.decoding import formats, prefixes
from exporter.core.decoding.prefixes import Clock
from exporter.core.model import LogFormat, Record, SourceKind

READ_AT = 1_764_000_000.0  # 2025-11-24T16:00:00Z
CLOCK = Clock(READ_AT)


def utc(text: str) -> float:
    """Unix seconds of `2025-11-20 23:41:00`."""
    year, month, day, hour, minute, second = (int(part) for part in text.replace(":", "-").replace(" ", "-").split("-"))
    return float(calendar.timegm((year, month, day, hour, minute, second)))


def job(line: str, format: LogFormat = "plain", clock: Clock = CLOCK) -> Record:  # noqa: A002 (as in decode)
    return formats.decode(line.encode(), format, "job", clock)


def kernel(line: str, clock: Clock = CLOCK) -> Record:
    return formats.decode(line.encode(), "plain", "kernel", clock)


def kmsg(line: str, clock: Clock = CLOCK) -> Record:
    return formats.decode(line.encode(), "kmsg", "kernel", clock)


# Job logs


@pytest.mark.parametrize(
    ("prefix", "fields"),
    [
        ("", {}),
        ("3: ", {"rank": "3"}),  # srun --label
        ("  12: ", {"rank": "12"}),
        ("[1,3]<stderr>:", {"rank": "3"}),  # mpirun --tag-output
        ("[1,3]<stddiag>: ", {"rank": "3"}),
        (
            "x1921c1s4b0n0.hsn.cm.aurora.alcf.anl.gov 7: ",
            {"rank": "7", "host": "x1921c1s4b0n0.hsn.cm.aurora.alcf.anl.gov"},
        ),
        ("[rank3]: ", {"rank": "3"}),
        ("[default0]:", {"rank": "0"}),
        ("2025-11-20T23:41:00.1234567Z ", {"time": utc("2025-11-20 23:41:00") + 0.1234567}),  # GitHub Actions
        ("[2025-11-20 23:41:00,500] ", {"time": utc("2025-11-20 23:41:00") + 0.5}),  # logging of Python
        ("trainer-1  | ", {}),  # docker compose
        ("  3: [rank5]:", {"rank": "5"}),  # the inner one knows better
        (
            "trainer-1  | 2025-11-20T23:41:00Z 3: [1,4]<stdout>:[rank5]: ",
            {"rank": "5", "time": utc("2025-11-20 23:41:00")},
        ),
        ("\x1b[31m[rank3]: \x1b[0m", {"rank": "3"}),
        ("\x00\x00\x003: ", {"rank": "3"}),  # the hole that copytruncate leaves
    ],
)
def test_what_launchers_put_in_front_of_a_line_is_taken_off_and_kept(prefix: str, fields: dict[str, object]) -> None:
    record = job(prefix + "[ProcessGroupNCCL.cpp:683] Watchdog caught\r\n")
    assert record == Record(text="[ProcessGroupNCCL.cpp:683] Watchdog caught", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["", "3: ", "[rank3]: ", "\x1b[31m"])
@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("[E810 03:04:11.061 ProcessGroupNCCL.cpp:683] Watchdog caught", utc("2025-08-10 03:04:11") + 0.061),
        ("E0810 03:04:11.061227 4211 process.py:12] gone", utc("2025-08-10 03:04:11") + 0.061227),  # glog
        ("W1231 23:59:59.5 1 x.cc:1] two days ahead of the log: last year's", utc("2024-12-31 23:59:59") + 0.5),
        ("ERROR 08-10 03:04:11 [engine.py:7] EngineCore died", utc("2025-08-10 03:04:11")),  # vLLM
        ("(EngineCore_0 pid=9) ERROR 08-10 03:04:11 [core.py:7] died", utc("2025-08-10 03:04:11")),
    ],
)
def test_a_time_without_a_year_behind_the_level_is_the_lines_and_stays_in_it(
    prefix: str, text: str, time: float
) -> None:
    record = job(prefix + text)
    assert (record.text, record.time) == (text, time)


@pytest.mark.parametrize(
    "text",
    ["E1340 03:04:11.061 x] no such month", "ERROR 13-08 03:04:11 no such month", "E08100 03:04:11 x", "ERROR 08-10 x"],
)
def test_what_only_resembles_a_time_without_a_year_is_none(text: str) -> None:
    assert job(text) == Record(text=text)


def test_a_rank_of_tensor_parallelism_behind_the_time_is_taken_off_with_it() -> None:
    record = job("[2025-11-20 23:41:00 DP1 TP0] Scheduler hit an exception")  # SGLang
    assert (record.text, record.time) == ("Scheduler hit an exception", utc("2025-11-20 23:41:00"))


@pytest.mark.parametrize(
    "text", ["12:30: lunch", "3 : x", "1234567: x", "[rank]: x", "[1]<stderr>:x", "trainer | x", "2025-11-20Tx"]
)
def test_what_only_looks_like_a_prefix_stays(text: str) -> None:
    assert job(text) == Record(text=text)


def test_the_outermost_stamp_counts() -> None:
    assert job("2025-11-20T23:41:00Z [2025-11-20 23:40:00] x").time == utc("2025-11-20 23:41:00")


@pytest.mark.parametrize(
    ("stamp", "meant"),
    [
        ("2025-11-20T23:41:00Z", "2025-11-20 23:41:00"),
        ("2025-11-20T23:41:00+01:00", "2025-11-20 22:41:00"),
        ("2025-11-20T23:41:00-0530", "2025-11-21 05:11:00"),
        ("2025-11-20 23:41:00", "2025-11-20 21:41:00"),  # local time of a node two hours east
        ("2024-02-29T00:00:00Z", "2024-02-29 00:00:00"),
    ],
)
def test_a_stamp_means_the_time_of_its_zone_else_of_the_node(stamp: str, meant: str) -> None:
    assert job(f"{stamp} x", clock=Clock(READ_AT, utc_offset=7200.0)).time == utc(meant)


@pytest.mark.parametrize(
    "stamp",
    [
        "2025-13-20T23:41:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",  # a date that Python's own could not print
        "2101-01-01T00:00:00Z",
    ],
)
def test_a_time_that_no_node_has_is_none(stamp: str) -> None:
    assert job(f"{stamp} x") == Record(text="x")


def test_colours_titles_and_other_sequences_of_a_terminal_are_taken_off() -> None:
    assert (
        job("\x1b[1;31mGPU\x1b[0m \x1b]0;title\x07fault\x1b]8;;http://x\x1b\\ at\x1b[K \x1bM0x1").text
        == "GPU fault at 0x1"
    )


def test_a_sequence_that_never_ends_takes_nothing_with_it() -> None:
    assert job("GPU fault \x1b]0;title").text.startswith("GPU fault")


def test_bytes_that_are_no_text_can_still_be_read() -> None:
    assert formats.decode(b"GPU \xff fault", "plain", "job", CLOCK).text == r"GPU \xff fault"


# Containers


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("2025-11-20T23:41:00.5Z stderr F 3: [rank5]: GPU fault", "GPU fault"),
        ("2025-11-20T23:41:00.5Z stdout F:tag 2025-11-20T23:40:00Z GPU fault", "GPU fault"),
        ("2025-11-20T23:41:00.5Z stdout F \x1b[31mGPU fault\x1b[0m", "GPU fault"),
        ("2025-11-20T23:41:00.5Z stdout F", ""),
    ],
)
def test_a_line_of_a_container_is_what_its_writer_wrote(line: str, text: str) -> None:
    record = job(line, "cri")
    assert (record.text, record.time) == (text, utc("2025-11-20 23:41:00") + 0.5)


def test_docker_wraps_a_line_in_json() -> None:
    entry = {"log": '3: \x1b[31m"GPU" <fault> é\x1b[0m\r\n', "stream": "stderr", "time": "2025-11-20T23:41:00.5Z"}
    record = job(json.dumps(entry), "docker")
    assert record == Record(text='"GPU" <fault> é', time=utc("2025-11-20 23:41:00") + 0.5, rank="3")


def test_a_part_says_whether_its_line_goes_on() -> None:
    assert formats.parse_cri(b"2025-11-20T23:41:00Z stderr P GPU fa", CLOCK).continues
    assert not formats.parse_cri(b"2025-11-20T23:41:00Z stderr F ult", CLOCK).continues
    assert formats.parse_docker(b'{"log": "GPU fa", "stream": "stderr"}', CLOCK).continues
    assert not formats.parse_docker(b'{"log": "ult\\n", "stream": "stderr"}', CLOCK).continues


@pytest.mark.parametrize("format", ["cri", "docker"])
@pytest.mark.parametrize(
    "line", ["GPU fault", "{}", '{"log": 7}', '["log"]', '{"log": "GPU', "7", "[" * 100_000, "9" * 5000]
)
def test_what_a_carrier_did_not_write_is_its_own_text(format: LogFormat, line: str) -> None:  # noqa: A002 (as in decode)
    part = formats.CONTAINER_FORMATS[format](line.encode(), CLOCK)
    assert (part.text, part.time, part.stream, part.continues) == (line, None, "", False)


def test_half_a_character_in_json_does_not_poison_what_is_stored() -> None:
    text = job(r'{"log": "GPU \ud800 fault \ud83d\ude00\n"}', "docker").text
    assert text == "GPU \\ud800 fault \N{GRINNING FACE}"
    assert text.encode()


# Kernel logs as text

XID = "NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("prefix", "fields"),
    [
        ("[12345.678901] ", {"mono": 12345.678901}),
        ("    [12345.678901] ", {"mono": 12345.678901}),  # indented to quote it
        ("\tNov 20 23:41:00 gpu-7 kernel: ", {"time": utc("2025-11-20 23:41:00"), "host": "gpu-7"}),
        ("[    5.678901] ", {"mono": 5.678901}),
        ("[   12.345678][  T421] ", {"mono": 12.345678}),  # CONFIG_PRINTK_CALLER
        ("<3>[   12.345678] ", {"mono": 12.345678}),  # dmesg --raw
        ("[Tue Sep  9 02:30:28 2025] ", {"time": utc("2025-09-09 02:30:28")}),  # dmesg -T
        ("[Nov20 23:41] ", {"time": utc("2025-11-20 23:41:00")}),  # dmesg --human: the first line of a minute
        ("[Nov 2 03:41] ", {"time": utc("2025-11-02 03:41:00")}),
        ("[  +0.000003] ", {}),  # and those behind it
        ("23:41:00 kernel: ", {}),
        *(  # talosctl dmesg
            (
                f"{host}: kern: {level:>7}: [2025-11-20T23:41:00.504764063Z]: ",
                {"time": utc("2025-11-20 23:41:00") + 0.504764063, "host": host},
            )
            for host, level in (("10.0.0.3", "warning"), ("gpu-7", "err"), ("fd00::7", "info"))
        ),
        ("23:41:00.123456 gpu-7 kernel: ", {"host": "gpu-7"}),
        ("kernel: [   12.345678] ", {"mono": 12.345678}),
        ("kern  :err   : [   12.345678] ", {"mono": 12.345678}),  # dmesg --decode
        ("kern  :err   : 2025-11-20T23:41:00,500000+00:00 ", {"time": utc("2025-11-20 23:41:00") + 0.5}),
        ("2025-11-20T23:41:00,500000+00:00 ", {"time": utc("2025-11-20 23:41:00") + 0.5, "kernel": False}),
        ("Nov 20 23:41:00 gpu-7 kernel: ", {"time": utc("2025-11-20 23:41:00"), "host": "gpu-7"}),
        ("Nov  2 03:41:00 gpu-7 kernel[0]: ", {"time": utc("2025-11-02 03:41:00"), "host": "gpu-7"}),
        ("Nov 20 23:41:00.250000 gpu-7 kernel: ", {"time": utc("2025-11-20 23:41:00") + 0.25, "host": "gpu-7"}),
        ("Nov 20 23:41:00 kernel: ", {"time": utc("2025-11-20 23:41:00")}),  # journalctl --no-hostname
        *(  # blotted out by who shows the log
            (f"{stamp} {host} kernel: ", {"time": utc("2025-11-20 23:41:00")})
            for stamp in ("Nov 20 23:41:00", "2025-11-20T23:41:00Z")
            for host in ("", "<host>", "****", "[hostname]")
        ),
        ("kvě 20 23:41:00 gpu-7 kernel: ", {"host": "gpu-7"}),  # journalctl in Czech, and in Russian
        ("авг. 20 23:41:00 gpu-7 kernel: ", {"host": "gpu-7"}),
        ("2025-11-20T23:41:00+0000 kernel: ", {"time": utc("2025-11-20 23:41:00")}),
        ("<3>Nov 20 23:41:00 gpu-7 kernel: ", {"time": utc("2025-11-20 23:41:00"), "host": "gpu-7"}),
        ("2025-11-20T23:41:00.5+01:00 gpu-7 kernel: ", {"time": utc("2025-11-20 22:41:00") + 0.5, "host": "gpu-7"}),
        (
            "2025-11-20T23:41:00.5+01:00 gpu-7 kernel: [  12.345678] ",
            {"time": utc("2025-11-20 22:41:00") + 0.5, "host": "gpu-7", "mono": 12.345678},
        ),
        ("kern  :err   : ", {}),  # dmesg --decode with each of its stamps
        ("kern  :err   : [Tue Sep  9 02:30:28 2025] ", {"time": utc("2025-09-09 02:30:28")}),
        ("kern  :err   : [Nov20 23:41] ", {"time": utc("2025-11-20 23:41:00")}),
        ("kern  :err   : [  +0.000003] ", {}),
        ("[   12.345678 <    0.000003>] ", {"mono": 12.345678}),  # dmesg --show-delta
        ("[Tue Sep  9 02:30:28 2025 <    0.000003>] ", {"time": utc("2025-09-09 02:30:28")}),
        ("Tue 2025-09-09 02:30:28 UTC gpu-7 kernel: ", {"time": utc("2025-09-09 02:30:28"), "host": "gpu-7"}),
        ("Di 2025-09-09 02:30:28.500000 CEST kernel: ", {"time": utc("2025-09-09 02:30:28") + 0.5}),
        (
            '<3>1 2025-11-20T23:41:00Z gpu-7 kernel - - [meta sequenceId="1"] ',  # RFC 5424
            {"time": utc("2025-11-20 23:41:00"), "host": "gpu-7"},
        ),
        ("Nov 20 23:41:00 gpu-7 kern.err kernel: ", {"time": utc("2025-11-20 23:41:00"), "host": "gpu-7"}),  # busybox
        ("gpu-7: Nov 20 23:41:00 gpu-7 kernel: ", {"time": utc("2025-11-20 23:41:00"), "host": "gpu-7"}),  # pdsh
        ("gpu-7: [   12.345678] ", {"mono": 12.345678}),
        ("/var/log/messages-1:42:Nov 20 23:41:00 kernel: ", {"time": utc("2025-11-20 23:41:00")}),  # grep -Hn
        ("2025-11-20T23:41:00Z gpu-7 [   12.345678][  T421] ", {"time": utc("2025-11-20 23:41:00"), "mono": 12.345678}),
    ],
)
def test_what_readers_of_the_kernel_log_put_in_front_is_taken_off_and_kept(
    prefix: str, fields: dict[str, object]
) -> None:
    record = kernel(prefix + XID)
    assert record == Record(**{"text": XID, "kernel": True, **fields})  # type: ignore[arg-type]
    assert not prefixes.written_by_others(record.text)


@pytest.mark.parametrize(
    "prefix",
    [
        "Nov 20 23:41:00 gpu-7 mallory: ",
        "Nov 20 23:41:00 gpu-7 mallory[12]: ",
        "Nov 20 23:41:00 gpu-7 ~any+tag%at=all: ",  # logger -t
        "Nov 20 23:41:00.250000 gpu-7 mallory[12]: ",
        "Nov 20 23:41:00 <host> mallory[12]: kernel: ",
        "nov 20 23:41:00 gpu-7 mallory[12]: ",  # journalctl in other languages
        "kvě 20 23:41:00 gpu-7 mallory[12]: ",
        "<13>Nov 20 23:41:00 gpu-7 mallory: ",
        "2025-11-20T23:41:00.5+01:00 gpu-7 mallory[12]: ",  # rsyslog's own format
        "2025-11-20T23:41:00+0100 gpu-7 mallory[12]: ",  # journalctl -o short-iso
        "2025-11-20T23:41:00Z gpu-7 kernelx: ",
        "    Nov 20 23:41:00 gpu-7 sshd[42]: ",
        "gpu-7: Nov 20 23:41:00 gpu-7 sshd[42]: ",
        "/var/log/messages:Nov 20 23:41:00 gpu-7 sshd[42]: ",
        "Thu 2025-11-20 23:41:00 UTC gpu-7 sshd[42]: ",  # journalctl -o short-full
        "23:41:00 gpu-7 mallory[12]: ",
        "user  :notice: [   12.345678] ",  # dmesg --decode of what was written into /dev/kmsg
        "<13>[   12.345678] ",  # dmesg --raw of it
    ],
)
def test_a_line_that_a_user_wrote_into_the_kernel_log_is_known_as_such(prefix: str) -> None:
    record = kernel(prefix + XID)
    assert prefixes.written_by_others(record.text)
    assert not record.kernel


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-20T23:41:00,500000+00:00 EDAC MC0: 1 CE memory read error",  # dmesg --time-format iso has no host
        "2025-11-20T23:41:00,500000+00:00 watchdog: BUG: soft lockup",
        "[   12.345678] EDAC MC0: 1 CE memory read error",
        "amdgpu 0000:c1:00.0: amdgpu: ring gfx timeout",
    ],
)
def test_a_message_of_the_kernel_that_looks_like_a_tag_stays_the_kernels(text: str) -> None:
    assert not prefixes.written_by_others(kernel(text).text)


@pytest.mark.parametrize(
    ("read_at", "stamp", "meant"),
    [
        ("2025-11-24 16:00:00", "Nov 20 23:41:00", "2025-11-20 23:41:00"),
        ("2025-11-24 16:00:00", "Dec 20 23:41:00", "2024-12-20 23:41:00"),  # nothing was logged next month
        ("2025-11-24 16:00:00", "Nov 25 12:00:00", "2025-11-25 12:00:00"),  # a clock that is ahead
        ("2024-01-01 00:30:00", "Jan  1 00:10:00", "2024-01-01 00:10:00"),
        ("2024-01-01 00:30:00", "Dec 31 23:59:59", "2023-12-31 23:59:59"),
        ("2024-12-31 23:59:00", "Dec 31 23:58:00", "2024-12-31 23:58:00"),
        ("2024-12-31 23:59:59", "Jan  1 00:00:01", "2025-01-01 00:00:01"),
        ("2025-03-05 00:00:00", "Feb 28 00:00:00", "2025-02-28 00:00:00"),
    ],
)
def test_a_stamp_without_a_year_lies_in_the_year_that_ends_now(read_at: str, stamp: str, meant: str) -> None:
    assert kernel(f"{stamp} gpu-7 kernel: x", Clock(utc(read_at))).time == utc(meant)


@given(st.integers(0, 2**31), st.floats(-3e7, 86000))
def test_the_year_is_right_on_every_day_of_every_year(read_at: int, age: float) -> None:
    at = read_at + age
    assume(at >= 0)
    stamp = time.strftime("%b %d %H:%M:%S", time.gmtime(at))
    assert kernel(f"{stamp} gpu-7 kernel: x", Clock(float(read_at))).time == float(int(at))


@pytest.mark.parametrize(
    ("line", "is_kernels"),
    [
        (b"[   12.345678] amdgpu: x", True),
        (b"Nov 20 23:41:00 gpu-7 kernel: x", True),
        (b"3,1042,567890123,-;amdgpu: x", True),
        (b"Nov 20 23:41:00 gpu-7 sshd[7]: x", False),
        (b"2025-11-20T23:41:00Z loss=0.3", False),
        (b"loss=0.3", False),
        (b"\xff" * 1000, False),
    ],
)
def test_kernel_logs_are_detected_by_their_lines(line: bytes, is_kernels: bool) -> None:
    assert formats.resembles_kernel_line(line) is is_kernels


# Kernel records


def test_a_record_of_the_kernel_has_a_number_a_device_and_a_time() -> None:
    record = kmsg(f"3,1042,567890123,-,d=+pci:0000:c1:00.0;{XID}", Clock(READ_AT, boot_time=1000.0))
    assert record == Record(
        text=XID, time=1000.0 + 567.890123, mono=567.890123, device="0000:c1:00.0", kernel=True, seq=1042
    )


def test_a_record_without_a_boot_has_the_clock_of_the_kernel_alone() -> None:
    assert (kmsg("3,1042,567890123,-;x").time, kmsg("3,1042,567890123,-;x").mono) == (None, 567.890123)


def test_a_record_that_user_space_wrote_is_known_by_its_facility() -> None:
    assert kmsg("7,1,1,-;x").kernel
    assert not kmsg("12,1,1,-;x").kernel  # facility 1, level 4


def test_what_the_kernel_escaped_is_what_its_writer_wrote() -> None:
    assert kmsg(r"3,1,1,-;a\x09b\x0ac \xc3\xa9 \x5cx09").text == "a\tb\nc é \\x09"


def test_a_record_without_stamp_and_number_is_still_the_kernels() -> None:
    assert kmsg("3,,,-;x", Clock(READ_AT, boot_time=1000.0)) == Record(text="x", kernel=True)


@pytest.mark.parametrize("line", ["x", "3,1,1,-", ",1,1,-;x", "9" * 5000 + ",1,1,-;x"])
def test_an_invalid_kmsg_record_is_not_a_kernel_line(line: str) -> None:
    assert kmsg(line) == Record(text=line)


def test_a_clock_beyond_belief_gives_no_time() -> None:
    assert kmsg("3,1,99999999999999999999,-;x", Clock(READ_AT, boot_time=READ_AT)).time is None


# Whatever they write

HAZARDS = [
    b"\x00", b"\xff", b"\x1b", b"\x1b[", b"\x1b]", b"\r", b"\n", b"\\x", b"\\x0a", b"\xed\xa0\x80", b"[", b"]",
    b"<", b">", b"{", b"}", b'"', b"9", b"99999", b".", b",", b";", b":", b" ", b"-", b"T", b"Z", b"+99:99",
    b"2025-11-20T23:41:00", b"0000-00-00T99:99:99", b"Feb 30 99:99:99 ", b"Jan  0 00:00:00 h kernel: ",
    b"[Tue Sep  9 02:30:28 0000] ", b"[ 99999.999999]", b"3,1,1,-;", b" stdout P ", b'{"log": "', b'", "time": "',
    b"\\ud800", b"3: ", b"[rank3]: ", "\N{ARABIC-INDIC DIGIT SEVEN}".encode(), "\N{KELVIN SIGN}".encode(),
]  # fmt: skip


@given(
    st.lists(st.sampled_from(HAZARDS), max_size=12).map(b"".join) | st.binary(max_size=60),
    st.sampled_from(["plain", "cri", "docker", "kmsg"]),
    st.sampled_from(["job", "kernel"]),
    st.sampled_from([CLOCK, Clock(0.0), Clock(READ_AT, -43200.0, 1e9)]),
)
@example(b"[" * 10_000, "docker", "job", CLOCK)
@example(b'{"log": ' * 10_000, "docker", "job", CLOCK)
@example(b"9" * 10_000 + b",1,1,-;", "kmsg", "kernel", CLOCK)
@example(b"\x1b[" * 10_000, "plain", "job", CLOCK)
def test_no_line_breaks_the_decoder(raw: bytes, format: LogFormat, source: SourceKind, clock: Clock) -> None:  # noqa: A002
    record = formats.decode(raw, format, source, clock)
    assert record.text.encode().decode() == record.text  # so that it can be stored
    assert "\x00" not in record.text
    assert record.time is None or 0 <= record.time < 4102444800  # until 2100, so that any calendar can say it
    formats.resembles_kernel_line(raw)
    prefixes.written_by_others(record.text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (" 45%|####5     | 45/100 [00:12<?, ?it/s]Segmentation fault", "Segmentation fault"),
        (
            "Epoch 3:  45%|█ | 45/100 [00:12<00:15, 3.52it/s, loss=0.1]Traceback (most recent call last):",
            "Traceback (most recent call last):",
        ),
        ("2026-03-04 11:24:01 x: 100%|█| 1.2G/1.2G [00:12<00:00] OSError: full", "OSError: full"),
        ("100%|#| 5/5 [00:01<00:00]", "100%|#| 5/5 [00:01<00:00]"),
        ("a 5%| of b", "a 5%| of b"),
    ],
)
def test_the_text_of_a_line_begins_after_a_progress_bar(line: str, text: str) -> None:
    assert job(line).text == text
