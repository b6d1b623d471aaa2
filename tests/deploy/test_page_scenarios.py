"""Each event of the model of pages is found by the shipped rules in a fleet of 24 nodes, and nothing else pages."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.programs import needs

NODES, SEED = 24, 1
MINUTES_TO_FIFTH = 30  # from the first crash of an event to the fifth

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.deploy,
    needs("promtool"),
]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The model of pages, which is no part of the wheel."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks import pages

    yield pages
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_events_page_within_15_minutes_and_what_is_harmless_does_not(tmp_path: Path, pages: ModuleType) -> None:
    names = [name for name in pages.SCENARIOS if name not in (pages.BURSTY, *pages.SLOW)]
    longest = MINUTES_TO_FIFTH // pages.scenarios.SAMPLE_MINUTES
    runs = {str(at): pages.SCENARIOS[name](NODES, random.Random(f"{name} {SEED}")) for at, name in enumerate(names)}
    paged: dict[str, list[int]] = defaultdict(list)
    for page in pages.pages(runs, tmp_path):
        paged[page.cluster].append(page.at)
    in_time = runs["0"].late_minutes // pages.scenarios.SAMPLE_MINUTES
    first = {names[int(cluster)]: min(of) for cluster, of in paged.items()}
    due = {names[int(cluster)]: run.due for cluster, run in runs.items() if run.due is not None}
    assert first.keys() == due.keys()
    assert {name: at for name, at in first.items() if not due[name] - longest <= at <= due[name] + in_time} == {}
