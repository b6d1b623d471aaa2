"""What a log is, by its first lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.decoding import formats
from exporter.core.decoding.prefixes import PATTERNS
from exporter.scan.plan import _KERNEL_SIGN, _PARTS_OF_SIGNS, Task, plan, plan_from

PREFIXES = st.one_of(*(st.from_regex(pattern) for pattern in PATTERNS["kernel"]))
HEADERS = st.from_regex(r"\A[0-9]{1,3},[0-9]{0,4},[0-9]{0,9},[-c](,caller=T1)?;")
COLOURS = st.sampled_from(["", "\x1b[32m", "\0", "2026-11-21 01:02:03 "])


@given(COLOURS, st.one_of(HEADERS, st.lists(PREFIXES, min_size=1, max_size=2).map("".join)), COLOURS)
def test_a_line_that_looks_like_the_kernels_has_the_sign_that_is_searched_first(
    before: str, prefix: str, after: str
) -> None:
    line = f"{before}{prefix[:40]}{after}{prefix[40:]}text".replace("\n", " ").encode("utf-8", "replace")
    assert _KERNEL_SIGN.search(line) or not formats.resembles_kernel_line(line)


@given(st.from_regex(_KERNEL_SIGN))
def test_each_sign_has_one_of_the_parts_that_are_searched_before_it(line: bytes) -> None:
    assert any(part in line for part in _PARTS_OF_SIGNS) or not line.isascii()


KERNEL, JOB = b"[  123.456789] NVRM: loaded\n", b"2026-11-21 01:02:03 INFO step 1\n"
DMESG_ISO = b"2026-11-24T02:48:41,113052+00:00 "
APP_ISO = b"2026-11-24T02:48:41.113052+00:00 "  # Python's isoformat()


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("node.log", KERNEL * 2 + JOB, "kernel"),
        ("node.log", KERNEL + JOB, "job"),
        ("node.log", JOB * 2 + KERNEL * 3, "kernel"),
        ("dmesg.txt", JOB * 30 + KERNEL, "kernel"),
        ("dmesg.txt", JOB * 30, "job"),
        ("dmesg.txt", b"", "job"),
        ("node.log", KERNEL + b" " * 15 + b"All queues are blocked.\n" + b" " * 15 + b"Reload the driver.\n", "kernel"),
        ("node.log", b"[1763633410.123456] [n1:4411 :0]   sock.c:12   UCX  ERROR lost\n", "job"),  # the time since 1970
        ("node.log", b"NVRM: loaded\n" + JOB, "job"),
        ("node.log", b"NVRM: loaded\n", "kernel"),
        ("node.log", DMESG_ISO + b"amdgpu 0000:c1:00.0: amdgpu: ring\n" + DMESG_ISO + b"NVRM: loaded\n", "kernel"),
        ("node.log", DMESG_ISO + b"Linux version 6.8.0\n" + DMESG_ISO + b"usb 1-1: new device\n", "kernel"),
        ("node.log", DMESG_ISO.replace(b"+00:00", b"-0700") + b"NVRM: loaded\n", "kernel"),
        ("node.log", APP_ISO + b"amdgpu 0000:c1:00.0: amdgpu: ring\n" + APP_ISO + b"NVRM: loaded\n", "kernel"),
        ("dmesg.txt", JOB * 30 + DMESG_ISO + b"NVRM: loaded\n", "kernel"),
        ("node.log", (APP_ISO + b"step 1\n") * 2 + APP_ISO + b"NVRM: loaded\n", "job"),
        ("node.log", (APP_ISO + b"step 1\n") * 2 + DMESG_ISO + b"NVRM: loaded\n", "job"),
        ("node.log", APP_ISO + b"node17 said NVRM: loaded\n", "job"),
        ("dmesg.txt", (APP_ISO + b"step 1\n") * 30, "job"),
        ("node.log", b"2026-11-24T02:48:41,113 NVRM: loaded\n", "job"),  # log4j's
        ("node.log", b"2026-11-24T02:48:41,113+00:00 step 1\n", "job"),
    ],
)
def test_more_than_half_of_the_lines_or_a_name_and_one_line_make_a_kernel_log(
    name: str, text: bytes, kind: str
) -> None:
    assert plan_from(name, "auto", text) == Task(name, kind, "plain")  # type: ignore[arg-type]


def test_a_log_is_planned_from_the_bytes_that_it_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_bytes(KERNEL * 5000)
    assert plan(str(path), "auto") == plan_from(str(path), "auto", KERNEL * 2000)
