"""Rotations of a log that the real daemon follows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.programs import needs
from tests.support.rotations import SCENARIOS, Script

from .conftest import Torture, both_watchers

Followed = tuple[Torture, Path]


def rotate(log: Path, keep: int = 9) -> None:
    """By rename, as logrotate does with `create`."""
    for number in range(keep, 0, -1):
        path = log.with_name(f"{log.name}.{number}")
        if path.exists():
            path.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(f"{log}.1")
    log.touch()


@pytest.mark.parametrize("rotations", [3, 20])
@both_watchers
def test_many_rotations_within_one_poll_8(followed: Followed, rotations: int) -> None:
    torture, log = followed
    for _ in range(rotations):
        rotate(log, keep=rotations)
        torture.write(log, 20)
    torture.exact()


class Daemon:
    """What the steps of a scenario ask of a node, of the real daemon: it looks when it likes."""

    def __init__(self, torture: Torture) -> None:
        self.torture = torture
        self._is_down = False

    def poll(self, *_seconds: float) -> None:
        """Have counted what was written."""
        if self._is_down:
            self.torture.start()
            self._is_down = False
        self.torture.all_counted()

    rescan = settle = commit = poll

    def crash(self) -> None:
        """It is down until the scenario asks for something."""
        self.torture.node.kill()
        self._is_down = True

    def restart(self) -> None:
        self.torture.node.stop()
        self._is_down = True

    @property
    def seen(self) -> list[int]:
        self.poll()
        return [digit for digit, times in enumerate(self.torture.counted()) for _ in range(times)]

    def wrote(self, data: bytes) -> None:
        for number in re.findall(rb"eq=(\d)", data):  # its line may be written in two parts
            self.torture.written[int(number)] += 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_line_counts_once(torture: Torture, name: str) -> None:
    last, steps = SCENARIOS[name]
    daemon = Daemon(torture)
    script = Script(daemon, torture.logs / "job.log", daemon.wrote)
    script.run(f"1 2; poll; {steps}")
    assert daemon.seen == [*range(1, last + 1)]
    torture.exact()


@needs("logrotate")
@pytest.mark.parametrize(
    "how", ["create", "nocreate", "copytruncate", "create\ncompress", "create\ncompress\ndelaycompress", "dateext"]
)
@both_watchers
def test_logrotate_itself(followed: Followed, how: str) -> None:
    torture, log = followed
    for round_ in range(6):
        torture.write(log, 30)
        if round_ % 3 == 2:
            torture.node.kill()
        if how != "dateext" or round_ < 1:  # two rotations in one second would have one name
            torture.logrotate(log, f"{how}\ndateformat -%Y%m%d-%s")
        torture.write(log, 20)
        if round_ % 3 == 2:
            torture.start()
    torture.exact()
