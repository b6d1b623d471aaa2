"""The shape of the source: what may import what, and how long a file may be. Parses the checkout, runs none of it."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(ROOT.glob("exporter/**/*.py"))
CORE = [path for path in MODULES if path.is_relative_to(ROOT / "exporter/core")]

# What would let core wait, look at the world or speak to it. calendar, re, json and the like are welcome.
IMPURE = {"os", "pathlib", "time", "socket", "threading", "logging", "subprocess", "sqlite3"}
LONGEST_FILE_LINES = 400


def imports(source: str, package: str) -> Iterator[str]:
    """The dotted names that a module of `package` imports, wherever in it: `from a import b` gives both a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> set[str]:
    return set(imports(path.read_text(), ".".join(path.relative_to(ROOT).parent.parts)))


def part_of(module: str) -> str:
    """The part of exporter that a dotted name lies in (a folder or file right below it); of other names, nothing."""
    first, _, rest = module.partition(".")
    part = rest.partition(".")[0]
    below = ROOT / "exporter" / part
    return part if first == "exporter" and part and (below.is_dir() or below.with_suffix(".py").is_file()) else ""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os.path", {"os.path"}),
        ("def f():\n    from time import sleep", {"time", "time.sleep"}),
        ("from exporter import daemon", {"exporter", "exporter.daemon"}),
        ("from .lines import pieces", {"exporter.core.lines", "exporter.core.lines.pieces"}),
        ("from ..daemon import Daemon", {"exporter.daemon", "exporter.daemon.Daemon"}),
        ("from .. import daemon", {"exporter", "exporter.daemon"}),
    ],
)
def test_every_way_to_write_an_import_is_seen(source: str, expected: set[str]) -> None:
    assert set(imports(source, "exporter.core")) == expected


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_takes_values_and_gives_values(path: Path) -> None:
    assert {name for name in imports_of(path) if name.partition(".")[0] in IMPURE} == set()


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_knows_nothing_of_the_rest(path: Path) -> None:
    assert {part_of(name) for name in imports_of(path)} <= {"", "core"}


def test_sources_know_only_core() -> None:
    sources = [path for path in MODULES if path.is_relative_to(ROOT / "exporter/sources")]
    assert {part_of(name) for path in sources for name in imports_of(path)} <= {"", "core", "sources"}


def test_parts_stand_in_one_order_and_nothing_imports_leftwards() -> None:
    needs: dict[str, set[str]] = {}
    for path in MODULES:
        part = part_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        needs.setdefault(part, set()).update({part_of(name) for name in imports_of(path)} - {"", part})
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the cycle
    assert [part for part, needed in needs.items() if "cli" in needed] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_holds_one_concept(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE_LINES


@pytest.mark.parametrize("path", [p for p in MODULES if "regex" in imports_of(p)], ids=lambda path: path.name)
def test_a_search_for_what_a_user_wrote_has_a_time(path: Path) -> None:
    searches = {"search", "match", "fullmatch", "finditer", "findall", "sub", "subn"}
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in searches
        # our own are compiled by re, and stand in constants
        and not (isinstance(node.func.value, ast.Name) and (node.func.value.id.isupper() or node.func.value.id == "re"))
    ]
    assert [call.lineno for call in calls if "timeout" not in {word.arg for word in call.keywords}] == []
