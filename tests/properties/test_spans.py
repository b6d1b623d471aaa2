"""A large log that is cut and read in parts shows what it shows when it is read as one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core.decoding.lines import MAX_BETWEEN
from exporter.core.diagnosis.open_incidents import OpenIncidents
from exporter.core.matching.chunk_matcher import MAX_FACTS
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Incident, LogContext, LogFormat
from exporter.scan.plan import Task
from exporter.scan.spans import LINES_AFTER, LINES_BEFORE, WHOLE, LogSpan, cut_in, spans
from exporter.scan.stitch import stitched
from exporter.scan.work import WINDOW_SECONDS, Item, Scanned, scan_one
from tests.support.matches import NOW, catalogue_of

CATALOGUE = catalogue_of(r"""
signatures:
  - {id: gpu_fault, patterns: ['GPU fault(?: at (?P<address>0x\w+))?']}
  - {id: thrown, lines: 4, patterns: ['thrown(?:\n.*){0,2}\n what']}
  - {id: any_throw, lines: 2, yields_to: [gpu_fault], patterns: ['GPU fault.*\n +thrown']}
  - {id: no_cache, role: context, patterns: ['cache not writable: (?P<folder>\S+)']}
log_facts:
  - {id: torch_version, patterns: ['torch version (?P<version>\S+)'], set: {torch_version: '{version}'}}
  - {id: variable, patterns: ['variable (?P<name>\w+)=(?P<value>\w+)'], set: {'env.{name}': '{value}'}}
echoes: [{id: shell_trace, patterns: ['^\+ ']}]
crash_shapes: [{id: some_error, patterns: ['^Fatal error:']}]
""")
# Small, so that a log of some hundred lines has many cuts, blocks that end anywhere, and lines that are too long.
LENGTH, LOOK, BLOCK, LINE = 400, 8192, 700, 32768


class Reading(NamedTuple):
    """All that a scan takes from a log."""

    incidents: list[Incident]
    matched: int
    unmatched: int
    bytes: int
    newlines: int
    context: LogContext


def read(task: Task, parts: Sequence[LogSpan], engine: Pipeline) -> Reading:
    def one(item: Item) -> Scanned:
        return scan_one(item, engine, NOW, block_bytes=BLOCK)

    found = OpenIncidents(WINDOW_SECONDS)
    items = [Item(task, span) for span in parts]
    last = None
    matched = unmatched = size = newlines = 0
    for stitch in stitched(((item, one(item)) for item in items), one):
        last = stitch.scanned
        for incident in last.incidents:
            found.join(incident)
        matched += last.lines_matched
        unmatched += last.unmatched
        size += last.bytes
        newlines += last.newlines
    assert last is not None
    assert stitch.ended
    incidents = sorted((entry.incident for entry in found), key=lambda incident: incident.order)
    return Reading(incidents, matched, unmatched, size, newlines, last.context)


def same(log: bytes, form: LogFormat = "plain", length: int = LENGTH) -> int:
    """Hold that the log's parts show what the whole shows; how many parts there were."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(log)
        file.flush()
        task = Task(file.name, "job", form)
        parts = list(spans(task, length, LOOK))
        pipeline = Pipeline(CATALOGUE, engine="python", line_bytes=LINE, window=WINDOW_SECONDS)
        assert read(task, parts, pipeline) == read(task, [WHOLE], pipeline)
    assert [span.start for span in parts[1:]] == [span.stop for span in parts[:-1]]
    assert all(log[span.start - 1] == 0x0A for span in parts[1:])
    return len(parts)


TEXTS = [
    "", "step 17 loss 2.3", "GPU fault", "GPU fault at 0x1", "thrown", " thrown", " what", "x" * 60, "\r", "50 %\r51 %", "\x00",
    "torch version 2.1", "torch version 2.2", "cache not writable: /home", "cache not writable: /tmp", "Fatal error: y",
    "2025-11-20T23:41:00Z fine", "2025-11-20T23:59:00Z GPU fault", "+ echo GPU fault", "3: GPU fault", "variable A=1",
    "variable B=2", "variable A=3",
]  # fmt: skip
LINES = st.lists(st.sampled_from(TEXTS), max_size=16)
EXAMPLES = 60  # each is a log of up to a thousand lines, in dozens of parts
LONG = st.sampled_from([b"y" * 3000, b"GPU fault " * 300, b"z" * 18000 + b"GPU fault" + b"z" * 18000, b"x" * 34000])


@settings(max_examples=EXAMPLES)
@given(
    st.lists(LINES, min_size=1, max_size=8), st.lists(st.tuples(st.integers(0, 200), LONG), max_size=2), st.booleans()
)
def test_the_parts_of_a_log_show_what_the_whole_shows(
    blocks: list[list[str]], longs: list[tuple[int, bytes]], ends: bool
) -> None:
    lines = [line.encode() for block in blocks for line in block * 8]
    for place, long in longs:
        lines.insert(place, long)
    same(b"\n".join(lines) + b"\n" * ends)


MARKS = st.sampled_from(["F", "F", "F", "P"])


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), MARKS, st.sampled_from(TEXTS)), max_size=25))
def test_so_do_those_of_a_containers_log(lines: list[tuple[str, str, str]]) -> None:
    cri = [f"2025-11-20T23:41:00Z {stream} {mark} {text}" for stream, mark, text in lines * 8]
    same("".join(f"{line}\n" for line in cri).encode(), "cri")
    docker = [
        json.dumps({"log": text + "\n" * (mark == "F"), "stream": stream, "time": "2025-11-20T23:41:00Z"})
        for stream, mark, text in lines * 8
    ]
    same("".join(f"{line}\n" for line in docker).encode(), "docker")


def test_a_long_log_is_cut_about_where_it_is_wanted() -> None:
    assert same(b"step 17 loss 2.3\nGPU fault\n" * 400) >= 400 * 27 // LENGTH - 2


def test_a_signature_of_several_lines_is_found_across_a_cut() -> None:
    for before in range(40):
        log = b"fine\n" * (160 + before) + b"thrown\nx\ny\n what\n" + b"fine\n" * 100
        assert same(log) > 1


def test_an_incident_whose_window_spans_a_cut_is_one() -> None:
    log = b"".join(b"2025-11-20T23:41:%02dZ GPU fault at 0x%d\n" % (second % 60, second) for second in range(400))
    assert same(log) > 5


def test_what_a_log_told_of_its_job_holds_for_all_of_its_parts() -> None:
    told = b"torch version 2.1\ncache not writable: /home\n" + b"fine\n" * 300
    assert same(told + b"GPU fault\n" + b"fine\n" * 100 + b"torch version 2.2\n" + b"fine\n" * 100 + b"GPU fault\n") > 3


def test_a_part_that_tells_more_than_is_kept_is_read_again_knowing_what_was_told_before() -> None:
    variables = b"".join(b"variable V%d=a\n" % number for number in range(3 * MAX_FACTS))
    again = b"".join(b"variable V%d=b\nGPU fault\n" % number for number in range(3 * MAX_FACTS, 0, -1))
    assert same(variables + again, length=40 * MAX_FACTS) > 3


def test_what_is_read_before_a_part_for_its_times_tells_nothing_else() -> None:
    """Its first line may be the end of one that begins before it, and alone says something else."""
    line = "2025-11-20T23:41:00Z stdout {} {}\n".format
    for pairs in range(80, 110, 4):
        told = (line("P", "torch version 1,") + line("F", "torch version 9")) * pairs
        fault = line("F", "GPU fault")
        assert same((told + fault * 120).encode(), "cri") > 5


def test_no_cut_is_made_where_a_container_runtimes_line_goes_on() -> None:
    def line(mark: str, stream: str = "stdout") -> bytes:
        return f"2025-11-20T23:41:00Z {stream} {mark} x\n".encode()

    before, behind = line("F") * LINES_BEFORE, line("F") * (LINES_AFTER + 40)
    wanted = len(before)
    clean = cut_in(before + line("F") + behind, wanted, "cri", first=True)
    assert clean is not None
    assert clean.at == wanted
    goes_on = before + line("P") + line("F", "stderr") * (MAX_BETWEEN + 5) + behind
    cut = cut_in(goes_on, wanted + len(line("P")), "cri", first=True)
    assert cut is not None
    # Behind so many lines of the other stream a pipeline waits no longer for its end.
    assert goes_on[: cut.at].count(b"\n") == LINES_BEFORE + 1 + MAX_BETWEEN + 1


@pytest.mark.parametrize("window", [b"", b"x" * 5000, b"x\n" * (LINES_BEFORE + LINES_AFTER - 1), b"\n" * 10])
def test_no_cut_is_made_where_too_few_whole_lines_are_around_it(window: bytes) -> None:
    assert cut_in(window, 0, "plain", first=True) is None
