"""Puts into the chart what it holds copies of, each from its one source: `python deploy/render.py`. A test holds them equal."""

from __future__ import annotations

from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "helm/gpufault/files"


def rendered() -> dict[Path, str]:
    """The copies, and what they are to say. Helm reads only what lies in the chart."""
    copies = {CHART / "rules.yaml": DEPLOY / "prometheus/rules.yml"}
    return {copy: source.read_text(encoding="utf-8") for copy, source in copies.items()}


if __name__ == "__main__":
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
