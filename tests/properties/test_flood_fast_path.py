"""Whether most lines of a flood are folded by their shape, or each is looked at, is the same to whoever reads the matches."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core.decoding import formats, prefixes
from exporter.core.decoding.lines import Candidate
from exporter.core.diagnosis.incidents import condense
from exporter.core.matching import verdict_cache
from exporter.core.matching.chunk_matcher import ChunkMatcher
from exporter.core.matching.flood_fast_path import FloodFastPath
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import MAX_KEPT_MATCHES, LogFormat, Match, SourceKind
from exporter.core.patterns.regex_safety import Class, characters
from exporter.core.patterns.syntax import inside, parse, sre
from tests.support.matches import NOW, Tail, catalogue_of

WINDOW = 30.0
CATALOGUE = catalogue_of(r"""
signatures:
  - {id: fell_off, sources: [job, kernel], patterns: ['Xid \((?P<gpu>PCI:[\w:]+)\): 79, pid=(?P<pid>\d+)']}
  - {id: page_fault, sources: [job, kernel], patterns: ['Xid \((?P<gpu>PCI:[\w:]+)\): 31, ']}
  - {id: aborted, patterns: ['(?:rank (?P<rank>\d+): )?Queue 0x[0-9a-f]+ aborting'], unless: ['code 7']}
  - {id: aborted_so, lines: 2, patterns: ['Queue 0x[0-9a-f]+ aborting\n  because']}
  - {id: fault, sources: [job, kernel], patterns: ['fault at 0x[0-9a-f]+_[0-9a-f]+ of (?P<gpu>\S+)', 'fault at 0xbad']}
  - {id: channel, vendor: amd, layer: kernel, sources: [job, kernel], patterns: ['channel [0-9a-f]{6,8}\b', 'channel 1\d+ of']}
  - {id: channel_so, sources: [job, kernel], lines: 3, patterns: ['channel \w+ of\n.*\n.* faulted']}
  - {id: dropped, patterns: ['dropped 0x[0-9a-f]+ ']}
echoes:
  - {id: quoted, patterns: ['^\+ echo ']}
""")
# What stands in front of a line, and what lines say. Their digits are exchanged for others.
JOB_PREFIXES = ["", "[rank3]: ", "2026-11-21 01:02:03 ", "[rank3]: 2026-11-21 01:02:03.456 ", "12: ", "[1,2]<stdout>:",
                "2026-11-21T01:02:03+01:00 ", "trainer-1 | 2026-11-21 01:02:03Z ", "\x1b[31m", "x1000c0s1b0n0 4: "]  # fmt: skip
KERNEL_PREFIXES = ["[  123.456789] ", "[12345.678901] ", "<6>[  123.456789] ", "Nov 21 01:02:03 node7 kernel: ",
                   "2026-11-21T01:02:03 node7 kernel: [ 12.345678] ", "Nov 21 01:02:03 node7 me[12]: ", "<14>", ""]  # fmt: skip
RECORD_PREFIXES = ["6,1042,123456789,-;", "3,1042,123456789,-,d=+pci:0000:c1:00.0;", "6,1042,123456789,-,d=n2;", "6,1042,,-;",
                   "14,1042,123456789,-;", "6,1042,123456789,-;\\x09", "6,1042,123456789,c,caller=T12;", "6,"]  # fmt: skip
TEXTS = ["NVRM: Xid (PCI:0000:3b:00): 79, pid=1234", "NVRM: Xid (PCI:0000:3b:00): 31, pid=12", "Queue 0x7f23 aborting",
         "rank 3: Queue 0x7f23 aborting with code 12", "Queue 0x7f23 aborting, code 7", "+ echo Queue 0x7f23 aborting",
         "loss 0.1234", "  because", "fault at 0x7f3a_12ab of 0xbad", "fault at 0xbad", "dropped 0x7f ",
         "channel 00ab12", "channel 12bad7f0 of", "channel 12345678 of", "the GPU 12ab34 faulted",
         "Xid (PCI:0000:3b:00): 79, pid=12, channel 00ab12",
         "Queue 0x7f23 aborting\r 12 %"]  # fmt: skip
LINES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, len(TEXTS) - 1),
        st.sampled_from([1, 2, 6 * MAX_KEPT_MATCHES]),
        st.sampled_from([0.0, 0.01, 0.05, 0.3]),
    ),
    min_size=1,
    max_size=8,
)


Kind = Literal["job", "kernel", "records", "container"]


FORMATS: dict[Kind, LogFormat] = {"container": "cri", "records": "kmsg"}


class Read(NamedTuple):
    """What came of a log."""

    matches: list[Match]
    echoes: int


@patch.object(verdict_cache, "ANALYSE_AFTER", 2)
@settings(max_examples=100)  # each is a log of some hundred lines, read twice
@given(
    LINES,
    st.sampled_from(get_args(Kind)),
    st.lists(st.integers(1, 4000), max_size=3),
    st.randoms(use_true_random=False),
)
def test_a_flood_shows_the_same_whether_it_is_folded_by_shape_or_not(
    lines: list[tuple[int, int, int, float]],
    kind: Kind,
    cuts: list[int],
    dice: random.Random,
) -> None:
    _compare("".join(_flood(kind, *line, dice) for line in lines).encode(), kind, cuts)


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234"


@patch.object(verdict_cache, "ANALYSE_AFTER", 2)
@pytest.mark.parametrize(
    ("kind", "often", "other"),
    [
        ("job", f"[rank3]: {XID}", f"[rank4]: {XID}"),
        ("job", f"2026-11-21 01:02:03 {XID}", f"2026-11-21 01:02:09 {XID}"),
        ("job", f"2026-11-21 01:02:03 {XID}", f"2026-11-31 01:02:03 {XID}"),  # no day of any month
        ("job", f"[rank3]: {XID}", f"[rank3]: {XID.replace('79', '31')}"),
        ("job", f"[rank3]: {XID}", f"[rank3]: {XID.replace('79', '38')}"),
        ("kernel", f"[  123.456789] {XID}", f"[  199.456789] {XID}"),
        ("kernel", f"[  123.456789] {XID}", f"[  123.456789] {XID.replace('3b', '4b')}"),
        ("kernel", f"<6>{XID}", f"<9>{XID}"),  # of a facility that is not the kernel's
        ("records", f"6,1042,123456789,-;{XID}", f"6,1043,199456789,-;{XID}"),
        ("records", f"6,1042,123456789,-;{XID}", f"9,1043,123456789,-;{XID}"),
        (
            "records",
            "6,1042,123456789,-,d=+pci:0000:3b:00.0;channel 00ab12",
            "6,1043,123456789,-,d=+pci:0000:4b:00.0;channel 00ab12",
        ),
        (
            "container",
            f"2026-11-21T01:02:03.000000001Z stderr F {XID}",
            f"2026-11-21T01:02:04.500000001Z stderr F {XID}",
        ),
        (
            "container",
            f"2026-11-21T01:02:03.000000001Z stderr F {XID}",
            f"2026-11-21T01:02:03.000000001Z stderr P {XID}",
        ),
    ],
)
def test_a_line_that_differs_in_digits_that_matter_is_told_apart(kind: Kind, often: str, other: str) -> None:
    lines = [often, *[often] * 3 * MAX_KEPT_MATCHES, other, often, other, other, often]
    _compare("\n".join([*lines, ""]).encode(), kind, [])


@pytest.mark.parametrize(
    "pattern", sorted({*prefixes.PATTERNS["job"], *prefixes.PATTERNS["kernel"], formats.CRI.pattern})
)
def test_no_prefix_tells_digits_apart(pattern: str) -> None:
    """Otherwise two lines of one shape could have their timestamps at different offsets."""
    digits = frozenset("0123456789")
    for accepted in _characters(list(parse(pattern))):
        assert digits <= accepted or not digits & accepted


def _characters(nodes: list[Any]) -> Iterator[Class]:
    """What each node of a pattern takes that takes one character."""
    for op, arg in nodes:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            yield characters(op, arg, 0)
        for sequence in [arg[1]] if op in (sre.ASSERT, sre.ASSERT_NOT) else inside(op, arg):
            yield from _characters(list(sequence))


def _compare(log: bytes, kind: Kind, cuts: list[int]) -> None:
    folded = _read(log, kind, cuts)
    with patch.object(FloodFastPath, "takes", lambda _folding, _candidate: False):
        whole = _read(log, kind, cuts)
    assert folded.echoes == whole.echoes
    assert sum(match.lines for match in folded.matches) == sum(match.lines for match in whole.matches)
    assert condense(folded.matches, WINDOW) == condense(whole.matches, WINDOW)


OF_JOBS, OF_KERNELS = "[rank{rank}]: 2026-11-21 01:02:0{second} ", "<6>[  12{second}.456789] "
RECORD, OF_DRIVER = "6,{n},12{second}456789,-;", "6,{n},12{second}456789,-,d=+pci:0000:3b:00.0;"


@pytest.mark.parametrize(
    ("kind", "line", "signatures"),
    [
        ("job", OF_JOBS + "NVRM: Xid (PCI:0000:3b:00): 79, pid={n}", 1),
        ("job", OF_JOBS + "Xid ({n}): none", 0),
        ("job", OF_JOBS + "Xid (PCI:0000:3b:00): 79, pid={n}, channel 7f{address:06x}", 2),
        ("job", OF_JOBS + "dropped 0x7f{address:06x} of 0x{address:04x} at {n}", 1),
        ("job", OF_JOBS + "channel {address:05x}7f", 1),
        ("job", OF_JOBS + "Queue 0x{n:x} aborting", 1),
        ("kernel", OF_KERNELS + "channel {address:05x}7f", 1),
        ("kernel", OF_KERNELS + "fault at 0x7f_{address:04x} of 0000:3b:00", 1),
        ("records", OF_DRIVER + "channel {address:05x}7f", 1),
        ("records", RECORD + "fault at 0x7f_{address:04x} of 0000:3b:00", 1),
    ],
)
def test_few_lines_of_a_flood_are_evaluated(kind: Kind, line: str, signatures: int) -> None:
    evaluated, dice = [], random.Random(1)
    match_whole = ChunkMatcher._match_whole

    def counted(work: ChunkMatcher, candidate: Candidate, *, may_wait: bool) -> bool:
        evaluated.append(candidate)
        return match_whole(work, candidate, may_wait=may_wait)

    fields = ({"n": n, "address": dice.randrange(1 << 16), "rank": n % 8, "second": n // 300} for n in range(3000))
    log = "".join(f"{line.format(**values)}\n" for values in fields).encode()
    with patch.object(ChunkMatcher, "_match_whole", counted):
        matches = _read(log, kind, []).matches
    assert sum(match.lines for match in matches) == 3000 * signatures
    assert len(evaluated) < 500  # most of them to find the sensitive runs
    _compare(log, kind, [])


def _flood(kind: Kind, prefix: int, text: int, often: int, exchanged: float, dice: random.Random) -> str:
    """Lines in which only digits differ, and those of addresses. `exchanged`: how many of them, as a share."""
    prefixes = {"kernel": KERNEL_PREFIXES, "records": RECORD_PREFIXES}.get(kind, JOB_PREFIXES)
    line = prefixes[prefix % len(prefixes)] + TEXTS[text]
    if kind == "container":
        line = f"2026-11-21T01:02:03.{dice.randrange(10):09}Z stderr {dice.choice('FFFP')} {line}"

    lengths = dice.random() < 0.5

    def number(found: re.Match[str]) -> str:
        digits = "".join(dice.choice("0123456789") if dice.random() < exchanged else c for c in found[0])
        return digits * dice.randint(1, 3) if lengths and dice.random() < exchanged else digits

    def other() -> str:
        digits = re.sub("[0-9]+", number, line)
        return re.sub(r"(?<=0x)[0-9a-f]+|(?<=l |U )\w+", lambda found: _address(found[0], exchanged, dice), digits)

    return "".join(other() + "\n" for _ in range(often))


def _address(address: str, exchanged: float, dice: random.Random) -> str:
    return "".join(dice.choice("0123456789abcdef") if dice.random() < exchanged else c for c in address)


def _read(log: bytes, kind: Kind, cuts: list[int]) -> Read:
    source: SourceKind = "kernel" if kind in ("kernel", "records") else "job"
    form: LogFormat = FORMATS.get(kind, "plain")
    pipeline = Pipeline(CATALOGUE, engine="python", window=WINDOW)
    tail, echoes = Tail(pipeline, source=source, format=form, boot_time=NOW - 1000.0), 0
    for size in cuts:
        echoes += tail.offer(log[:size]).echoes
        log = log[size:]
    echoes += tail.offer(log, "final").echoes
    return Read(tail.matches, echoes)
