"""Rendered copies below deploy/ are up to date."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_copies_in_the_chart_are_up_to_date() -> None:
    rendered = runpy.run_path(str(ROOT / "deploy/render.py"))["rendered"]()
    assert rendered
    stale = [path.relative_to(ROOT) for path, text in rendered.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make docs"


def test_the_readme_of_the_chart_explains_every_value() -> None:
    rows = [
        line for line in (ROOT / "deploy/helm/gpufault/README.md").read_text().splitlines() if line.startswith("| `")
    ]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == [], "add a description to values.schema.json"
