"""A log whose lines cost much is read in parts, a look at a time: all of it, once, to its end."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from exporter.core.matching.pipeline import Pipeline
from tests.support.tailing import CATALOGUE, Node, lines, write


def slow(node: Node) -> Node:
    """Each look at the clock is 0.2 s later, so that two lines a chunk are all that there is time for."""
    node.pipeline = Pipeline(CATALOGUE, engine="python", clock=itertools.count(step=0.2).__next__)
    return node


@pytest.mark.parametrize("count", [3, 60, 200])
def test_a_log_is_read_in_parts(tmp_path: Path, count: int) -> None:
    log = tmp_path / "job.log"
    write(log, lines(*range(count)))
    node = slow(Node(log)).rescan().poll(0.25, times=count * 2).poll(2.0, times=count)
    assert node.seen == list(range(count))
    assert node.stats.lag_bytes == 0


@pytest.mark.parametrize("count", [3, 60, 200])
def test_a_log_is_read_in_parts_after_it_was_deleted(tmp_path: Path, count: int) -> None:
    log = tmp_path / "job.log"
    write(log, lines(0))
    node = slow(Node(log)).rescan()
    write(log, lines(*range(1, count)))
    node.poll()
    log.unlink()
    node.poll(2.0, times=count + 60)
    assert node.seen == list(range(count))


def test_a_crash_of_three_lines_whose_second_one_never_ends_holds_up_nothing(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, b"BLOCK opens\n" + b"x" * (3 << 20) + b"\n" + lines(1))
    assert Node(log).rescan().poll(times=20).seen == [1]
