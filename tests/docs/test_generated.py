"""The generated references say what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from exporter.config import packs
from exporter.core.authoring.docs_pages import signature_pages
from exporter.core.authoring.lint import errors, warnings
from exporter.core.catalogue.loader import load
from exporter.core.catalogue.outcomes import outlook
from exporter.core.facts import process
from exporter.probes import FACTS

DOCS = Path(__file__).parents[2] / "docs"
GENERATED = runpy.run_path(str(DOCS / "generate.py"))["GENERATED"]


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == GENERATED[name](), "run: .venv/bin/python docs/generate.py"


def test_every_link_between_signature_pages_resolves() -> None:
    pages = signature_pages(packs.load(whole=True))
    for name, text in pages.items():
        anchors = set(re.findall(r'<a id="([a-z0-9_]+)">', text))
        assert set(re.findall(r"\]\(#([a-z0-9_]+)\)", text)) <= anchors, name
        assert set(re.findall(r"\]\(([A-Za-z0-9_]+\.md)\)", text)) <= pages.keys(), name


def test_the_page_of_a_signature_has_its_settled_reports_and_what_would_decide() -> None:
    catalogue = packs.load()
    pages = signature_pages(catalogue, None, lambda name: packs.outcomes(catalogue, name))
    told = {name for name in catalogue.signatures if "## What it turned out to be" in pages[f"{name}.md"]}
    assert told == {name for name in catalogue.signatures if packs.reports(name)}
    shown = outlook(packs.outcomes(catalogue, "cuda_cublas_error"))
    assert shown.checks
    for check in shown.checks:
        assert f"{check.decided_by}: `{' '.join(check.command.split())}`" in pages["cuda_cublas_error.md"]
        assert f"]({check.example.address})" in pages["cuda_cublas_error.md"]


def test_the_pack_in_the_guide_has_no_errors_or_warnings() -> None:
    guide = (DOCS / "writing-signatures.md").read_text(encoding="utf-8")
    (pack,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    loaded = load([("foo.yaml", pack)], packs.builtin())
    assert [
        str(problem)
        for problem in (*errors(loaded), *warnings(loaded, {*FACTS, *process.FACTS}, packs.ordinary_words()))
    ] == []
