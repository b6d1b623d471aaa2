"""What holds for every test: how hard Hypothesis tries, and our one flag. Fixtures live beside the tests that use them."""

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.leftovers import left_behind, running
from tests.support.programs import skipped_tests
from tests.support.slurm import slurm
from tests.support.tailing import close_nodes

__all__ = ["slurm"]  # a fixture for whoever asks for it

# No deadline: on a shared machine with two cores a single slow example says nothing about the code.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, max_examples=250, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@atexit.register
def _hide_leak_report() -> None:
    """DuckDB's binding reports as leaked what threads of pytest-xdist still hold when Python exits: sixty lines a worker."""
    if "duckdb" in sys.modules:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user reaches, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def deep_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with as many in each other as a path can name, nearly, and a file `deepest.log` in the last."""
    bottom = str(tmp_path / "deep")
    below = "/d" * ((os.pathconf(tmp_path, "PC_PATH_MAX") - len(bottom) - 100) // 2)
    subprocess.run(["mkdir", "-p", bottom + below], check=True)
    Path(f"{bottom}{below}/deepest.log").touch()
    yield tmp_path / "deep"
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)  # shutil.rmtree calls itself for each of them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.heavy)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="write what comes now as what is expected")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in skipped_tests(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    """Fail a test that leaves a thread or a child process behind. Fixtures of a wider scope keep theirs."""
    before = running()
    yield
    assert left_behind(before) == []


@pytest.fixture(autouse=True)
def _nodes_are_closed(_nothing_runs_on: None) -> Iterator[None]:
    yield
    close_nodes()


@pytest.fixture(autouse=True, scope="session")
def _scans_leave_nothing_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a stopped scan leaves to go on with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
