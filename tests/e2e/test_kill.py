"""kill -9 under load, again and again, while logs are rotated in both ways: what was written is what was counted."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Node, eventually

LINES = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
KILLS = 10  # in each way of rotation; the hostile scenarios have as many as one has time for


class Writer(threading.Thread):
    """Writes numbered crash lines among others into several logs, and rotates them by rename or by copytruncate."""

    def __init__(self, folder: Path, rotation: str) -> None:
        super().__init__(daemon=True)
        self.paths = [folder / f"job-{number}.log" for number in range(6)]
        self._rotation = rotation
        self.rotated: set[Path] = set()  # each log once between two times that the daemon has caught up
        self.written = 0
        self.stop = threading.Event()
        self._dice = random.Random(7)
        self._rotations = 0

    def run(self) -> None:
        while not self.stop.wait(0.01):
            path = self._dice.choice(self.paths)
            with path.open("a") as log:
                for _ in range(self._dice.randrange(1, 20)):
                    log.write("step 12 loss 0.5\n" * self._dice.randrange(5))
                    self.written += 1
                    log.write(f"e2e crash seq={self.written} of {path.stem.replace('-', '_')}\n")
            if path not in self.rotated and self._dice.random() < 0.05:
                self.rotated.add(path)
                self._rotations += 1
                if self._rotation == "rename":
                    path.rename(path.with_name(f"{path.name}.{self._rotations}"))
                else:
                    path.with_name(f"{path.name}.{self._rotations}").write_bytes(path.read_bytes())
                    with path.open("r+") as log:
                        log.truncate(0)


@pytest.mark.heavy
@pytest.mark.parametrize("rotation", ["rename", "copytruncate"])
def test_no_line_is_lost_or_counted_twice_through_kills(make_node: Callable[..., Node], rotation: str) -> None:
    node = make_node()
    writer = Writer(node.logs, rotation)
    node.start()
    for path in writer.paths:  # a log that is rotated before it was ever seen is a file that lived and died unseen
        path.write_text("step 1\n")
    eventually(
        lambda: (node.value('gpufault_source_bytes_read_total{source="files"}') or 0) >= 7 * len(writer.paths) or None
    )
    writer.start()
    dice = random.Random(11)
    shown = 0.0
    for _ in range(KILLS):
        writer.stop.wait(dice.random())
        shown = max(shown, node.value(LINES) or 0.0)
        node.kill()
        node.start()
        again = node.value(LINES) or 0.0
        assert again >= shown, "a counter went back over a restart"
        written = writer.written
        eventually(lambda: (node.value(LINES) or 0.0) >= written or None)  # noqa: B023 (called at once)
        writer.rotated.clear()
    writer.stop.set()
    writer.join()

    def all_counted() -> bool | None:
        counted = node.value(LINES)
        assert counted is None or counted <= writer.written, f"{counted} counted of {writer.written}"
        return counted == writer.written or None

    eventually(all_counted, seconds=60)
