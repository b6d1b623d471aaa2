"""The work of a crash line in a flood of its kind, so that CI notices when a kind becomes slower by half.

Counts calls, of Python functions and of C functions such as searches, by `sys.setprofile`. They are nearly the same on
every machine and in every run, which seconds are not. The first lines, from which the cache learns, are not counted.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Chunk, SourceKind

ROOT = Path(__file__).resolve().parents[3]
FIRST, COUNTED = 2400, 600  # crash lines
BETWEEN = 4  # ordinary lines before each
CALLS = {
    "ROCr, memory access fault": 82,
    "HIP's log, hipErrorInvalidValue": 110,
    "a framework's hipErrorInvalidValue": 112,
    "a framework's HIP error: invalid argument": 124,
    "a framework's capture error": 133,
    "Intel, page fault": 96,
    "PyTorch, NCCL's watchdog": 116,
    "PyTorch, out of memory": 133,
    "NVIDIA, Xid 13": 98,
    "NVIDIA, Xid 31": 165,
    "amdgpu, page fault": 130,
    "amdgpu, page fault with its second line": 200,
    "i915, hang": 150,  # between 97 and 189, by what is still learnt
    "xe, engine reset": 107,
    "a segmentation fault in libcuda": 71,
}


def crashes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crashes", ROOT / "benchmarks" / "crashes.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KINDS = crashes()


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


@pytest.mark.parametrize("kind", CALLS)
def test_a_crash_line_of_a_flood_takes_as_many_calls_as_it_did(catalogue: Catalogue, kind: str) -> None:
    """Also no fewer: after an improvement, lower the number, or the next growth by half goes unnoticed."""
    assert 0.6 * CALLS[kind] < calls_of_a_line(catalogue, kind) < 1.4 * CALLS[kind]


def test_each_kind_of_the_benchmark_is_counted() -> None:
    assert {*KINDS.OF_JOBS, *KINDS.OF_KERNELS} == set(CALLS)


def calls_of_a_line(catalogue: Catalogue, kind: str) -> float:
    source: SourceKind = "kernel" if kind in KINDS.OF_KERNELS else "job"
    crash, dice = {**KINDS.OF_JOBS, **KINDS.OF_KERNELS}[kind], random.Random(1)
    lines = [_ordinary(source, number) + crash(number, dice) + "\n" for number in range(FIRST + COUNTED)]
    pipeline = Pipeline(catalogue, window=300.0, engine="hyperscan")
    pipeline.process(_chunk(lines[:FIRST], source, 0))
    calls = 0

    def count(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    chunk = _chunk(lines[FIRST:], source, sum(map(len, lines[:FIRST])))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        done = pipeline.process(chunk)
    finally:
        sys.setprofile(before)
    assert sum(match.lines for match in done.matches) >= COUNTED - 1  # the last one waits for lines behind it
    return calls / COUNTED


def _ordinary(source: SourceKind, number: int) -> str:
    if source == "kernel":
        return f"[{number:>5}.123456] audit: type=1400 apparmor=ALLOWED operation=open pid={number}\n" * BETWEEN
    second = f"2026-11-21 01:{number // 60 % 60:02}:{number % 60:02}"
    return f"[rank{number % 8}]: {second} INFO train.py:412 step {number} loss 0.{number % 1000:04}\n" * BETWEEN


def _chunk(lines: list[str], source: SourceKind, offset: int) -> Chunk:
    data = "".join(lines).encode()
    return Chunk(
        log="a",
        origin="/a",
        path="/a",
        source=source,
        format="plain",
        offset=offset,
        line=1,
        data=data,
        read_at=1795000000.0,
    )
