"""The guarantees page: each row names tests, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/internals/guarantees.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| promise |", "| --- |"))
]


def named_in(cell: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::test_\w+)`", cell)


def test_every_promise_names_its_tests() -> None:
    assert ROWS
    assert [row for row in ROWS if len(row) != 2 or not row[0].endswith(".")] == []
    assert [row for row in ROWS if ", ".join(f"`{test}`" for test in named_in(row[1])) != row[1] or not row[1]] == []


def test_every_test_that_a_guarantee_names_exists() -> None:
    named = {test for _, cell in ROWS for test in named_in(cell)}
    existing = {
        f"{file}::{node.name}"
        for file in {test.partition("::")[0] for test in named}
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert sorted(named - existing) == []
