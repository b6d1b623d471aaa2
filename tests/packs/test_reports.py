"""Settled public reports: the shipped ones, what is refused, and what is said of them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime

import pytest

from exporter.config import packs
from exporter.core.catalogue import loader
from exporter.core.catalogue.reports import SettledReport, examples, outcome
from exporter.core.text.problems import InvalidInput

ENTRY = {
    "address": "https://example.com/1", "signature": "cuda_illegal_address", "date": "2024-05-01", "domain": "library",
    "cause": "A kernel read past its buffer", "settled": "fix merged",
}  # fmt: skip


def report(**fields: object) -> SettledReport:
    return SettledReport(**{**ENTRY, **fields})  # type: ignore[arg-type]


def test_each_shipped_report_has_an_end_a_known_signature_and_one_address_for_it() -> None:
    loaded = loader.load(packs.report_texts(), packs.builtin())  # raises InvalidInput with every problem
    reports = [report for file in loaded.own for report in file.pack.reports]
    assert len(reports) > 500
    twice = Counter((report.address, report.signature) for report in reports)
    assert [pair for pair, count in twice.items() if count > 1] == []
    today = datetime.now(UTC).date()
    assert [r.address for r in reports if not date(2010, 1, 1) <= date.fromisoformat(r.date) <= today] == []
    by_signature = Counter(report.signature for report in reports)
    assert {name: len(packs.reports(name)) for name in by_signature} == dict(by_signature)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"domain": "unknown"}, "leave out a report without an end"),
        ({"domain": "gremlins"}, "domain"),
        ({"settled": "stale"}, "settled"),
        ({"signature": "no_such_line"}, "matches no signature"),
        ({"address": "somewhere"}, "address"),
        ({"date": "May 2024"}, "date"),
        ({"who": "me"}, "who"),
    ],
)
def test_a_report_without_an_end_or_a_signature_is_refused(changed: dict[str, str], problem: str) -> None:
    lines = "".join(f"    {key}: '{value}'\n" for key, value in {**ENTRY, **changed}.items())
    with pytest.raises(InvalidInput, match=problem):
        loader.load([("own.yaml", f"pack: own\nreports:\n  - {lines.strip()}\n")], packs.builtin())


def test_the_sentence_counts_domains_and_names_newest_fixes() -> None:
    reports = [
        report(fixed_in={"vllm": "0.5"}, date="2024-01-01"),
        report(fixed_in={"vllm": "0.7", "cuda": "12.6"}, date="2025-01-01"),
        report(domain="program"),
        report(fixed_in={"torch": "2.0", "jax": "0.4"}, domain="library", date="2023-01-01"),
    ]
    assert (
        outcome(reports)
        == "4 settled reports of this line: library 3, program 1; fixed in vllm 0.7, cuda 12.6, torch 2.0"
    )
    assert [(r.domain, r.date) for r in examples(reports)] == [("library", "2025-01-01"), ("program", "2024-05-01")]


def test_a_few_reports_tell_nothing_of_what_is_usual() -> None:
    assert outcome([report(domain="hardware")] * 3) == ""
