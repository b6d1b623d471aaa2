"""Records of a node that lies, in every field of every kind, before every reader: nothing changes for the honest nodes.

The fields come from the schema, so a new one is tried without being listed here. With CI=true, pairs of fields are tried too.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pytest

from exporter.cli import daemon_client
from exporter.cli.main import main
from exporter.core.diagnosis.node_faults import fault_json
from exporter.core.diagnosis.record_schema import KINDS, RefusedRecord, as_line, incident_of, parse
from exporter.core.diagnosis.records import rfc3339
from exporter.core.model import Moment
from exporter.fleet.history.folder_ingest import fill
from exporter.fleet.history.insert import NewRows
from exporter.fleet.history.pulled import PullCursor, PulledPart, store_parts
from exporter.fleet.history.schema import create
from exporter.fleet.history.store import Store
from exporter.fleet.input.journals import load
from exporter.fleet.pull.step import clean
from exporter.fleet.service.lists import LISTS
from exporter.fleet.service.refresh import FleetStatus
from exporter.kubernetes.condition import condition_of
from exporter.kubernetes.events import events_of, to_create
from exporter.kubernetes.node_report import parse_report
from tests.fleet.service.test_pages import View
from tests.kubernetes.test_reporter import FAULT

NOW = 1_780_000_000.0
DAY = 86400.0
HONEST = ("n1", "n2", "n3")
MISSING = object()
UNSAFE = ("\x00", "\x1b", "\x9b", "\u202e", "\u2066", "\u200b")
WHOLE = bool(os.environ.get("CI"))
ENTITIES = 15 if WHOLE else 2  # pages of one thing, of a kind
PAIRS = 2000 if WHOLE else 200
LONG, MANY = (100_000, 5000) if WHOLE else (5000, 300)
COMMANDS = ["report --format=html", "correlate --format=json", "timeline liar", "timeline n1", "timeline text"]
COMMANDS += ["report --format=json", "report --format=md", "report --format=csv"] if WHOLE else []


def nested(depth: int, *, of: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if of == "lists" else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    MISSING, None, True, 0, -1, 1e300, -1e300, -1e13, float("nan"), float("inf"), 10**30, 2**63, "", "soon", "x" * LONG,
    f"r{''.join(UNSAFE)}z", "\ud800", "<b>\"'", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", [], {}, [None, 1, "x", [], {}], ["x"] * MANY, {f"k{n}": "x" for n in range(MANY)},
    {"what": {"a": 1}, "id": [1], "time": "soon", "kind": {}}, nested(100, of="lists"), nested(100, of="objects"),
    nested(300, of="lists"),
)  # fmt: skip


def sample(schema: dict[str, Any], of: dict[str, Any]) -> Any:
    """A value that a JSON schema allows."""
    if "$ref" in schema:
        return sample(of[schema["$ref"].rpartition("/")[2]], of)
    for one in schema.get("anyOf", ()):
        if one.get("type") != "null":
            return sample(one, of)
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    if schema["type"] == "object" and "properties" in schema:
        return {name: sample(one, of) for name, one in schema["properties"].items()}
    if schema["type"] == "object":
        return {"name": "value"}
    if schema["type"] == "array":
        return [sample(schema["items"], of)]
    time = NOW - DAY if schema.get("ge", 0) > 1e8 else 1
    return {"string": "text", "boolean": False, "integer": 1, "number": time}[schema["type"]]


@cache
def whole_record(kind: str) -> dict[str, Any]:
    """A record of a kind with all its fields."""
    schema = KINDS[kind].model_json_schema()
    return {**sample(schema, schema.get("$defs", {})), "kind": kind, "node": "liar"}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(record: dict[str, Any], path: Sequence[Any], value: Any) -> dict[str, Any]:
    """A record with another value at a path, as long as it has that path."""
    found: Any = (record := deepcopy(record))
    for key in path[:-1]:
        try:
            found = found[key]
        except (LookupError, TypeError):
            return record
    if isinstance(found, dict) and value is MISSING:
        found.pop(path[-1], None)
    elif isinstance(found, dict) or (isinstance(found, list) and found and path[-1] == 0):
        found[path[-1]] = None if value is MISSING else value
    return record


@cache
def lies() -> tuple[bytes, ...]:
    """Lines of every kind of record with each value in each field, in pairs of fields, and twice the same id or none."""
    chance = random.Random(7)
    found = [
        changed(whole_record(kind), path, value)
        for kind in KINDS
        for path in places(whole_record(kind))
        for value in VALUES
    ]
    for _ in range(PAIRS):
        record = chance.choice(found)
        found.append(changed(record, chance.choice(list(places(whole_record(record["kind"])))), chance.choice(VALUES))
                     if isinstance(record.get("kind"), str) and record["kind"] in KINDS else record)  # fmt: skip
    return tuple(json.dumps(record).encode() for record in found)


def honest() -> bytes:
    records = []
    for at, node in enumerate(HONEST):
        records.append({"kind": "facts", "time": NOW - 6 * DAY, "node": node, "facts": {"driver_version": f"{at}"}})
        records += [{"kind": "heartbeat", "time": NOW - hour * 3600, "node": node, "hours": 1} for hour in range(100)]
        records += [
            {"kind": "incident", "time": NOW - at * 7000 - n, "node": node, "id": f"{node}-{n}", "signature": "gpu_oom",
             "root_cause": "unknown", "role": "root", "job": {"id": f"{node}-job"}}
            for n in range(5)
        ]  # fmt: skip
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def honest_new_rows() -> NewRows:
    rows = NewRows()
    for record in map(parse, honest().splitlines()):
        assert record is not None
        rows.add(record)
    return rows


HONEST_ROWS = "SELECT {} FROM {} WHERE node IN ('n1', 'n2', 'n3') ORDER BY ALL"
TABLES = {
    "incidents": "id, time, node, signature, root_cause, role, job", "heartbeats": "*", "facts": "*",
    "watched_days": "node, day, hours, beats, first, last",
}  # fmt: skip


def honest_rows(db: duckdb.DuckDBPyConnection) -> list[Any]:
    return [db.execute(HONEST_ROWS.format(columns, table)).fetchall() for table, columns in TABLES.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of honest nodes and of one that lies."""
    folder = tmp_path_factory.mktemp("journals")
    (folder / "liar.jsonl").write_bytes(b"\n".join(lies()) + b"\n")
    (folder / "honest.jsonl").write_bytes(honest())
    return folder


@pytest.fixture(scope="module")
def store(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store") / "s.duckdb")
    with store.cursor() as db:
        fill(db, folder, now=NOW)
    yield store
    store.close()


def expected() -> list[Any]:
    with duckdb.connect() as db:
        create(db)
        part = PulledPart(node="n", rows=honest_new_rows(), cursor=CURSOR)
        store_parts(db, [part], NOW)
        return honest_rows(db)


CURSOR = PullCursor(segment=1, position=0, tail="", complete=False)


def refused(line: bytes) -> bool:
    try:
        parse(line)
    except RefusedRecord as error:
        return len(str(error)) < 80
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_with_all_fields_passes_whole(kind: str) -> None:
    record = parse(json.dumps(whole_record(kind)))
    assert record is not None
    assert set(json.loads(as_line(record))) == set(KINDS[kind].model_fields)


def test_every_line_passes_or_is_refused_and_what_passed_passes_again() -> None:
    for line in lies():
        try:
            record = parse(line)
        except RefusedRecord:
            continue
        if record is not None:
            assert parse(as_line(record)) == record
            assert not any(unsafe in as_line(record).decode() for unsafe in UNSAFE)


def test_a_folder_of_journals_keeps_what_honest_nodes_wrote(store: Store) -> None:
    with store.cursor() as db:
        assert honest_rows(db) == expected()
        counted = db.execute("SELECT sum(count) FROM gaps WHERE kind = 'bad_lines'").fetchone()
        assert counted == (sum(map(refused, lies())),)


def test_pulling_keeps_what_honest_nodes_wrote() -> None:
    cleaned = clean(b"\n".join(lies()), "liar")
    assert cleaned.refused.total() >= sum(map(refused, lies()))
    with duckdb.connect() as db:
        create(db)
        parts = [PulledPart(node="liar", rows=cleaned.rows, cursor=CURSOR),
                 PulledPart(node="n", rows=honest_new_rows(), cursor=CURSOR)]  # fmt: skip
        assert store_parts(db, parts, NOW) == {}
        assert honest_rows(db) == expected()


def test_every_page_and_answer_of_the_service_is_shown(store: Store) -> None:
    view = View(store, FleetStatus())
    paths = ["/", "/causes", "/quality", "/findings", "/search?q=liar", "/nodes/n1", "/nodes/liar", "/jobs/n1-job"]
    paths += [f"/{name}" for name in LISTS] + [f"/api/v1/{name}" for name in LISTS]
    paths += [f"/api/v1/{name}?format=csv" for name in LISTS]
    seed = random.randrange(1 << 31)
    print("seed of the shown values:", seed)
    for kind, column, table in (
        ("causes", "signature", "incidents"), ("causes", "root_cause", "incidents"), ("jobs", "job", "incidents"),
        ("incidents", "id", "incidents"), ("nodes", "node", "incidents"), ("nodes", "node", "facts"),
    ):  # fmt: skip
        query = (
            f"SELECT DISTINCT {column} AS it FROM {table} WHERE it != '' ORDER BY hash(it || '{seed}') LIMIT {ENTITIES}"
        )
        paths += [f"/{kind}/{quote(row['it'], safe='')}" for row in store.rows(query)]
    for path in paths:
        status, text, _ = view.get(path)
        assert status in (200, 303, 307, 404), path
        assert status != 404 or not path.startswith(("/nodes/", "/causes/", "/jobs/")), path
        assert not any(unsafe in text for unsafe in UNSAFE), path


def test_the_observations_of_honest_nodes_stay_the_same(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "honest.jsonl").write_bytes(honest())
    numbers = []
    for where in (folder, tmp_path):
        found = load(where, now=NOW, end=NOW + 1, span=7 * DAY).observed
        crashes = [found.nodes[node] for node in found.incidents.node if found.nodes[node] in HONEST]
        hours = {node: found.beats.hours[found.beats.node == found.nodes.index(node)].sum() for node in HONEST}
        numbers.append((sorted(crashes), hours))
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_end_as_they_should(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--journal", str(folder), f"--end={NOW}"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert not any(unsafe in captured.out for unsafe in UNSAFE)


def test_top_shows_what_honest_daemons_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crash = {"time": rfc3339(NOW), "node": "n1", "id": "1", "signature": "gpu_oom", "role": "root"}
    given = [json.loads(line) for line in lies() if b'"incident"' in line]
    answers: dict[str, Any] = {
        "honest": {"incidents": [crash], "titles": {"gpu_oom": "Out of memory"}},
        "liar": {"incidents": given, "titles": {"text": ["x"], "x": "\u202e"}},
        **{str(at): {"incidents": value} for at, value in enumerate(VALUES) if value is not MISSING},
        **{f"t{at}": {"incidents": [], "titles": value} for at, value in enumerate(VALUES) if value is not MISSING},
        **{f"a{at}": value for at, value in enumerate(VALUES) if value is not MISSING},
    }
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(
        daemon_client, "ask_json", lambda url, *_, **__: answers[url.removeprefix("http://").partition("/")[0]]
    )
    assert main(["top", "--once", *(f"http://{name}" for name in answers)]) == 0
    captured = capsys.readouterr()
    assert "Out of memory (cause unknown)" in captured.out
    assert "http://liar: incidents refused: " in captured.err
    assert not any(unsafe in captured.out + captured.err for unsafe in UNSAFE)


def test_an_incident_of_an_answer_passes_or_is_refused() -> None:
    for value in VALUES:
        with pytest.raises(RefusedRecord):
            incident_of(value)


def test_a_report_of_faults_is_read_or_refused_whole() -> None:
    fault = fault_json(FAULT, Moment(time=NOW, boot="b", boot_seconds=1e6))
    answer = {"node": "n1", "blind": ["text"], "faults": [fault]}
    for path in places(answer):
        for value in VALUES:
            body = json.dumps(changed(answer, path, value)).encode()
            why, report = "", None
            try:
                report = parse_report(body)
            except ValueError as error:
                why = str(error)
            assert len(why) < 200
            assert why.isprintable()
            if report is None:
                continue
            texts = json.dumps([str(condition_of(report)), *(to_create(e, "u") for e in events_of(report, {}, NOW))],
                               ensure_ascii=False)  # fmt: skip
            assert not any(unsafe in texts for unsafe in UNSAFE), (path, value)
