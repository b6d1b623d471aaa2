"""What `gpufault explain` says of the founding crashes, whole: as a tired person reads it, on 80 columns.

Each with what the case knows of the node, and with nothing known of it. `pytest tests/golden --rewrite-golden` writes
what comes now; review it as a diff.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from exporter.cli.explain import explain
from exporter.cli.explanation_text import command_for
from exporter.cli.scan import read_facts
from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import leaf_conditions
from exporter.core.catalogue.reports import Settled, SettledReport
from exporter.core.model import Domain, SourceKind

FOLDER = Path(__file__).parent
CASES = [
    "aperture_violation_without_a_known_cause",
    "driver_older_than_rocm",
    "kokkos_event_on_destroyed_stream",
    "kokkos_hip_memset_unregistered_memory",
    "miopen_backward_weights_rocm_6_3_0",
    "network_home_cache_unwritable",
    "onednn_pvc_scoreboard_hazard",
    "pytorch_watchdog_query_during_capture",
    "xid_79_explains_the_jobs_cuda_error",
]
ENDS: list[tuple[Domain, Settled, str]] = [
    ("hardware", "hardware replaced", "The card was faulty; its replacement runs the same code"),
    ("library", "fix merged", "A kernel of the library read past its buffer"),
    ("library", "fixed by update", "The library was built for another instruction set"),
    ("library", "own mistake", "Two copies of the library were loaded"),
    ("mismatch", "fixed by workaround", "The wheel had no code for the GPU"),
]
REPORTS = tuple(
    SettledReport(
        address=f"https://example.com/{number}", signature="hsa_aperture_violation", date=f"2024-05-{number:02}",
        domain=domain, cause=cause, settled=settled, fixed_in={"pytorch": "2.6"} if domain == "library" else {},
    )
    for number, (domain, settled, cause) in enumerate(ENDS, 1)
)  # fmt: skip
KNOWN = {"explain.txt": "facts.json", "explain_without_facts.txt": None}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 80 columns, with settled reports that stay: the shipped ones become more."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(packs, "reports", lambda name: REPORTS if name == "hsa_aperture_violation" else ())
    monkeypatch.setattr(packs, "report_domains", lambda: Counter(report.domain for report in REPORTS))


def explained(case: str, catalogue: Catalogue, facts: str | None, *, color: bool = False) -> str:
    """What the command prints of a case's log."""
    log = next(path for pattern in ("*.kmsg", "slurm-*.out") for path in (FOLDER / case).glob(pattern))
    source: SourceKind = "kernel" if log.suffix == ".kmsg" else "job"
    known = facts and read_facts(str(FOLDER / case / facts))
    return explain(log.read_text(), source, catalogue, known or None, color=color) + "\n"


@pytest.mark.parametrize("golden", KNOWN)
@pytest.mark.parametrize("case", CASES)
def test_the_explanation_of_a_case_is_the_expected_one(
    case: str, golden: str, catalogue: Catalogue, request: pytest.FixtureRequest
) -> None:
    text = explained(case, catalogue, KNOWN[golden])
    expected = FOLDER / case / golden
    if request.config.getoption("--rewrite-golden"):
        expected.write_text(text)
    assert expected.read_text() == text


@pytest.mark.parametrize("case", CASES)
def test_an_explanation_fits_a_narrow_terminal_but_for_what_is_to_be_copied(case: str, catalogue: Catalogue) -> None:
    for facts in KNOWN.values():
        told = explained(case, catalogue, facts).split("\n")
        assert [line for line in told if len(line) > 80 and not re.search(r"^ +\$ |https:", line)] == []


@pytest.mark.parametrize("case", CASES)
def test_colour_adds_nothing_but_colour(case: str, catalogue: Catalogue) -> None:
    shown = explained(case, catalogue, "facts.json", color=True)
    assert "\x1b[" in shown
    assert explained(case, catalogue, "facts.json") == re.sub(r"\x1b\[[\d;]*m", "", shown)


def test_every_fact_that_a_cause_asks_for_can_be_found_out(catalogue: Catalogue) -> None:
    leaves = [leaf for cause in catalogue.root_causes.values() for _, leaf in leaf_conditions(cause)]
    asked = {
        leaf.fact for leaf in leaves if leaf.fact and not leaf.if_unknown
    }  # else an unknown fact is never asked for
    assert sorted(fact for fact in asked if not command_for(fact)) == []
