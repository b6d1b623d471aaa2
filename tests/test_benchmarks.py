"""What `make bench` refuses to record, and what it says beside figures that a wheel would not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
