"""What becomes of a file that was found is chosen without changing anything, and one module makes the move."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.files.checkpoints import Checkpoints
from exporter.sources.files.moves import Begin, BeginUnlessCopied, GoOn, Leave, Planner, Revive
from exporter.sources.files.resolver import Resolver
from tests.support.tailing import Node, lines, write
from tests.support.tailing_programs import miscounted, program, run_in_memory

FILES = Path(__file__).parents[3] / "exporter/sources/files"
PROGRAMS = 15

BANNER = b"launcher: an option is at its default value\n" * 60


def planned(node: Node, path: Path) -> object:
    """The move for a file that somebody finds at a path now."""
    file = node.source._access.open(str(path))
    assert file is not None
    try:
        owner = node.source._follower.owner_of(file, node.now)
        return node.source._assigner.planner.plan(str(path), file, owner, ())
    finally:
        file.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    write(tmp_path / "a.log", BANNER + lines(1))
    return Node(tmp_path / "*.log").rescan()


def test_a_file_that_is_new_is_read_unless_it_is_a_copy(node: Node, tmp_path: Path) -> None:
    write(tmp_path / "b.log", lines(2))
    assert planned(node, tmp_path / "b.log") == BeginUnlessCopied()


def test_a_file_of_a_log_is_left_to_it(node: Node, tmp_path: Path) -> None:
    (tmp_path / "b.log").hardlink_to(tmp_path / "a.log")
    assert planned(node, tmp_path / "b.log") == Leave()


def test_a_file_with_the_bytes_of_a_log_that_is_looked_for_is_this_log(node: Node, tmp_path: Path) -> None:
    write(tmp_path / "backup", (tmp_path / "a.log").read_bytes())
    node.restart()
    (tmp_path / "a.log").unlink()
    node.poll()
    (tmp_path / "backup").rename(tmp_path / "a.log.1")
    assert planned(node, tmp_path / "a.log.1") == GoOn(next(node.source._register.table.followed()))


def test_a_log_that_was_done_with_is_revived_by_its_file(node: Node, tmp_path: Path) -> None:
    moved = (tmp_path / "a.log").rename(tmp_path / "moved")
    node.settle()
    assert planned(node, moved) == Revive(str(tmp_path / "a.log"))


def test_what_is_there_at_the_first_start_begins_at_its_last_line(tmp_path: Path) -> None:
    write(tmp_path / "a.log", lines(1))
    node = Node(tmp_path / "*.log", first_start=True, start="end")
    node.source._access.begin(0.0)
    assert planned(node, tmp_path / "a.log") == Begin(None)


@pytest.mark.parametrize(
    ("decides", "function"),
    [
        (Planner, "plan"),
        (Planner, "plan_archive"),
        (Resolver, "file_of"),
        (Resolver, "archives_of"),
        (Resolver, "replacement_of"),
    ],
)
def test_a_choice_changes_nothing(decides: type, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In programs of writing, rotating, failing and crashing."""
    choose: Callable[..., Any] = getattr(decides, function)
    unchanged = []

    def watched(chooser: Any, *arguments: Any, **named: Any) -> object:
        table = chooser._register.table if decides is Planner else chooser._table
        before = state_of(table)
        try:
            return choose(chooser, *arguments, **named)
        finally:
            unchanged.append(state_of(table) == before)

    monkeypatch.setattr(decides, function, watched)
    assert not any(miscounted(program(random.Random(seed)), run_in_memory) for seed in range(PROGRAMS))
    assert unchanged
    assert all(unchanged)


def state_of(table: Checkpoints) -> object:
    """All that is known of all logs."""
    logs = {log.origin: (log.names, log.state, log.reader, log.activity.rest_until) for log in table.followed()}
    return logs, {origin: table.at(origin) for origin in table._rows}, dict(table._by_file), dict(table._called)


def test_one_module_gives_logs_their_files_and_names() -> None:
    """Others end logs, pause them and drop them."""
    changes = {"new", "revive", "move", "name", "unname", "release"}
    callers = {
        path.name
        for path in FILES.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in changes
        and ast.unparse(node.func.value).endswith("register")
    }
    assert callers == {"follow.py"}
