"""Each event of the model of pages is found by the shipped rules in a fleet of 24 nodes, and nothing else pages."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.page_scenarios import SAMPLE_MINUTES

NODES, SEED = 24, 1
IN_TIME = pages.LATE_MINUTES // SAMPLE_MINUTES
LONGEST = 30 // SAMPLE_MINUTES  # from the first crash of an event to the fifth
EVENTS = [name for name in pages.SCENARIOS if name != "bursty week"]

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.deploy,
    pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (apt install prometheus)"),
]


def test_events_page_within_15_minutes_and_what_is_harmless_does_not(tmp_path: Path) -> None:
    runs = {str(at): pages.SCENARIOS[name](NODES, random.Random(f"{name} {SEED}")) for at, name in enumerate(EVENTS)}
    paged: dict[str, list[int]] = defaultdict(list)
    for page in pages.pages(runs, tmp_path):
        paged[page.cluster].append(page.at)
    first = {EVENTS[int(cluster)]: min(of) for cluster, of in paged.items()}
    due = {EVENTS[int(cluster)]: run.due for cluster, run in runs.items() if run.due is not None}
    assert first.keys() == due.keys()
    assert {name: at for name, at in first.items() if not due[name] - LONGEST <= at <= due[name] + IN_TIME} == {}
