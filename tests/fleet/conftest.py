"""What several tests of the fleet service start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
