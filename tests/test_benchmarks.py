"""What `make bench` refuses to record, and what it says beside figures that a wheel would not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import reports
from exporter.core.catalogue.reports import SettledReport

ROOT = Path(__file__).parent.parent
CODE = """
import sys
_, root, packs_from, *options = sys.argv
sys.path.insert(0, root)
from benchmarks import __main__ as bench
bench.programs.has_compiled_packs = lambda: packs_from == "wheel"
bench.packs.load = lambda: bench.packs.loader.load_packs([])
bench.starting = lambda runs: ["## Start"]
bench.commit = lambda: "a commit"
sys.argv = ["bench", *options]
sys.exit(bench.main())
"""


def bench(packs_from: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", CODE, str(ROOT), packs_from, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("packs_from", "options", "told"),
    [
        ("wheel", ["--quick", "--write"], "--quick measures too little to be recorded; leave out --quick or --write"),
        ("YAML", ["--write"], "reads packs from YAML, which takes longer than a wheel's packs; use `make bench`"),
    ],
)
def test_figures_that_would_mislead_are_not_recorded(packs_from: str, options: list[str], told: str) -> None:
    done = bench(packs_from, *options, "--only", "start")
    assert (done.returncode, done.stdout, told in done.stderr) == (2, "", True)


@pytest.mark.parametrize(("packs_from", "is_said"), [("wheel", False), ("YAML", True)])
def test_a_start_with_packs_from_yaml_is_said(packs_from: str, *, is_said: bool) -> None:
    done = bench(packs_from, "--quick", "--only", "start")
    assert (done.returncode, done.stderr, "packs from YAML" in done.stdout) == (0, "", is_said)


def test_a_report_is_judged_by_other_projects_only() -> None:
    """Two projects that contradict each other: each would be right by its own reports, and is wrong by the other's."""
    made = [
        SettledReport(
            address=f"https://github.com/{owner}/name/issues/{number}", signature="a", date="2024-01-01",
            domain=domain, cause="any cause", settled="fix merged",
        )
        for owner, domain in (("one", "driver"), ("two", "network")) for number in range(5)
    ]  # fmt: skip
    assert {reports.project(report) for report in made} == {"github.com/one/name", "github.com/two/name"}
    judged = reports.judge(made, reports.project, [reports.everything, reports.signature], 2.0)
    assert [(one.is_right, one.others) for one in judged] == [(False, 5)] * 10
    score = reports.Score.of(judged)
    assert (score.right, score.loss > 2) == (0.0, True)
    assert "| 10 |" in list(reports.reliability(judged))[1]


def test_the_bar_is_as_long_as_what_was_right_with_a_mark_at_what_was_expected() -> None:
    assert reports.bar(0.5, 0.25, width=8) == "==..:..."
