"""What every scenario of torture is held to: the real daemon has counted each numbered line once, whatever happened.

A scenario writes numbered lines through `Torture`, does something hostile, and asks for `exact` counts. The numbers end
in ten digits, and each digit has a signature of its own, so that a line that is lost does not hide one that is repeated.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Node, make_node, mount

__all__ = ["make_node", "mount"]

HERE = Path(__file__).parent

PATIENCE_SECONDS = 60.0  # the slowest look at anything comes every 10 s

SIGNATURE = """
  - id: torture_{digit}
    title: A numbered line
    vendor: any
    layer: host
    severity: error
    sources: [job, kernel]
    patterns: ['torture line seq=\\d*{digit} ends', 'CRASH seq=\\d*{digit}\\b']
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.heavy)
            item.add_marker(pytest.mark.torture)


class Torture:
    """A node, and how many lines it has to have counted."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.logs = node.logs
        self.written = [0] * 10
        self.last = 0  # the number of the last line
        signatures = "".join(SIGNATURE.format(digit=digit) for digit in range(10))
        (node.folder / "packs" / "torture.yaml").write_text(f"pack: torture\nsignatures:{signatures}")

    def line(self, ending: str = "\n") -> bytes:
        """The next line, which has to be counted."""
        self.last += 1
        self.written[self.last % 10] += 1
        return f"torture line seq={self.last} ends{ending}".encode()

    def lines(self, count: int) -> bytes:
        return b"".join(self.line() for _ in range(count))

    def lose(self, lines: bytes) -> None:
        """These lines cannot be counted by anyone."""
        for line in lines.splitlines():
            self.written[int(line.split(b"=")[1].split()[0]) % 10] -= 1

    def write(self, path: Path, count: int) -> Path:
        """As a job's writer does that opens, appends and closes."""
        with path.open("ab") as log:
            log.write(self.lines(count))
        return path

    def logrotate(self, log: Path, how: str) -> None:
        """The program itself, once, with these options."""
        self.logs.chmod(0o755)
        config, state = self.node.folder / "logrotate.conf", self.node.folder / "logrotate.state"
        config.write_text(f"{log} {{\nrotate 30\nsize 1\n{how}\n}}\n")
        config.chmod(0o600)
        subprocess.run(["logrotate", "--force", "--state", state, config], check=True)

    def start(self) -> Torture:
        self.node.start()
        return self

    def counted(self) -> list[int]:
        totals = [0] * 10
        for line in self.node.get("/metrics").splitlines():
            if line.startswith('gpufault_lines_matched_total{signature="torture_'):
                totals[int(line.split('"')[1][-1])] += int(float(line.rsplit(" ", 1)[1]))
        return totals

    def all_counted(self) -> Torture:
        """Wait until what was written is counted, for as long as more is."""
        wanted, counted, deadline = sum(self.written), -1, 0.0
        while (now := sum(self.counted())) < wanted:
            if now > counted:
                counted, deadline = now, time.monotonic() + PATIENCE_SECONDS
            assert time.monotonic() < deadline, f"{now} of {wanted} lines counted, and no more for a while"
            time.sleep(0.1)  # each look is a scrape, which costs the daemon and this process
        return self

    def exact(self, last: str = "last.log") -> None:
        """Nothing is lost and nothing is counted twice, now and after every file has been looked at anew."""
        self.all_counted()
        assert self.counted() == self.written
        self.node.stop()
        self.write(self.logs / last, 10)
        self.node.start()
        self.all_counted()
        assert self.counted() == self.written

    def dropped(self, reason: str) -> float | None:
        return self.node.value(f'gpufault_source_dropped_total{{reason="{reason}",source="files"}}')


both_watchers = pytest.mark.parametrize("watch", ["auto", "poll"])


@pytest.fixture
def watch() -> str:
    """How the daemon notices changes: by inotify, unless a test is for `both_watchers`. Tests in tests/edges poll."""
    return "auto"


@pytest.fixture
def begin(watch: str, make_node: Callable[..., Node], tmp_path: Path) -> Callable[..., Torture]:
    """Make a node that follows logs below its folder, not yet started."""

    def make(*globs: str, limits: dict[str, Any] | None = None, **source: Any) -> Torture:
        paths = [str(tmp_path / "jobs" / glob) for glob in globs or ("*.log",)]
        files = {"kind": "files", "paths": paths, "watch": watch, **source}
        return Torture(make_node([files], limits=limits or {}))

    return make


@pytest.fixture
def torture(begin: Callable[..., Torture]) -> Torture:
    """A node that follows `*.log` in its folder."""
    return begin().start()


@pytest.fixture
def followed(torture: Torture) -> tuple[Torture, Path]:
    """A log of which a hundred lines are counted."""
    log = torture.write(torture.logs / "job.log", 100)
    return torture.all_counted(), log
