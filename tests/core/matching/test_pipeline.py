"""Chunks to matches: each line counted once, where it stands, however it arrives."""

from __future__ import annotations

import itertools
import json

import pytest

from exporter.core.decoding.lines import MAX_BETWEEN
from exporter.core.decoding.timestamps import MAX_LINES_BACK
from exporter.core.matching.chunk_matcher import MAX_MARKS
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Chunk, LogFormat, Match
from tests.support.matches import NOW, Tail, catalogue_of, chunk

CATALOGUE = catalogue_of(r"""
signatures:
  - {id: gpu_fault, sources: [job, kernel], patterns: ['GPU fault(?: at (?P<address>0x\w+))?(?:.*rank=(?P<rank>\d+))?']}
  - {id: anyones, sources: [kernel], trust: anyone, patterns: ['anyone may say so']}
  - {id: cpp_throw, sources: [job, kernel], lines: 2, patterns: ['terminate called\n +what\(\): (?P<what>.*)']}
  - {id: numbered, lines: 2, patterns: ['thrown number \d']}
  - {id: any_throw, lines: 2, yields_to: [gpu_fault], patterns: ['GPU fault.*\n +thrown']}
  - {id: cache_warning, role: context, patterns: ['cache not writable: (?P<folder>\S+)']}
log_facts:
  - {id: torch_version, patterns: ['torch version (?P<version>\S+)'], set: {torch_version: '{version}'}}
echoes: [{id: shell_trace, patterns: ['^\+ ']}]
crash_shapes: [{id: some_error, patterns: ['^Fatal error:']}]
""")


@pytest.fixture(params=["hyperscan", "python"])
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return Pipeline(CATALOGUE, engine=request.param, line_bytes=40_000)


def only(matches: list[Match] | tuple[Match, ...]) -> Match:
    (match,) = matches
    return match


# Where


def test_a_match_says_in_which_line_it_is_and_where_that_begins(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"fine\nGPU fault at 0x1\nfine\n\n")
    log.offer(b"fine\nGPU fault at 0x2\n")
    assert log.places == [("gpu_fault", 2, 5), ("gpu_fault", 6, 33)]
    assert [m.captures for m in log.matches] == [{"address": "0x1"}, {"address": "0x2"}]


def test_a_match_carries_what_the_chunk_tells_of_its_log(pipeline: Pipeline) -> None:
    match = only(pipeline.process(chunk(b"3: GPU fault\n", origin="o", path="/p", read_at=NOW)).matches)
    assert (match.origin, match.path, match.source, match.read_at, match.text, match.rank) == (
        "o", "/p", "job", NOW, "GPU fault", "3",
    )  # fmt: skip


def test_a_rank_may_stand_in_the_line_itself(pipeline: Pipeline) -> None:
    assert only(pipeline.process(chunk(b"GPU fault rank=5\n")).matches).rank == "5"


def test_a_redrawn_line_counts_where_each_of_its_parts_begins(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"fine\n 10%\rGPU fault\r 20%\rGPU fault\r\nGPU fault\r\n")
    assert log.places == [("gpu_fault", 2, 10), ("gpu_fault", 2, 25), ("gpu_fault", 3, 36)]


def test_a_line_that_shows_a_signature_twice_counts_once(pipeline: Pipeline) -> None:
    assert len(pipeline.process(chunk(b"GPU fault, GPU fault\n")).matches) == 1


def test_a_line_longer_than_a_regex_may_see_is_looked_at_around_its_hits(pipeline: Pipeline) -> None:
    line = b"x" * 25_000 + b"GPU fault at 0x1" + b" x" * 4_500
    log = Tail(pipeline)
    log.offer(b"fine\n" + line + b"\n")
    assert log.places == [("gpu_fault", 2, 5)]
    assert log.matches[0].captures == {"address": "0x1"}
    assert len(log.matches[0].text) <= 2048


def test_a_long_line_with_hits_in_several_windows_counts_once(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer((b"GPU fault" + b"x" * 20_000) + b"GPU fault\n")
    assert log.places == [("gpu_fault", 1, 0)]


# Lines longer than a chunk


def test_a_line_that_never_ends_is_looked_at_in_windows_and_never_held_back(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"fine\n")
    for _ in range(20):
        done = log.offer(b"x" * 30_000)
        assert len(log.waiting) < 40_000
    assert done.oversize == 1
    log.offer(b"GPU fault\nGPU fault\n")
    assert log.places == [("gpu_fault", 2, 5), ("gpu_fault", 3, 600_015)]


@pytest.mark.parametrize("before_the_cut", range(0, 30, 3))
def test_a_match_where_two_windows_of_a_line_overlap_counts_once(pipeline: Pipeline, before_the_cut: int) -> None:
    log = Tail(pipeline)
    line = b"x" * (40_000 - before_the_cut) + b"GPU fault" + b"y" * 60_000
    for start in range(0, len(line), 40_000):
        log.offer(line[start : start + 40_000])
        log.offer(end="quiet")
    log.offer(b"\nGPU fault\n", end="final")
    assert log.places == [("gpu_fault", 1, 0), ("gpu_fault", 2, len(line) + 1)]


def test_a_part_of_an_endless_line_counts_where_it_begins(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b" 10%\r" * 7_000 + b"GPU fau")
    log.offer(b"lt" + b"\r 20%" * 8_000)
    log.offer(b"\rGPU fault\n")
    assert log.places == [("gpu_fault", 1, 35_000), ("gpu_fault", 1, 75_010)]


def test_what_an_endless_line_has_shown_is_not_kept_for_ever(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    for _ in range(10):
        log.offer(b"%-99s\r" % b"GPU fault" * 400)
    assert len(log.matches) == 4_000
    assert len(pipeline.unsaved()["log"] or "") < 2_000


def test_waiting_lines_are_no_oversize_lines(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    assert [log.offer(b"x" * 39_999).oversize, log.offer(end="quiet").oversize] == [0, 0]
    assert [log.offer(b"x").oversize, log.offer(b"x" * 40_000, end="final").oversize] == [1, 1]


# Lines that are not complete yet


def test_the_last_line_waits_for_its_end(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    assert log.offer(b"fine\nGPU fault").consumed == 5
    assert log.places == []
    log.offer(b" at 0x1\n")
    assert log.places == [("gpu_fault", 2, 5)]


def test_an_unfinished_line_is_looked_at_when_it_is_quiet_and_counts_once(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"fine\n")
    assert log.offer(b"GPU fault", end="quiet").consumed == 0
    assert log.places == [("gpu_fault", 2, 5)]
    log.offer(end="quiet")
    log.offer(b" at 0x1", end="quiet")
    log.offer(b"\nGPU fault at 0x2\n")
    assert log.places == [("gpu_fault", 2, 5), ("gpu_fault", 3, 22)]


def test_what_grows_behind_an_unfinished_line_is_found(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b" 10%", end="quiet")
    log.offer(b"\r 20% GPU fa", end="quiet")
    log.offer(b"ult", end="quiet")
    log.offer(b"\r 30% GPU fault\n")
    assert log.places == [("gpu_fault", 1, 5), ("gpu_fault", 1, 20)]


def test_the_last_line_of_a_finished_log_needs_no_newline(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    done = log.offer(b"GPU fault", end="final")
    assert (log.places, done.consumed, done.newlines) == ([("gpu_fault", 1, 0)], 9, 0)


def test_echoes_and_unknown_crashes_count_once_however_often_they_are_looked_at(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    offers = [
        (b"Fatal error: 7\n+ echo GPU fault", "quiet"),
        (b"", "quiet"),
        (b" x", "quiet"),
        (b"\nFatal error: 8", "quiet"),
        (b"\n", "more"),
    ]
    done = [log.offer(data, end) for data, end in offers]
    assert [d.unmatched for d in done] == [1, 0, 0, 1, 0]
    assert [d.echoes for d in done] == [1, 0, 0, 0, 0]
    assert log.matches == []


def test_a_known_crash_is_no_unknown_one(pipeline: Pipeline) -> None:
    assert pipeline.process(chunk(b"Fatal error: GPU fault\n")).unmatched == 0


# Patterns of several lines

THROW = b"terminate called\n  what():  bad\n"


def test_a_pattern_of_two_lines_waits_for_the_second(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    assert log.offer(b"fine\nterminate called\n").consumed == 5
    assert log.offer(b"  what(): ").consumed == 0
    log.offer(b" bad\nGPU fault\n")
    assert log.places == [("cpp_throw", 2, 5), ("gpu_fault", 4, 37)]
    assert log.matches[0].captures == {"what": " bad"}


def test_a_block_has_its_carriers_prefixes_taken_off_each_line(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"3: terminate called\r\n3:   what():  bad\r\n")
    assert (log.places, log.matches[0].captures) == ([("cpp_throw", 1, 0)], {"what": " bad"})


def test_a_block_counts_for_the_line_that_it_begins_in(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"thrown number x\nthrown number 7\n", end="final")
    assert log.places == [("numbered", 2, 16)]


@pytest.mark.parametrize("end", ["quiet", "final"])
def test_a_block_whose_rest_does_not_come_is_taken_as_it_is(pipeline: Pipeline, end: str) -> None:
    log = Tail(pipeline)
    log.offer(b"terminate called GPU fault\n")
    assert log.offer(end=end).consumed == 27
    assert log.places == [("gpu_fault", 1, 0)]


def test_a_line_does_not_wait_for_what_would_yield_to_it(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    assert log.offer(b"GPU fault\n").consumed == 10
    log.offer(b" thrown\n")
    assert log.places == [("gpu_fault", 1, 0)]


def test_lines_behind_a_waiting_one_wait_with_it(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"GPU fault\nterminate called\nGPU fault")
    assert log.places == [("gpu_fault", 1, 0)]
    log.offer(b"\n")
    assert log.places == [("gpu_fault", 1, 0), ("gpu_fault", 3, 27)]


def test_a_line_does_not_wait_for_one_that_is_longer_than_a_chunk(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"terminate called\n" + b"x" * 30_000)
    assert len(log.waiting) == 30_017
    log.offer(b"x" * 30_000)
    assert len(log.waiting) == 60_000
    log.offer()
    assert len(log.waiting) < 40_000


# Carriers that split lines


def cri(stream: str, part: str, text: str) -> bytes:
    return f"2023-11-12T23:41:00.5Z {stream} {part} {text}\n".encode()


def docker(stream: str, text: str) -> bytes:
    return json.dumps({"log": text, "stream": stream, "time": "2023-11-12T23:41:00.5Z"}).encode() + b"\n"


def test_a_line_that_a_container_runtime_split_counts_once_where_it_begins(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    parts = [cri("stderr", "P", "GPU fau"), cri("stderr", "P", "lt at "), cri("stderr", "F", "0x1 GPU fault")]
    log.offer(cri("stderr", "F", "fine"))
    assert [log.offer(part).consumed for part in parts[:2]] == [0, 0]
    log.offer(parts[2] + cri("stderr", "F", "GPU fault at 0x2"))
    assert [(m.line, m.captures) for m in log.matches] == [(2, {"address": "0x1"}), (5, {"address": "0x2"})]


def test_docker_splits_lines_too(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="docker")
    log.offer(docker("stdout", "x" * 16_300 + "GPU fault at"))
    assert log.matches == []
    log.offer(docker("stdout", " 0x1, GPU fault\n") + docker("stdout", '"GPU fault" <at> 0x2\r\n'))
    assert [(m.line, m.captures) for m in log.matches] == [(1, {"address": "0x1"}), (3, {})]


def test_the_streams_of_a_container_are_joined_apart(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    log.offer(
        cri("stderr", "P", "GPU fau")
        + cri("stdout", "P", "GPU ")
        + cri("stderr", "F", "lt at 0x1")
        + cri("stdout", "F", "fault")
    )
    assert [(m.line, m.captures) for m in log.matches] == [(1, {"address": "0x1"}), (2, {})]


def test_a_progress_bar_that_never_ends_its_line_holds_nothing_back(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    log.offer(cri("stderr", "P", " 10%"))
    for number in range(MAX_BETWEEN + 1):
        log.offer(cri("stdout", "F", f"GPU fault at 0x{number}"))
    assert [m.line for m in log.matches] == list(range(2, MAX_BETWEEN + 3))
    log.offer(cri("stderr", "F", " GPU fault"))
    assert log.matches[-1].line == MAX_BETWEEN + 3


def test_a_split_line_whose_end_does_not_come_is_taken_as_it_is(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    log.offer(cri("stderr", "P", "GPU fault at 0x1"))
    assert log.matches == []
    log.offer(end="quiet")
    assert [m.captures for m in log.matches] == [{"address": "0x1"}]
    assert log.waiting == b""


def test_a_container_that_only_ever_writes_halves_of_lines_is_read_on(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    for _ in range(40):
        log.offer(cri("stderr", "P", "x" * 16_000))
        log.offer()
        assert len(log.waiting) < 80_000


def test_a_long_joined_line_is_looked_at_around_its_hits(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    parts = [cri("stderr", "P", "x" * 9_000) for _ in range(3)]
    log.offer(b"".join([*parts, cri("stderr", "P", "GPU fau"), cri("stderr", "F", "lt at 0x1" + " x" * 5_000)]))
    assert [(m.line, m.captures) for m in log.matches] == [(1, {"address": "0x1"})]
    assert len(log.matches[0].text) <= 2048


def test_a_block_behind_a_split_line_begins_behind_its_last_part(pipeline: Pipeline) -> None:
    log = Tail(pipeline, format="cri")
    log.offer(cri("stderr", "P", "terminate ") + cri("stderr", "F", "called") + cri("stderr", "F", "  what(): bad"))
    assert [(m.signature, m.line) for m in log.matches] == [("cpp_throw", 1)]


# Time


def test_a_line_without_a_stamp_has_that_of_the_line_before(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"2023-11-12T23:41:00Z step 7\nTraceback\n  in f\nGPU fault\n")
    match = only(log.matches)
    assert (match.time, match.time_source) == (1699832460.0, "inherited")


def test_the_line_before_may_have_come_in_an_earlier_chunk(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    for line in (b"2023-11-12T23:41:00Z step 7\n", b"Trace", b"back\n", b"", b"GPU fault\n"):
        log.offer(line)
    assert only(log.matches).time == 1699832460.0


@pytest.mark.parametrize(("stamp", "behind"), [("2038-01-19T03:14:07Z", b""), ("2038-01-19T03:14:07Z", b"in f\n")])
def test_a_time_in_the_future_is_a_claim_and_the_line_has_that_of_its_reading(
    pipeline: Pipeline, stamp: str, behind: bytes
) -> None:
    log = Tail(pipeline)
    log.offer(f"{stamp} GPU fault\n".encode() + behind + b"GPU fault\n")
    first, second = log.matches
    assert [(m.happened, m.time_source) for m in (first, second)] == [(NOW, "observed")] * 2
    assert (first.claimed_time, second.claimed_time) == (2147483647.0, None)


def test_clocks_that_differ_by_less_than_an_hour_are_believed(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"2023-11-14T23:13:00Z GPU fault\n")
    match = only(log.matches)
    assert (match.happened, match.time_source, match.claimed_time) == (NOW + 3580, "log", None)


def test_a_line_without_a_stamp_stands_on_the_kernels_own_clock_like_the_line_before(pipeline: Pipeline) -> None:
    log = b"[ 8812.500000] xe 0000:03:00.0: [drm] GT0: \n\tGPU fault\n[ 8812.600000] GPU fault\n"
    matches = pipeline.process(chunk(log, source="kernel")).matches
    assert [(m.time, m.time_source) for m in matches] == [(8812.5, "observed"), (8812.6, "observed")]


def test_a_redrawn_part_has_the_stamp_of_its_line(pipeline: Pipeline) -> None:
    assert only(pipeline.process(chunk(b"2023-11-12T23:41:00Z  10%\rGPU fault\n")).matches).time == 1699832460.0


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("between", "source"), [(MAX_LINES_BACK - 1, "inherited"), (MAX_LINES_BACK, "observed")])
def test_a_stamp_holds_for_a_few_lines_only(pipeline: Pipeline, between: int, source: str, chunked: bool) -> None:
    lines = [b"2023-11-12T23:41:00Z step 7\n", *[b"x\n"] * between, b"GPU fault\n"]
    log = Tail(pipeline)
    for data in lines if chunked else [b"".join(lines)]:
        log.offer(data)
    match = only(log.matches)
    assert match.time_source == source
    assert match.happened == (1699832460.0 if source == "inherited" else NOW)


def test_a_stamp_holds_as_far_where_lines_between_showed_something_too(pipeline: Pipeline) -> None:
    lines = [b"2023-11-12T23:41:00Z step 7\n", *[b"GPU fault\n"] * (MAX_LINES_BACK + 2)]
    matches = pipeline.process(chunk(b"".join(lines))).matches
    assert [m.time_source for m in matches] == ["inherited"] * MAX_LINES_BACK + ["observed"] * 2


def test_a_line_without_any_time_happened_when_its_file_was_last_written_at_the_latest(pipeline: Pipeline) -> None:
    match = only(pipeline.process(chunk(b"GPU fault\n", written_at=NOW - 86400)).matches)
    assert (match.time, match.time_source, match.happened) == (NOW - 86400, "file", NOW - 86400)


def test_the_year_of_a_time_without_one_is_the_latest_in_which_the_file_was_written(pipeline: Pipeline) -> None:
    log = b"E1114 22:00:00.5 12 a.py:1] GPU fault\n"
    match = only(pipeline.process(chunk(log, written_at=NOW - 365 * 86400)).matches)
    assert match.time == NOW - 365 * 86400 - 800 + 0.5


def test_two_logs_do_not_lend_each_other_stamps(pipeline: Pipeline) -> None:
    Tail(pipeline, log="a").offer(b"2023-11-12T23:41:00Z step 7\n")
    other = Tail(pipeline, log="b")
    other.offer(b"GPU fault\n")
    assert only(other.matches).time_source == "observed"


# The kernel's logs


def kmsg(*records: str, **what: object) -> Chunk:
    return chunk(
        "".join(f"{r}\n" for r in records).encode(),
        **{"source": "kernel", "format": "kmsg", "path": "/dev/kmsg", **what},
    )


def test_a_kernel_record_has_its_line_and_the_kernels_number(pipeline: Pipeline) -> None:
    match = only(pipeline.process(kmsg("3,41,1500000,-;fine", "3,42,2500000,-;GPU fault", boot_time=NOW)).matches)
    assert (match.line, match.offset, match.seq) == (2, len("3,41,1500000,-;fine\n"), 42)
    assert (match.boot_seconds, match.time, match.time_source) == (2.5, NOW + 2.5, "log")


def test_a_kernel_record_in_no_file_has_no_line(pipeline: Pipeline) -> None:
    ring = kmsg("3,41,1500000,-;fine", "3,42,2500000,-;GPU fault", numbers=(0, 0))
    match = only(pipeline.process(ring).matches)
    assert (match.line, match.seq) == (0, 42)


def test_without_a_boot_time_the_kernels_clock_is_an_axis_of_its_own(pipeline: Pipeline) -> None:
    match = only(pipeline.process(kmsg("3,42,2500000,-;GPU fault")).matches)
    assert (match.time, match.time_source, match.happened) == (2.5, "observed", NOW)


@pytest.mark.parametrize("record", ["12,42,1,-;GPU fault", "GPU fault", "3,42,x,-;GPU fault"])
def test_what_a_user_wrote_into_the_kernel_log_counts_as_an_echo(pipeline: Pipeline, record: str) -> None:
    done = pipeline.process(kmsg(record))
    assert (done.matches, done.echoes) == ((), 1)


@pytest.mark.parametrize("name", ["GPU fault", "GPU fault\\x0a", "\\x0aGPU fault"])
def test_a_name_that_a_user_chose_in_the_kernels_own_words_counts_as_an_echo(pipeline: Pipeline, name: str) -> None:
    done = pipeline.process(kmsg(f"6,42,1,-;a.out[42]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in {name}"))
    assert (done.matches, done.echoes) == ((), 1)


def test_what_anyone_may_say_counts_whoever_says_it(pipeline: Pipeline) -> None:
    done = pipeline.process(kmsg("12,42,1,-;anyone may say so, GPU fault"))
    assert [m.signature for m in done.matches] == ["anyones"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"Nov 20 23:41:00 gpu-7 kernel: GPU fault\n", ["gpu_fault"]),
        (b"[   12.345678] GPU fault\n", ["gpu_fault"]),
        (b"GPU fault\n", ["gpu_fault"]),
        (b"Nov 20 23:41:00 gpu-7 mallory: GPU fault\n", []),
        (b"2023-11-12T23:41:00.5+01:00 gpu-7 mallory[7]: GPU fault\n", []),
        (b"<13>[   12.345678] GPU fault\n", []),
    ],
)
def test_a_kernel_log_in_text_form_is_believed_where_no_other_tag_stands(
    pipeline: Pipeline, line: bytes, shown: list[str]
) -> None:
    assert [m.signature for m in pipeline.process(chunk(line, source="kernel")).matches] == shown


def test_a_user_cannot_complete_what_the_kernel_began(pipeline: Pipeline) -> None:
    begun = "3,1,1,-;terminate called"
    assert pipeline.process(kmsg(begun, "12,2,2,-;  what(): forged")).matches == ()
    assert only(pipeline.process(kmsg(begun, "3,2,2,-;  what(): real")).matches).captures == {"what": "real"}


def test_a_job_log_does_not_show_what_only_the_kernel_may(pipeline: Pipeline) -> None:
    assert pipeline.process(chunk(b"anyone may say so\n")).matches == ()


# What a log tells about its job


def test_a_match_holds_what_its_log_had_told_by_then(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"GPU fault\ntorch version 2.5.1\nGPU fault\n")
    log.offer(b"cache not writable: /home/x\ntorch version 2.6.0\nGPU fault\n")
    first, second, warning, third = log.matches
    assert [m.context.facts for m in (first, second, third)] == [
        {},
        {"torch_version": "2.5.1"},
        {"torch_version": "2.6.0"},
    ]
    assert (first.context.marks, second.context.marks) == ({}, {})
    (mark,) = third.context.marks.values()
    assert (warning.signature, mark.line, mark.text, mark.captures) == (
        "cache_warning", 4, "cache not writable: /home/x", {"folder": "/home/x"},
    )  # fmt: skip
    assert pipeline.context_of("log").facts == {"torch_version": "2.6.0"}


def test_a_newer_mark_replaces_an_older_one(pipeline: Pipeline) -> None:
    pipeline.process(chunk(b"cache not writable: /a\ncache not writable: /b\n"))
    assert pipeline.context_of("log").marks["cache_warning"].captures == {"folder": "/b"}


def test_a_log_keeps_a_bounded_number_of_marks_and_those_stay_fresh() -> None:
    signatures = "\n".join(
        f"  - {{id: note_{n}, role: context, patterns: ['note{n:04}: .*']}}" for n in range(MAX_MARKS + 5)
    )
    pipeline = Pipeline(catalogue_of(f"signatures:\n{signatures}"))
    pipeline.process(chunk(b"".join(b"note%04d: old\n" % n for n in range(MAX_MARKS + 5)) + b"note0000: new\n"))
    marks = pipeline.context_of("log").marks
    assert len(marks) == MAX_MARKS
    assert marks["note_0"].text == "note0000: new"


# State


def restarted(log: Tail) -> Tail:
    """The log as a new process finds it: read to the same place, with what was stored."""
    stored = {name: text for name, text in log.pipeline.unsaved().items() if text is not None}
    log.pipeline = Pipeline(CATALOGUE, engine="python", line_bytes=40_000)
    log.pipeline.restore(json.loads(json.dumps(stored)))
    return log


@pytest.mark.parametrize("format", ["plain", "cri"])
def test_a_restart_forgets_nothing_and_repeats_nothing(pipeline: Pipeline, format: LogFormat) -> None:  # noqa: A002
    before = b"2023-11-12T23:41:00.5Z stdout F "
    log = Tail(pipeline, format=format)
    log.offer(
        before + b"torch version 2.6.0\n" + before + b"cache not writable: /home/x\n" + before + b"GPU fault",
        end="quiet",
    )
    log = restarted(log)
    log.offer(b" at 0x1\n" + before + b"GPU fault at 0x2\n")
    assert [(m.signature, m.line) for m in log.matches] == [("cache_warning", 2), ("gpu_fault", 3), ("gpu_fault", 4)]
    assert log.matches[2].context == log.matches[1].context
    assert log.matches[2].context.facts == {"torch_version": "2.6.0"}


def test_a_restart_within_an_endless_line_counts_it_once(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"x" * 39_990 + b"GPU fault at 0x1")
    log = restarted(log)
    log.offer(b"\nGPU fault\n")
    assert log.places == [("gpu_fault", 1, 0), ("gpu_fault", 2, 40_007)]


def test_only_the_logs_that_changed_are_stored(pipeline: Pipeline) -> None:
    pipeline.process(chunk(b"torch version 2.6.0\n", log="a", end="more"))
    pipeline.process(chunk(b"fine\n", log="b", end="more"))
    assert list(pipeline.unsaved()) == ["a"]
    pipeline.saved()
    pipeline.process(chunk(b"fine\n", log="a", end="more"))
    assert pipeline.unsaved() == {}


def test_a_log_that_is_gone_is_forgotten(pipeline: Pipeline) -> None:
    pipeline.process(chunk(b"torch version 2.6.0\n", log="a", end="more"))
    pipeline.forget("a")
    pipeline.forget("never seen")
    assert pipeline.unsaved() == {"a": None}
    assert pipeline.context_of("a").facts == {}


def test_a_log_that_begins_anew_is_no_open_line_of_the_old_one(pipeline: Pipeline) -> None:
    log = Tail(pipeline, offset=1000)
    log.offer(b"GPU fault", end="quiet")
    again = Tail(pipeline, offset=0)
    again.offer(b"GPU fault\n")
    assert again.places == [("gpu_fault", 1, 0)]


@pytest.mark.parametrize("end", ["more", "final"])
def test_a_chunk_that_costs_much_is_done_with_in_parts_and_counts_the_same(end: str) -> None:
    """So that no log delays the kernel's, a commit or the watchdog: each look at the clock is 0.2 s later here."""
    text = b"".join(b"GPU fault at 0x%d\nan ordinary line\n" % number for number in range(20)) + b"GPU fault at 0x20"
    whole, parts = Tail(Pipeline(CATALOGUE)), Tail(Pipeline(CATALOGUE, clock=itertools.count(step=0.2).__next__))
    whole.offer(text, end=end)
    parts.offer(text, end=end)
    rounds = 1
    while len(parts.waiting) > len(whole.waiting):
        assert parts.offer(end=end).consumed > 0
        rounds += 1
    assert rounds > 5
    assert parts.places == whole.places


def test_only_jobs_wait() -> None:
    tail = Tail(Pipeline(CATALOGUE, clock=itertools.count(step=9.0).__next__), source="kernel")
    text = b"".join(b"<3>[ 1.%06d] GPU fault\n" % number for number in range(20))
    assert tail.offer(text).consumed == len(text)


def test_in_a_storm_one_match_of_each_chunk_stands_for_the_others() -> None:
    tail = Tail(Pipeline(CATALOGUE, window=60.0))
    counts = []
    for number in range(4):
        begun = len(tail.matches)
        tail.offer(b"GPU fault\n" * 6, read_at=NOW + number)
        counts.append([match.lines for match in tail.matches[begun:]])
    assert counts == [[1] * 6, [3, 1, 1, 1], [6], [6]]


@pytest.mark.parametrize("restored", [False, True])
def test_matches_behind_a_pause_or_a_restart_are_whole(*, restored: bool) -> None:
    """The incident of those before may be closed, or not be stored."""
    pipeline = Pipeline(CATALOGUE, window=60.0)
    tail, line = Tail(pipeline), b"2023-11-12T23:41:00Z GPU fault\n"
    tail.offer(line * 20, read_at=NOW)
    begun = len(tail.matches)
    if restored:
        pipeline.restore({"log": pipeline.unsaved()["log"] or ""})
    tail.offer(line * 2, read_at=NOW if restored else NOW + 61)
    assert [match.lines for match in tail.matches[begun:]] == [1, 1]
