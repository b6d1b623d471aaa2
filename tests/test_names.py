"""Names in the package: the field's words (docs/internals/glossary.md), each class and module name once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(ROOT.glob("exporter/**/*.py"))
VAGUE = frozenset(
    [
        "found",
        "each",
        "what",
        "known",
        "look",
        "looks",
        "looked",
        "said",
        "told",
        "tell",
        "tells",
        "way",
        "ways",
        "place",
        "places",
        "behind",
    ]
)
MAX_VAGUE_PERCENT = 0.5
MAX_FILES_OF_ROOM = 20


def bound_names(tree: ast.AST) -> Iterator[str]:
    """The names that a module gives: to functions, classes, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(a, *b, c=1, **d): e = 1", ["f", "a", "c", "b", "d", "e"]),
        ("class A:\n    b: int = 1", ["A", "b"]),
        ("a.b = c", ["b"]),
        ("[a for b in c]", ["b"]),
    ],
)
def test_all_names_that_a_module_gives_are_seen(source: str, names: list[str]) -> None:
    assert sorted(bound_names(ast.parse(source))) == sorted(names)


def test_words_of_names() -> None:
    assert words("_found_each") == ["found", "each"]
    assert words("WhatIsKnown") == ["what", "is", "known"]
    assert words("SHOWN_PLACES") == ["shown", "places"]


def test_identifiers_use_the_words_of_the_field() -> None:
    names = [(path, name) for path in MODULES for name in bound_names(ast.parse(path.read_text()))]
    vague = [(path, name) for path, name in names if VAGUE & set(words(name))]
    by_file = Counter(str(path.relative_to(ROOT)) for path, _ in vague)
    assert 100 * len(vague) / len(names) < MAX_VAGUE_PERCENT, by_file.most_common(20)


def test_no_class_name_stands_twice() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_name_stands_twice() -> None:
    """But for commands, whose modules are named after them."""
    named = (path for path in MODULES if path.stem not in ("__init__", "__main__") and path.parent.name != "cli")
    names = Counter(path.stem for path in named)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_room_has_a_bounded_number_of_files() -> None:
    """But the one of commands, which has a file for each."""
    files = Counter(path.parent for path in MODULES if path.stem != "__init__" and path.parent.name != "cli")
    assert {str(room.relative_to(ROOT)): count for room, count in files.items() if count > MAX_FILES_OF_ROOM} == {}
