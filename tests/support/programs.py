"""Programs that tests start. A test is skipped where one is missing, and the summary counts those tests by program."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

MISSING = "missing: "
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # daemons are there

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def missing(*programs: str) -> list[str]:
    """Those that are not installed."""
    return [program for program in programs if shutil.which(program, path=PATH) is None]


def reason(absent: Sequence[str]) -> str:
    """Why a test is skipped; empty if it is not."""
    return MISSING + ", ".join(absent) if absent else ""


def needs(*programs: str, absent: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Skip a test where one of these programs is not installed, or something is `absent` anyway."""
    why = reason([*missing(*programs), *absent])
    return pytest.mark.skipif(bool(why), reason=why)


def skip_without(*programs: str) -> None:
    """The same, within a test."""
    if why := reason(missing(*programs)):
        pytest.skip(why)


def skipped_tests(reasons: Iterable[str]) -> list[str]:
    """One line for each missing program, from the reasons of all skipped tests."""
    lists = [text.partition(MISSING)[2].split(", ") for text in reasons if MISSING in text]
    counts = Counter(program for programs in lists for program in programs)
    return [f"missing: {program}; tests skipped: {count}" for program, count in sorted(counts.items())]
