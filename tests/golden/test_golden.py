"""Golden cases: a folder with logs and facts, and the records that must come of them, whole.

`pytest tests/golden --rewrite-golden` writes what comes now; review it as a diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.scan import read_facts
from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.records import incident_record
from exporter.scan.plan import Task, plan
from exporter.scan.run import scan

FOLDER = Path(__file__).parent
CASES = sorted(path.parent.name for path in FOLDER.glob("*/facts.json"))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


@pytest.mark.parametrize("case", CASES)
def test_the_records_of_a_case_are_the_expected_ones(
    case: str, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(FOLDER / case)
    tasks = [plan(path.name, "kernel" if path.stem == "kernel" else "job") for path in sorted(Path().glob("*.*"))]
    tasks = [t for t in tasks if isinstance(t, Task) and not t.path.startswith(("facts.", "expected.", "explain"))]
    summary = scan(tasks, catalogue, node="node", facts=read_facts("facts.json"))
    records = [lasting(incident_record(d, catalogue, "node")) for d in summary.diagnoses]
    expected = Path("expected.jsonl")
    if request.config.getoption("--rewrite-golden"):
        expected.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    assert [json.loads(line) for line in expected.read_text().splitlines()] == records


def lasting(record: dict[str, Any]) -> dict[str, Any]:
    """A record without the time of reading, which is another one each time."""
    if record["time_source"] in ("observed", "file"):
        return {k: v for k, v in record.items() if k not in ("time", "last_time")}
    return record
