"""What several tests of the fleet service start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.fleet.statistics.findings import Correlation
from tests.fleet.contradictions import contradictions
from tests.fleet.running import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    started: list[Fleet] = []

    def start(*arguments: str, **environment: str) -> Fleet:
        started.append(Fleet(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture(autouse=True)
def _no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result of a test is read for contradictions."""
    create = Correlation.__init__

    def create_checked(self: Correlation, **values: Any) -> None:
        create(self, **values)
        assert contradictions(self) == []

    monkeypatch.setattr(Correlation, "__init__", create_checked)
