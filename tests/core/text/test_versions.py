"""Versions: what can be told from a version that is too short, too long or none at all."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.model import Truth
from exporter.core.text.versions import VersionRange

HELD, FAILED, UNDETERMINED = Truth.HELD, Truth.FAILED, Truth.UNDETERMINED


@pytest.mark.parametrize(
    ("bound", "version", "truth"),
    [
        (">=6.2, <7.2.1", "6.4.1", HELD),
        (">=6.2, <7.2.1", "7.2.1", FAILED),
        (">=6.2, <7.2.1", "6.1.9", FAILED),
        ("<6.10", "6.9", HELD),  # numbers, not texts
        ("==6.3", "6.3.0-39", HELD),  # the asked parts decide
        ("==6.3", "6.30", FAILED),
        ("!=6.3", "6.3.1", FAILED),
        ("!=6.3", "6.4", HELD),
        (">6.3", "6.3.1", HELD),
    ],
)
def test_a_version_is_compared_part_by_part(bound: str, version: str, truth: Truth) -> None:
    assert VersionRange.parse(bound).holds_for(version) is truth


@pytest.mark.parametrize("version", ["v6.2.4", " 6.2.4", "1:6.2.4", "6.2.4-98~22.04", "6.2.4+rocm", "6.2.4 LTS"])
def test_packager_prefixes_and_suffixes_are_ignored(version: str) -> None:
    assert VersionRange.parse("==6.2.4").holds_for(version) is HELD


@pytest.mark.parametrize(
    ("bound", "version", "truth"),
    [
        ("<=6.2.0", "6.2", UNDETERMINED),  # it may be 6.2.4
        ("<6.2.1", "6.2", UNDETERMINED),
        ("==6.2.4", "6.2", UNDETERMINED),
        (">=6.2", "6.2", HELD),  # every patch of it is
        ("<6.2.1", "6.1", HELD),
        (">=6.2.1", "6.3", HELD),
        (">=6.2.1, <6.0", "6.2", FAILED),  # what fails for sure outweighs what is open
    ],
)
def test_a_version_shorter_than_its_bound_leaves_open_what_its_missing_parts_decide(
    bound: str, version: str, truth: Truth
) -> None:
    assert VersionRange.parse(bound).holds_for(version) is truth


@pytest.mark.parametrize("version", ["", "unknown", "git", "x6.2", "9" * 5000])
def test_an_invalid_version_is_undetermined_for_every_bound(version: str) -> None:
    assert VersionRange.parse(">=1").holds_for(version) is UNDETERMINED


@pytest.mark.parametrize("text", ["", "6.2", ">=", "=>6.2", ">=6.2,", ">=six", ">=6.2 <7", ">=" + "9" * 5000])
def test_an_invalid_bound_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="use for example"):
        VersionRange.parse(text)


PARTS = st.lists(st.integers(0, 3), min_size=1, max_size=3)


def dotted(parts: list[int]) -> str:
    return ".".join(map(str, parts))


@given(PARTS, PARTS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
def test_an_answer_holds_for_every_version_that_the_short_one_may_stand_for(
    version: list[int], bound: list[int], sign: str
) -> None:
    asked = VersionRange.parse(sign + dotted(bound))
    missing = len(bound) - len(version)
    if missing <= 0:
        assert asked.holds_for(dotted(version)) is not UNDETERMINED
        return
    longer = [[*version, *more] for more in itertools.product(range(5), repeat=missing)]
    truths = {asked.holds_for(dotted(parts)) for parts in longer}
    assert asked.holds_for(dotted(version)) is (truths.pop() if len(truths) == 1 else UNDETERMINED)


@given(PARTS, PARTS)
def test_of_two_versions_exactly_one_order_holds(a: list[int], b: list[int]) -> None:
    size = max(len(a), len(b))
    version, bound = (dotted(v + [0] * (size - len(v))) for v in (a, b))
    held = [sign for sign in ("<", "==", ">") if VersionRange.parse(sign + bound).holds_for(version) is HELD]
    assert len(held) == 1
