"""Settled public reports: the shipped ones, what is refused, and what is said of them."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import UTC, date, datetime
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from exporter.cli.main import main
from exporter.config import packs
from exporter.core.catalogue import loader
from exporter.core.catalogue.outcomes import (
    BACK_OFF,
    DECIDING,
    DOMAINS,
    LEAST,
    NOUNS,
    Outcomes,
    Outlook,
    has_fix,
    outlook,
    smoothed,
)
from exporter.core.catalogue.reports import SettledReport
from exporter.core.text.problems import InvalidInput
from exporter.core.values import replace

ENTRY = {
    "address": "https://example.com/1", "signature": "cuda_illegal_address", "date": "2024-05-01", "domain": "library",
    "cause": "A kernel read past its buffer", "settled": "fix merged",
}  # fmt: skip


def report(**fields: object) -> SettledReport:
    return SettledReport(**{**ENTRY, **fields})  # type: ignore[arg-type]


MANY = [report(address=f"https://example.com/m{number}") for number in range(6)]


def shown(*reports: SettledReport) -> Outlook:
    """Of public reports, each with an address of its own unless it was given one."""
    alone = [
        replace(r, address=f"https://example.com/{n}") if r.address == ENTRY["address"] else r
        for n, r in enumerate(reports)
    ]
    return outlook(Outcomes(public=tuple(alone)))


# Their lines say that something was too small; what made it so is another question.
SAID_BY_THE_LINE = {"torch_oom", "k8s_evicted"}


def test_the_domain_of_a_line_is_that_of_at_least_half_of_its_reports() -> None:
    for signature in packs.load().signatures.values():
        domains = [report.domain for report in packs.reports(signature.id)]
        if signature.domain != "unknown" and len(domains) >= 6 and signature.id not in SAID_BY_THE_LINE:
            assert domains.count(signature.domain) * 2 >= len(domains), signature.id


OWN_CODE = (
    "*illegal_address", "*misaligned_address", "*illegal_instruction", "*captured_event", "*stream_capture*", "*_page_fault",
    "*invalid_configuration", "hsa_aperture_violation", "hsa_memory_fault", "hsa_exception", "rocr_memory_access_fault",
    "host_assert", "process_segfault", "heap_corruption", "nv_xid_13_*", "nv_xid_31_*",
)  # fmt: skip


@pytest.mark.parametrize("lines", OWN_CODE)
def test_no_line_that_a_users_own_code_can_raise_blames_a_library(lines: str) -> None:
    of_lines = [s for s in packs.load().signatures.values() if fnmatch(s.id, lines)]
    assert of_lines
    assert {s.domain for s in of_lines} <= {"unknown", "program"}


def test_each_fault_of_its_own_has_a_cause_or_says_why_its_line_tells_none() -> None:
    catalogue = packs.load()
    explained = {
        s.id: (bool(catalogue.causes_of(s.id)), bool(s.undecided))
        for s in catalogue.signatures.values()
        if s.role == "root"
    }
    assert {name for name, (has_cause, says_why) in explained.items() if has_cause == says_why} == set()
    reasons = [s.undecided for s in catalogue.signatures.values() if s.undecided]
    assert len(set(reasons)) >= len(reasons) - 2  # three file systems share theirs


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("A defective card gave wrong results", []),
        ("A card of gpu-07 gave wrong results", ["gpu-07"]),
        ("Written by Annabel to /lus/annabel/run7", ["Annabel", "/lus/annabel/run7"]),
        ("Job 4811234 on login1.site.org read /dev/shm", ["4811234", "login1.site.org"]),
    ],
)
def test_a_site_gives_its_reports_without_names(
    words: str, names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {**ENTRY, "address": "https://tickets.example.com/4711", "cause": words}
    lines = "".join(f"    {key}: '{value}'\n" for key, value in own.items())
    (tmp_path / "own.yaml").write_text(f"pack: own\nreports:\n  - {lines.strip()}\n")
    asked = ["signatures", "reports", "--address", "https://github.com/o/p/issues/1", "--signatures.dir", str(tmp_path)]
    assert main(asked) == (2 if names else 0)
    printed = capsys.readouterr()
    assert main([*asked[:3], "somewhere", *asked[4:]]) == 2
    if names:
        assert printed.out == ""
        assert f"own.yaml:7:5: reports[0].cause: may have a name: {', '.join(names)};" in printed.err
        assert main([*asked, "--allow", *names]) == 0
        printed = capsys.readouterr()
    [given] = yaml.safe_load(printed.out)["reports"]
    assert given == {**own, "address": "https://github.com/o/p/issues/1#1"}


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


@pytest.mark.parametrize(
    ("domains", "sentence"),
    [
        ("hardware", "In 1 settled report of this line: a card, a link or the node."),
        (
            "hardware program program",
            (
                "In 3 settled reports of this line: 2 the program or its input; 1 a card, a link or the node. "
                "Too few to say what is usual."
            ),
        ),
        ("program " * 5, "In 5 settled reports of this line: always the program or its input."),
        (
            "program program driver network storage",
            (
                "In 5 settled reports of this line: 2 the program or its input; 1 the driver or firmware; 1 the network; "
                "1 a file system or a disk. They disagree: no kind of fault has more than half of them."
            ),
        ),
    ],
)
def test_the_sentence_counts_domains(domains: str, sentence: str) -> None:
    assert shown(*(report(domain=domain, settled="own mistake") for domain in domains.split())).sentences == (sentence,)


def test_the_sentence_names_the_newest_fixes_of_a_domain() -> None:
    outlook_of = shown(
        report(fixed_in={"vllm": "0.5"}, date="2024-01-01"),
        report(fixed_in={"vllm": "0.7", "cuda": "12.6"}, date="2025-01-01"),
        report(fixed_in={"torch": "2.0", "jax": "0.4"}, date="2023-01-01", settled="own mistake"),
        report(domain="program"),
    )
    assert outlook_of.sentences[0].startswith(
        "In 4 settled reports of this line: 3 a library's bug, mostly fixed by an update (vLLM 0.7, CUDA 12.6, PyTorch 2.0); "
        "1 the program or its input, fixed by an update."
    )
    assert [(r.domain, r.date) for r in outlook_of.examples] == [("library", "2025-01-01"), ("program", "2024-05-01")]


@pytest.mark.parametrize(
    ("domains", "brief"),
    [
        ("network network network driver", "3 of 4 settled reports: the network"),
        ("network network storage driver", "4 settled reports disagree; most often the network (2)"),
    ],
)
def test_the_brief_names_a_domain_only_where_most_reports_agree(domains: str, brief: str) -> None:
    outlook_of = shown(*(report(domain=domain) for domain in domains.split()))
    assert outlook_of.brief == brief
    assert ("They disagree" in outlook_of.sentences[0]) == ("disagree" in brief)


@pytest.mark.parametrize("count", range(LEAST))
def test_few_reports_give_no_share_no_brief_and_no_order(count: int) -> None:
    few = shown(*[report(domain="hardware")] * count)
    assert (few.shares, few.brief, few.checks) == ({}, "", ())


def test_a_report_with_two_domains_counts_for_neither_and_is_named() -> None:
    twice = [report(address="https://example.com/twice", domain=domain) for domain in ("driver", "hardware")]
    assert shown(*twice, *MANY).sentences[0].endswith("1 report with contradicting ends is not counted.")
    assert shown(*twice, *MANY).brief == f"{len(MANY)} of {len(MANY)} settled reports: a library's bug"


def test_the_estimate_backs_off_to_the_wider_level() -> None:
    everywhere = {"driver": 6, "library": 2}
    nothing = smoothed([everywhere, {}])
    assert nothing == smoothed([everywhere])
    assert sum(nothing.values()) == pytest.approx(1)
    some = smoothed([everywhere, {"library": 2}])
    assert some["library"] == pytest.approx((2 + BACK_OFF * nothing["library"]) / (2 + BACK_OFF))
    assert min(some.values()) > 0


def test_two_reports_of_the_site_outweigh_all_public_ones() -> None:
    own = [report(domain="hardware", address=f"https://tickets.example.com/{n}") for n in (1, 2)]
    outcomes = Outcomes(public=tuple(MANY), site=tuple(own), everywhere={"library": 500})
    both = outlook(outcomes)
    assert both.checks[0].domain == "hardware"
    assert [sentence.partition(" of this line")[0] for sentence in both.sentences] == [
        f"In {len(MANY)} settled reports", "On this fleet: in 2 settled incidents",
    ]  # fmt: skip


def test_versions_that_have_every_fix_of_a_domain_exclude_it() -> None:
    fixed = [report(fixed_in={"pytorch": "2.6"}, address=f"https://example.com/f{n}") for n in range(4)]
    reports = (*fixed, report(domain="program", address="https://example.com/p"))
    for facts, domains in (
        ({}, ["library", "program"]),
        ({"torch_version": "2.5.1"}, ["library", "program"]),
        ({"torch_version": "2.6.0+cu124"}, ["program"]),
    ):
        outlook_of = outlook(Outcomes(public=reports), facts)
        assert [check.domain for check in outlook_of.checks] == domains, facts
        assert ("4 of them ended with versions that this one already has." in outlook_of.sentences[0]) == (
            len(domains) == 1
        )


@pytest.mark.parametrize("version", ["main", "2024-05-01", "", "r535"])
def test_a_fix_that_is_not_a_version_excludes_nothing(version: str) -> None:
    assert not has_fix(report(fixed_in={"cuda": version}), {"cuda_version": "12.6"})


def test_each_domain_has_a_noun_and_a_command_for_every_vendor() -> None:
    assert DECIDING.keys() == NOUNS.keys() == set(DOMAINS)
    for _, commands in DECIDING.values():
        assert "any" in commands
        assert {shlex.split(command, comments=True)[0] for command in commands.values()} != {""}


def test_what_a_known_cause_asks_for_is_not_asked_again() -> None:
    outcomes = Outcomes(public=(*MANY, report(domain="program", address="https://example.com/p")))
    assert [check.domain for check in outlook(outcomes, besides={"library"}).checks] == ["program"]


def test_reports_of_a_site_s_pack_are_shown_apart() -> None:
    lines = "".join(f"    {key}: '{value}'\n" for key, value in ENTRY.items())
    catalogue = loader.load_packs([("own.yaml", f"pack: own\nreports:\n  - {lines.strip()}\n")], packs.builtin())
    outcomes = packs.outcomes(catalogue, ENTRY["signature"])
    assert [one.address for one in outcomes.site] == [ENTRY["address"]]
    assert outcomes.public == packs.reports(ENTRY["signature"])
    assert sum(outcomes.everywhere.values()) == sum(map(len, map(packs.reports, catalogue.signatures)))


def test_the_check_of_a_pack_counts_its_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"    {key}: '{value}'\n" for key, value in ENTRY.items())
    (tmp_path / "own.yaml").write_text(f"pack: own\nreports:\n  - {lines.strip()}\n")
    assert main(["signatures", "check", str(tmp_path)]) == 0
    assert "1 settled report: 0 errors" in "".join(capsys.readouterr())
