"""The crash that no signature names: told where a log ends in it, and nowhere else."""

from __future__ import annotations

import random

import pytest

from exporter.core.decoding.jobs import job_of
from exporter.core.matching.log_end import MAX_HANDLED, REACH_BYTES, SILENT_SECONDS, TAIL_BYTES
from exporter.core.matching.pipeline import LAST_LINES_SECONDS, Pipeline
from exporter.core.model import Match
from tests.support.matches import NOW, Tail, catalogue_of, chunk

CATALOGUE = catalogue_of(r"""
signatures:
  - {id: unrecognised_crash, role: confirmation, sources: [job, kernel]}
  - {id: python_traceback, role: context, patterns: ['^Traceback \(most recent call last\):']}
  - {id: gpu_fault, patterns: ['GPU fault']}
  - {id: task_exit, role: cascade, death: {kind: exit}, patterns: ['srun: error: .*task \d+: (?P<reason>.*)']}
  - {id: shell, role: cascade, death: {kind: signal}, patterns: ['line \d+: \d+ (?P<signal>Killed|Terminated|Aborted)']}
  - {id: scancel, role: cascade, death: {kind: scheduler}, patterns: ['JOB \d+ CANCELLED']}
  - {id: peer_lost, role: cascade, patterns: ['connection closed by a peer']}
crash_shapes:
  - {id: exception, kind: python, in_traceback: true, patterns: ['^(?P<type>[\w.]*Error): ']}
  - {id: died, kind: signal, ends_process: true, patterns: ['^(?:AError: )?(?P<type>Fatal Python error): ']}
  - {id: fatal, kind: runtime, patterns: ['^(?P<type>FATAL ERROR): ']}
  - {id: words, kind: runtime, needs_report: true, patterns: ['(?P<type>ERROR) ']}
  - {id: ended, reports_end: true, patterns: ['^Got exit code [1-9]']}
  - {id: well, reports_success: true, patterns: ['^all done$']}
  - {id: complaint, patterns: ['^a complaint: ']}
  - {id: driver, kind: driver, sources: [kernel], patterns: ['\*ERROR\* ']}
""")
ORDINARY = b"step 17: loss 0.25\n"
MUCH = ORDINARY * (REACH_BYTES // len(ORDINARY) + 1)
A_LITTLE = ORDINARY * (TAIL_BYTES // len(ORDINARY) // 2)
FRAME = b'  File "/home/ann/train.py", line 4, in <module>\n    main()\n'


def traceback(last: bytes = b"ShapeError: 3 is not 4") -> bytes:
    return b"Traceback (most recent call last):\n" + FRAME + last + b"\n"


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(CATALOGUE, engine="python", window=60.0)


def crashes(log: Tail) -> list[Match]:
    return [match for match in log.matches if match.signature == "unrecognised_crash"]


def of(pipeline: Pipeline, text: bytes, end: str = "final") -> list[Match]:
    log = Tail(pipeline)
    log.offer(text, end)
    return crashes(log)


def test_a_traceback_in_which_a_log_ends_is_a_crash(pipeline: Pipeline) -> None:
    (crash,) = of(pipeline, ORDINARY + traceback(b"pkg.ShapeError: /home/ann/7/x.bin has 17 rows") + A_LITTLE)
    assert (crash.line, crash.text) == (5, "pkg.ShapeError: /home/ann/7/x.bin has 17 rows")
    assert crash.captures == {
        "kind": "python",
        "type": "pkg.ShapeError",
        "template": "pkg.ShapeError: <path> has <n> rows",
    }


def test_the_root_is_the_first_exception_of_several(pipeline: Pipeline) -> None:
    during = b"\nDuring handling of the above exception, another exception occurred:\n\n"
    (crash,) = of(pipeline, traceback() + during + traceback(b"RuntimeError: no step") + traceback(b"OSError: again"))
    assert crash.text == "ShapeError: 3 is not 4"


@pytest.mark.parametrize(
    "text",
    [
        traceback() + MUCH,  # handled
        b"ShapeError: 3 is not 4\n" + MUCH,  # without its traceback it is a message
        traceback(b"GPU fault"),  # a signature names it
        b"GPU fault\n" + traceback(),
        traceback() + b"GPU fault\n",
        traceback() + MUCH + b"srun: error: n1: task 3: Exited with exit code 1\n",
        b"a complaint: it is late\n",  # only counted
        b"Got exit code 1\n",
        (traceback() + MUCH) * 3 + traceback(),  # what the log went on after before
        traceback() + A_LITTLE + b"all done\n",
        b"all done\n",
    ],
)
def test_anything_else_is_none(pipeline: Pipeline, text: bytes) -> None:
    assert of(pipeline, text) == []


@pytest.mark.parametrize("report", [b"srun: error: n1: task 3: Exited with exit code 1\n", b"Got exit code 1\n"])
def test_a_launchers_report_makes_a_crash_of_what_was_suspected_before_it(pipeline: Pipeline, report: bytes) -> None:
    assert [m.text for m in of(pipeline, traceback() + A_LITTLE + report + MUCH)] == ["ShapeError: 3 is not 4"]


@pytest.mark.parametrize(
    "text",
    [
        b"all done\n" + traceback(),
        traceback() + b"all done\nsrun: error: n1: task 3: Exited with exit code 1\n",  # another of its processes is
        traceback() + b"all done\n" + traceback(),
    ],
)
def test_a_success_before_a_crash_or_of_another_process_hides_no_crash(pipeline: Pipeline, text: bytes) -> None:
    assert [m.text for m in of(pipeline, text)] == ["ShapeError: 3 is not 4"]


WORDS = b"solver: ERROR ring 3 stalled\n"
DIED = b"srun: error: n1: task 3: Exited with exit code 13\n"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (WORDS + DIED, "solver: ERROR ring 3 stalled"),
        (WORDS + A_LITTLE + b"job.sh: line 6: 99 Aborted\n", "solver: ERROR ring 3 stalled"),
        (b"solver: ERROR ring 2 is slow\n" + WORDS + b"Got exit code 1\n", "solver: ERROR ring 3 stalled"),
        (b"ShapeError: 3 is not 4\n" + DIED, "ShapeError: 3 is not 4"),  # its traceback stands elsewhere
        (WORDS + b"connection closed by a peer\n" + DIED, "solver: ERROR ring 3 stalled"),
        (WORDS + traceback() + DIED, "ShapeError: 3 is not 4"),  # what says more
    ],
)
def test_the_last_words_of_a_process_that_a_launcher_reports_are_a_crash(
    pipeline: Pipeline, text: bytes, last: str
) -> None:
    log = Tail(pipeline)
    for byte in range(0, len(text), 40):
        log.offer(text[byte : byte + 40])
    log.offer(b"", "final")
    assert [m.text for m in crashes(log)] == [last] == [m.text for m in of(Pipeline(CATALOGUE), text)]


@pytest.mark.parametrize(
    "text",
    [
        WORDS,  # it may go on
        WORDS + MUCH + DIED,
        WORDS + b"all done\n" + DIED,
        WORDS + b"job.sh: line 6: 99 Killed\n",  # somebody else ended it
        WORDS + b"srun: error: n1: task 3: Terminated\n",
        WORDS + b"JOB 7 CANCELLED\n",
        WORDS + b"connection closed by a peer\n",
        WORDS + b"GPU fault\n" + DIED,
        b"GPU fault\n" + WORDS + DIED,
        DIED + WORDS + DIED,  # of another rank, which the end of the first one stopped
        WORDS + b"GPU fault\n" + DIED + traceback(),  # of a rank that the named crash took with it
    ],
)
def test_other_complaints_are_none(pipeline: Pipeline, text: bytes) -> None:
    assert of(pipeline, text) == []


def test_a_line_that_says_that_its_process_ended_needs_no_end_of_the_log(pipeline: Pipeline) -> None:
    (crash,) = of(pipeline, b"Fatal Python error: none_dealloc\n" + MUCH)
    assert (crash.captures["kind"], crash.captures["type"]) == ("signal", "Fatal Python error")


def test_of_several_shapes_of_a_line_that_counts_which_says_most(pipeline: Pipeline) -> None:
    (crash,) = of(pipeline, b"AError: Fatal Python error: gone\n" + MUCH)
    assert crash.captures["kind"] == "signal"


def test_what_the_kernel_reports_is_told_at_once(pipeline: Pipeline) -> None:
    log = Tail(pipeline, source="kernel")
    log.offer(b"[    5.123456] [drm] *ERROR* no more pages\n" + MUCH)
    assert [m.captures["kind"] for m in crashes(log)] == ["driver"]


def test_another_error_than_those_that_a_log_went_on_after_is_a_crash(pipeline: Pipeline) -> None:
    text = (traceback() + MUCH) * 2 + traceback(b"KeyError: 'x'")
    assert [m.text for m in of(pipeline, text)] == ["KeyError: 'x'"]


def test_behind_many_kinds_of_handled_errors_none_is_a_crash(pipeline: Pipeline) -> None:
    text = b"".join(traceback(b"E%dError: x" % n) + MUCH for n in range(MAX_HANDLED)) + traceback(b"NewError: x")
    assert of(pipeline, text) == []


def test_a_log_that_prints_handled_tracebacks_all_day_shows_no_crash(pipeline: Pipeline) -> None:
    log, rng = Tail(pipeline), random.Random(5)
    for number in range(500):
        log.offer(traceback(b"TimeoutError: try %d" % number) + ORDINARY * rng.randrange(5, 900), read_at=NOW + number)
        assert pipeline.silent(NOW + number + rng.randrange(60)) == []
    log.offer(b"", "final")
    assert crashes(log) == []


def test_a_silent_log_has_ended_and_its_crash_is_told_once(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(traceback() + A_LITTLE, read_at=NOW)
    assert pipeline.silent(NOW + SILENT_SECONDS - 1) == []
    assert [m.text for m in pipeline.silent(NOW + SILENT_SECONDS)] == ["ShapeError: 3 is not 4"]
    assert pipeline.silent(NOW + 2 * SILENT_SECONDS) == []
    log.offer(b"", "final", read_at=NOW + 3 * SILENT_SECONDS)
    assert crashes(log) == []


def pod_log(restart: int, container: str = "train") -> str:
    return f"/var/log/pods/ml_run-0_7f1c4c1e-1111-2222-3333-444455556666/{container}/{restart}.log"


@pytest.mark.parametrize(
    ("next_log", "is_over"),
    [
        (pod_log(1), True),
        (pod_log(7), True),
        (pod_log(0), False),
        (pod_log(1, "sidecar"), False),
        ("/home/ann" + pod_log(1), False),
        ("/x/slurm-7.out", False),
    ],
)
def test_a_container_that_is_started_again_has_ended_its_log(pipeline: Pipeline, next_log: str, is_over: bool) -> None:
    def read(path: str, text: bytes) -> None:
        pipeline.process(chunk(text, log=path, origin=path, path=path, end="more", job=job_of(path)))

    read(pod_log(0), traceback() + A_LITTLE)
    later = NOW + LAST_LINES_SECONDS
    assert pipeline.ended((), later) == []
    read(next_log, ORDINARY)
    assert pipeline.ended((), NOW) == []  # it may not be read to its end
    assert [m.text for m in pipeline.ended((), later)] == (["ShapeError: 3 is not 4"] if is_over else [])
    assert pipeline.ended((), later) == []


def test_a_restart_changes_nothing(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(traceback(b"ShapeError: before") + MUCH + traceback(b"KeyError: 'x'"), read_at=NOW)
    (before,) = (match for match in (pipeline.end_of("log").suspect,) if match)
    again = Pipeline(CATALOGUE, engine="python", window=60.0)
    again.restore({name: text for name, text in pipeline.unsaved().items() if text})
    assert again.end_of("log") == pipeline.end_of("log")
    assert again.silent(NOW + SILENT_SECONDS) == [before]


def test_a_success_is_known_after_a_restart(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(traceback() + b"all done\n", read_at=NOW)
    again = Pipeline(CATALOGUE, engine="python", window=60.0)
    again.restore({name: text for name, text in pipeline.unsaved().items() if text})
    assert again.end_of("log").success
    assert again.silent(NOW + SILENT_SECONDS) == []


@pytest.mark.parametrize("seed", range(5))
def test_it_does_not_matter_how_a_log_arrives(pipeline: Pipeline, seed: int) -> None:
    rng = random.Random(seed)
    parts = [traceback(), traceback(b"KeyError: 'x'"), MUCH, A_LITTLE, b"GPU fault\n", b"FATAL ERROR: no mesh\n"]
    text = b"".join(rng.choices(parts, k=6))
    whole = of(pipeline, text)
    pipeline.forget("log")
    log, at = Tail(pipeline), 0
    while at < len(text):
        size = rng.randrange(1, 4000)
        log.offer(text[at : at + size])
        at += size
    log.offer(b"", "final")
    assert [(m.line, m.text, m.captures) for m in crashes(log)] == [(m.line, m.text, m.captures) for m in whole]


def test_the_lines_of_a_chat_are_quoted(pipeline: Pipeline) -> None:
    log = Tail(pipeline)
    log.offer(b"<|user|>\nMy job says GPU fault. Why?\n<|im_start|>assistant\n")
    log.offer(b"GPU fault means that the GPU is at fault.\n<|end|>\nGPU fault\n", "final")
    assert [m.line for m in log.matches] == [6]
