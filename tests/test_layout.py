"""The shape of the source: what may import what, and how long a file may be. Parses the checkout, runs none of it."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(ROOT.glob("exporter/**/*.py"))
CORE = [path for path in MODULES if path.is_relative_to(ROOT / "exporter/core")]

# What would let core wait, look at the world or speak to it. calendar, re, json and the like are welcome.
IMPURE = {"os", "pathlib", "time", "socket", "threading", "logging", "subprocess", "sqlite3"}
LONGEST_FILE_LINES = 450
LONGEST_FUNCTION_LINES = 40
MOST_FIELDS = 12

# What asks the system nothing.
NAMES_AND_TYPES_OF_OS = {"os.path", "os.stat_result", "os.fsdecode", "os.fsencode"} | {
    f"os.path.{name}" for name in ("abspath", "basename", "dirname", "join", "relpath", "split", "splitext")
}
LOG_FILES = [
    path for path in sorted(ROOT.glob("exporter/sources/files/*.py")) if path.stem not in ("filesystem", "leases")
]

# The rooms of the package, lowest first: each imports only itself and rooms before it. Reasons: docs/internals/decisions.
ROOMS = (
    "core", "process", "probes", "sources", "metrics", "store", "net", "web", "config", "node", "outputs", "scan",
    "daemon", "fleet", "kubernetes", "demo", "cli",
)  # fmt: skip
CORE_ROOMS = (
    "core.values", "core.shares", "core.collectives", "core.flight_recorder", "core.model", "core.text", "core.facts",
    "core.patterns", "core.decoding", "core.catalogue", "core.matching", "core.diagnosis", "core.authoring",
)  # fmt: skip
FLEET_ROOMS = (
    "fleet.window", "fleet.observations", "fleet.statistics", "fleet.history", "fleet.input", "fleet.pull", "fleet.results",
    "fleet.charts", "fleet.review", "fleet.report", "fleet.service",
)  # fmt: skip
SOURCE_ROOMS = (
    "sources.base", "sources.backlog", "sources.boot", "sources.node_jobs", "sources.calls", "sources.reader_thread",
    "sources.holes", "sources.files", "sources.systemd", "sources.kernel",
)  # fmt: skip


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


@cache
def imports_of(path: Path) -> set[str]:
    return set(imports(path.read_text(), ".".join(path.relative_to(ROOT).parent.parts)))


def room_of(module: str, rooms: Sequence[str]) -> str:
    """The room that a dotted name lies in: the first of `rooms` (dotted, below exporter) that it is in; of others nothing."""
    below = module.removeprefix("exporter.") if module.startswith("exporter.") else ""
    return next((room for room in rooms if below == room or below.startswith(f"{room}.")), "")


def imports_upwards(rooms: Sequence[str]) -> list[str]:
    """Each import of a room by one before it in the given order."""
    found = []
    for path in MODULES:
        room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts), rooms)
        above = rooms[rooms.index(room) + 1 :] if room else ()
        found += [f"{path.relative_to(ROOT)} imports {name}" for name in imports_of(path) if room_of(name, above)]
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os.path", {"os.path"}),
        ("def f():\n    from time import sleep", {"time", "time.sleep"}),
        ("from exporter import daemon", {"exporter", "exporter.daemon"}),
        ("from .model import Match", {"exporter.core.model", "exporter.core.model.Match"}),
        ("from ..daemon import service", {"exporter.daemon", "exporter.daemon.service"}),
        ("from .. import daemon", {"exporter", "exporter.daemon"}),
    ],
)
def test_every_way_to_write_an_import_is_seen(source: str, expected: set[str]) -> None:
    assert set(imports(source, "exporter.core")) == expected


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_takes_values_and_gives_values(path: Path) -> None:
    assert {name for name in imports_of(path) if name.partition(".")[0] in IMPURE} == set()


@pytest.mark.parametrize("path", LOG_FILES, ids=lambda path: path.name)
def test_log_files_are_looked_at_in_one_module_where_each_call_can_fail(path: Path) -> None:
    """Leases are other files: ours, in a folder of their own."""
    named = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    calls = {name for name in named if re.fullmatch(r"os(\.path)?\.\w+", name)} - NAMES_AND_TYPES_OF_OS
    assert calls | (imports_of(path) & {"fcntl", "pathlib", "resource", "shutil"}) == set()


def fields_of(node: ast.ClassDef) -> set[str]:
    """The fields that a class declares, and the attributes that its methods give to `self`."""
    declared = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    return declared | {
        target.attr
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }


def test_functions_and_classes_that_follow_logs_are_small() -> None:
    long, large = [], {}
    for path in ROOT.glob("exporter/sources/files/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION_LINES:
                long.append(f"{path.name}: {node.name}")
            elif isinstance(node, ast.ClassDef) and len(fields_of(node)) > MOST_FIELDS:
                large[node.name] = len(fields_of(node))
    assert long == []
    assert large == {}


def test_nothing_lies_loose_in_the_package() -> None:
    loose = {path.name for path in (ROOT / "exporter").glob("*.py")}
    assert loose == {"__init__.py"}
    folders = {path.relative_to(ROOT / "exporter").parts[0] for path in MODULES if path.parent != ROOT / "exporter"}
    assert folders == set(ROOMS)
    assert len(ROOMS) < 20


@pytest.mark.parametrize(
    ("folder", "rooms"),
    [("exporter/core", CORE_ROOMS), ("exporter/fleet", FLEET_ROOMS), ("exporter/sources", SOURCE_ROOMS)],
)
def test_every_room_has_a_place_in_the_order(folder: str, rooms: Sequence[str]) -> None:
    here = {f"{path.parent.name}.{path.stem}" for path in (ROOT / folder).glob("*.py") if path.stem != "__init__"}
    here |= {f"{path.parent.name}.{path.name}" for path in (ROOT / folder).iterdir() if (path / "__init__.py").exists()}
    assert here == set(rooms)


@pytest.mark.parametrize("rooms", [ROOMS, CORE_ROOMS, FLEET_ROOMS, SOURCE_ROOMS], ids=lambda rooms: rooms[0])
def test_no_room_imports_one_above_it(rooms: Sequence[str]) -> None:
    assert imports_upwards(rooms) == []


def test_no_module_is_in_a_circle() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES
    }
    needs = {name: (imports_of(path) & modules.keys()) - {name} for name, path in modules.items()}
    for name in needs:  # a package is needed with its modules, and its own __init__ may import them
        needs[name] -= {above for above in needs[name] if name.startswith(f"{above}.")}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the circle


def test_a_file_holds_one_concept() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: count for path, count in lines.items() if count > LONGEST_FILE_LINES} == {}


@pytest.mark.parametrize("path", [p for p in MODULES if "import regex" in p.read_text()], ids=lambda path: path.name)
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
