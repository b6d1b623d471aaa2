"""Xid 13 that repeats on one SM in several jobs, and what does not count as that."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.config import packs
from exporter.core.diagnosis.repeated_xids import JOBS, MAX_GPUS, MAX_JOBS, SECONDS, SIGNATURE, RepeatedXids
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.raising import pid_in
from exporter.core.model import JOBS_ON_SM, Match
from tests.support.matches import NOW, chunk, match

SM, OTHER_SM = "GPC 2, TPC 3, SM 1", "GPC 2, TPC 3, SM 0"
GPU, OTHER_GPU = "0000:3b:00.0", "0000:5e:00.0"


def xid_13(pid: int | None, at: float = 0.0, *, sm: str = SM, gpu: str = GPU, **what: object) -> Match:
    captures = {"message": f"Graphics SM Warp Exception on ({sm}): Illegal Instruction Encoding"}
    who = {} if pid is None else {"pid": str(pid)}
    rest = {"source": "kernel", "read_at": NOW + at, "gpu": gpu, "captures": {**captures, **who}}
    return match(SIGNATURE, at, job=None, **{**rest, **what})


def told(
    repeats: RepeatedXids, matches: Iterable[Match], job: str | None = None, uid: int | None = None
) -> list[str | None]:
    """The fact that each match gets, read one by one."""
    return [repeats.with_job_counts([m], lambda _: (job, uid))[0].process.get(JOBS_ON_SM) for m in matches]


def test_the_third_job_on_one_sm_makes_it_suspect() -> None:
    assert JOBS == 3
    assert told(RepeatedXids({}), [xid_13(1), xid_13(2, 60), xid_13(3, 120), xid_13(4, 180)]) == [None, None, "3", "4"]


def test_a_flood_of_one_process_or_of_one_job_never_does() -> None:
    assert set(told(RepeatedXids({}), [xid_13(7, n) for n in range(50)])) == {None}
    assert set(told(RepeatedXids({}), [xid_13(n, n) for n in range(50)], job="slurm 4242")) == {None}


def test_jobs_of_one_user_never_do_and_those_of_two_users_do() -> None:
    repeats = RepeatedXids({})
    assert set(told(repeats, [xid_13(n, n) for n in range(20)], uid=1001)) == {None}
    assert told(repeats, [xid_13(99, 99)], uid=1002) == ["21"]


def test_jobs_on_different_sms_or_gpus_are_the_programs_own() -> None:
    repeats = RepeatedXids({})
    elsewhere = [xid_13(1), xid_13(2, sm=OTHER_SM), xid_13(3, gpu=OTHER_GPU), xid_13(4, sm="GPC 0, TPC 0, SM 0")]
    assert set(told(repeats, elsewhere)) == {None}


def test_a_job_that_fails_on_several_sms_does_not_count() -> None:
    repeats = RepeatedXids({})
    lines = [xid_13(pid, pid, sm=sm) for pid in (1, 2, 3) for sm in (OTHER_SM, SM)]
    assert {m.process.get(JOBS_ON_SM) for m in repeats.with_job_counts(lines, lambda _: (None, None))} == {None}
    assert told(repeats, [xid_13(9, 9)]) == [None]


def test_a_week_later_it_is_forgotten() -> None:
    assert told(RepeatedXids({}), [xid_13(1), xid_13(2), xid_13(3, SECONDS + 1)]) == [None, None, None]


def test_only_the_kernels_xid_13_of_a_known_process_counts() -> None:
    forged = [xid_13(pid, source="job") for pid in (1, 2, 3)]
    nameless = [xid_13(None, n) for n in range(5)]
    of_others = [match("nv_xid_31_mmu_fault", source="kernel", gpu=GPU, captures=xid_13(n).captures) for n in range(5)]
    no_place = [
        xid_13(n, captures={"pid": str(n), "message": "Graphics Exception: ESR 0x514730=0xc81000e"}) for n in range(5)
    ]
    repeats = RepeatedXids({})
    assert set(told(repeats, [*forged, *nameless, *of_others, *no_place])) == {None}
    assert repeats.unsaved() == {}


def test_it_outlives_the_process_and_rows_of_another_version_go() -> None:
    repeats = RepeatedXids({})
    told(repeats, [xid_13(1), xid_13(2)])
    rows = {key: text for key, text in repeats.unsaved().items() if text is not None}
    repeats.saved()
    assert repeats.unsaved() == {}
    again = RepeatedXids({**rows, "old": "[1]", "torn": '{"a":'})
    assert again.unsaved() == {"old": None, "torn": None}
    assert told(again, [xid_13(3)]) == ["3"]


def test_it_is_bounded_in_jobs_and_gpus() -> None:
    repeats = RepeatedXids({})
    told(repeats, [xid_13(n, n, sm=f"GPC 0, TPC {n % 9}, SM 0") for n in range(3 * MAX_JOBS)])
    told(repeats, [xid_13(1, 500 + n, gpu=f"0000:{n:02x}:00.0") for n in range(MAX_GPUS + 5)])
    rows = {gpu: text for gpu, text in repeats.unsaved().items() if text is not None}
    assert len(rows) == MAX_GPUS
    assert max(text.count('"pid ') for text in rows.values()) <= MAX_JOBS


def test_an_sm_that_fails_on_another_gpu_too_is_the_programs_choice() -> None:
    """A kernel of one block runs on the same SM of each GPU."""
    repeats = RepeatedXids({})
    assert told(repeats, [xid_13(9, gpu=OTHER_GPU)]) == [None]
    assert set(told(repeats, [xid_13(pid, pid) for pid in (1, 2, 3, 4)])) == {None}


def test_in_a_flood_the_first_lines_of_each_process_are_kept() -> None:
    """By them the jobs of an SM are counted: a process that fails on several shows it in them."""
    line = "[   12.%06d] NVRM: Xid (PCI:0000:3b:00): 13, pid=%d, name=python, Graphics SM Warp Exception on %s\n"
    lines = [line % (n, pid, f"(GPC {n % 7}, TPC 1, SM 0): Out Of Range") for pid in (1, 2) for n in range(400)]
    pipeline = Pipeline(packs.load(), window=60.0)
    kept = pipeline.process(chunk("".join(lines).encode(), source="kernel")).matches
    assert [sum(pid_in(m.raised_by) == str(pid) for m in kept) for pid in (1, 2)] == [10, 10]
    assert sum(m.lines for m in kept) == 800
