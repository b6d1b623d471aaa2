"""The simulated fleet that shows what the pages are for: the same each time, complete, and its planted causes are found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import main
from exporter.config import packs
from exporter.core.model import UNRECOGNISED
from exporter.demo import review_case
from exporter.demo.review_crashes import CRASHES, write_review


def records(folder: Path, **changed: Any) -> list[dict[str, Any]]:
    fleet = review_case.simulate_review(review_case.plan(**changed))
    lines = write_review(fleet, folder)
    found = [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    assert len(found) == lines
    return found


def test_the_same_seed_gives_the_same_fleet(tmp_path: Path) -> None:
    one, again, other = (
        records(tmp_path / str(number), nodes=100, days=21.0, seed=seed) for number, seed in enumerate((1, 1, 2))
    )
    assert one == again
    assert one != other


def test_incidents_are_whole_and_name_what_the_catalogue_knows(tmp_path: Path) -> None:
    catalogue = packs.load()
    incidents = [r for r in records(tmp_path / "fleet", nodes=400, days=42.0) if r["kind"] == "incident"]
    assert {r["signature"] for r in incidents} >= {review_case.SLOWED, review_case.HANGING, UNRECOGNISED}
    for record in incidents:
        assert record["signature"] in catalogue.signatures
        assert record["root_cause"] in {*catalogue.root_causes, "unknown", "peer_failure"}
        assert record["text"]
        assert "{" not in record["text"]
        assert record["job"]["user"]
    assert {CRASHES[name].cause for name in CRASHES} <= {*catalogue.root_causes, "unknown"}
    unnamed = Counter(r["captures"]["template"] for r in incidents if r["signature"] == UNRECOGNISED)
    assert len(unnamed) == 3


@pytest.mark.heavy
def test_what_was_planted_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_review(review_case.simulate_review(review_case.plan()), tmp_path / "fleet")
    main(["correlate", "--journal", str(tmp_path / "fleet"), "--window", "28d", "--format", "json"])
    result = json.loads(capsys.readouterr().out)
    found = {(finding["signature"], value["fact"]) for finding in result["findings"] for value in finding["facts"]}
    assert (review_case.HANGING, "nccl_version") in found
    assert (review_case.SLOWED, "driver_version") in found
