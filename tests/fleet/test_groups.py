"""One configuration that makes several signatures more frequent: one finding, at the level that explains it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exporter.fleet.observations import Observed, SignatureGroup, Window
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.findings import Correlation

from .small import DAY, WEEK, fleet

NODES, SIGNATURES = 3000, 12
EXPECTED = 20.0  # crashes of a signature in a week
BAD = "vbios_version=022.040"
INFRASTRUCTURE = tuple(f"fault_{s:02}" for s in range(6))


def grouped(seed: int, times: float, hit: int, *, days: int = 7) -> Observed:
    """3,000 nodes and twelve signatures. The first `hit` signatures are so many times as frequent with one firmware,
    which 15% of the nodes have. The first six are infrastructure.
    """
    rng = np.random.default_rng([seed, 29])
    bad = rng.random(NODES) < 0.15
    facts, incidents = [], []
    for i in range(NODES):
        known = {f"fact_{k}": f"v{rng.integers(4)}" for k in range(8)} | {"rack": f"r{i // 32}"}
        firmware = "022.040" if bad[i] else f"022.04{rng.integers(1, 4)}"
        facts.append((f"n{i:04}", 0.0, {**known, "vbios_version": firmware}))
        for s in range(SIGNATURES):
            rate = EXPECTED / NODES * days / 7 * (times if bad[i] and s < hit else 1)
            if rng.random() < rate:
                incidents.append((f"n{i:04}", float(rng.uniform(0.01, days - 0.1)), f"fault_{s:02}", f"{s}-{i}"))
    groups = (SignatureGroup(level="verdict", name="infrastructure crashes", signatures=INFRASTRUCTURE),)
    return replace(fleet(facts, incidents, days=days), groups=groups)


def told(found: Correlation) -> list[tuple[str, str]]:
    return [(each.signature, str(each.facts[0])) for each in found.findings]


def test_six_signatures_with_one_firmware_are_one_finding_of_their_verdict() -> None:
    found = correlate(grouped(1, 3.5, 6), WEEK)

    (finding,) = found.findings
    assert (finding.level, *told(found)[0]) == ("verdict", "infrastructure crashes", BAD)
    assert sorted(part.signature for part in finding.signatures) == list(INFRASTRUCTURE)
    assert finding.ratio.low < 3.5 < finding.ratio.high
    assert f"infrastructure crashes are {finding.ratio.value:.2g} times as frequent on nodes with {BAD}" in text(found)
    (plain,) = to_json(found)["findings"]
    assert (plain["signature"], plain["level"], len(plain["signatures"])) == ("infrastructure crashes", "verdict", 6)
    assert all(each.signature not in INFRASTRUCTURE for each in found.not_enough_data)


def test_all_signatures_with_one_firmware_are_one_finding_of_all_crashes() -> None:
    assert told(correlate(grouped(1, 5, 12), WEEK)) == [("all crashes", BAD)]


def test_one_signature_is_its_own_finding_and_no_group_is_beside_it() -> None:
    assert told(correlate(grouped(1, 10, 1), WEEK)) == [("fault_00", BAD)]


def test_a_finding_of_a_group_is_confirmed_by_a_later_week() -> None:
    observed = grouped(2, 3.5, 6, days=14)
    first = correlate(observed, WEEK)
    later = correlate(observed, Window(start=WEEK.end, end=WEEK.end + 7 * DAY), remember(first, ()))

    assert [each.status for each in later.findings] == ["confirmed"]
    assert told(later) == told(first) == [("infrastructure crashes", BAD)]


def versions(seed: int, bad: tuple[str, ...], times: float) -> list[tuple[str, ...]]:
    """The first facts found where some patch versions make a crash more frequent."""
    rng = np.random.default_rng([seed, 31])
    every = ("6.2.0", "6.2.4", "6.3.0", "6.3.1", "6.3.2", "6.4.0", "6.4.1")
    facts, incidents = [], []
    for i in range(NODES):
        version = every[rng.integers(len(every))]
        facts.append((f"n{i:04}", 0.0, {"rocm_version": version, **{f"f{k}": f"v{rng.integers(4)}" for k in range(8)}}))
        if rng.random() < 0.01 * (times if version in bad else 1):
            incidents.append((f"n{i:04}", float(rng.uniform(0.01, 6.9)), "crash", str(i)))
    return [tuple(map(str, each.facts[:1])) for each in correlate(fleet(facts, incidents), WEEK).findings]


def test_three_patches_are_one_finding_of_their_minor_version_and_one_patch_is_its_own() -> None:
    assert versions(2, ("6.3.0", "6.3.1", "6.3.2"), 5) == [("rocm_version=6.3.*",)]
    assert versions(2, ("6.3.1",), 8) == [("rocm_version=6.3.1",)]


@pytest.mark.nightly
def test_over_30_fleets_each_effect_is_told_at_its_level() -> None:
    six = [told(correlate(grouped(seed, 3.5, 6), WEEK)) for seed in range(30)]
    one = [told(correlate(grouped(seed, 10, 1), WEEK)) for seed in range(30)]
    none = [told(correlate(grouped(seed, 1, 0), WEEK)) for seed in range(30)]

    assert sum(each == [("infrastructure crashes", BAD)] for each in six) >= 27
    assert sum(each == [("fault_00", BAD)] for each in one) >= 27
    assert sum(name not in INFRASTRUCTURE for each in one for name, _ in each) <= 1
    assert sum(map(bool, none)) <= 1


@pytest.mark.nightly
def test_over_30_fleets_versions_are_told_at_their_level() -> None:
    minor = [versions(seed, ("6.3.0", "6.3.1", "6.3.2"), 5) for seed in range(30)]
    patch = [versions(seed, ("6.3.1",), 8) for seed in range(30)]

    assert sum(each == [("rocm_version=6.3.*",)] for each in minor) >= 28
    assert sum(each == [("rocm_version=6.3.1",)] for each in patch) >= 28
