"""Minutes of a whole fleet: one node lies, one has a mount that hangs, one has a greedy user. The others' numbers stay exact.

Two nodes are real daemons, the others journals as daemons write them, and the fleet service pulls all ten.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.core.diagnosis.records import rfc3339
from tests.e2e.conftest import Kernel, Node, eventually
from tests.fleet.pull.nodes import Nodes, name_of, serving_nodes
from tests.fleet.running import Fleet
from tests.support.fuse_server import EVERY_CALL, FuseServer, needs_fuse

SECONDS = float(os.environ.get("GPUFAULT_TORTURE_FLEET_SECONDS", "300"))
SMALL_FILES = 3_000 if SECONDS < 3600 else 50_100  # more than are followed, which are created in minutes
LIAR, HONEST = 0, range(1, 8)
HUNG, GREEDY = "hung", "greedy"
ALICE, MALLORY = 2001, 2002
LINES = 'gpufault_lines_matched_total{{signature="e2e_crash",source="{}"}}'
OPEN = 'gpufault_incidents_open{signature="e2e_crash"}'
TICK_SECONDS = 0.5
PAGES = ("/", "/causes", "/nodes", "/quality", "/api/v1/incidents?limit=10", "/api/v1/correlation")

TIMES: list[object] = [
    -1e13, 0, 1e300, "soon", "0000-01-01T00:00:00Z", "2038-01-19T03:14:07Z", "9999-12-31T23:59:59Z", math.nan, None, [], True,
]  # fmt: skip
NAMES: list[object] = [
    *map(name_of, HONEST),
    HUNG,
    GREEDY,
    "invented",
    "\u202egro.edon",
    "x" * 100_000,
    "",
    None,
    7,
    {},
]
VALUES: list[object] = [
    None,
    -1,
    1e300,
    math.inf,
    "",
    "x" * 200_000,
    "\0\u202e<b>",
    [[]] * 1000,
    {"a": {"b": {}}},
    True,
]
FIELDS = (
    "hours", "gpu_busy_hours", "evidence", "facts", "captures", "job", "gpu", "signature", "root_cause", "lines", "text",
    "severity", "role", "verdict", "references", "offset", "last_time", "caused_by",
)  # fmt: skip


def crash(node: str, number: int, **more: object) -> dict[str, object]:
    """A record as a daemon writes it."""
    times = {"time": rfc3339(time.time()), "node": node}
    job = {"id": f"{node}-{number % 5}", "user": f"u{number % 3}"}
    return {"kind": "incident", **times, "id": f"{node}-{number}", "signature": "s", "job": job, **more}


class Liar:
    """What a node can write into its own journal."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._told = 0

    def lies(self) -> list[str]:
        return [lie for _ in range(20) for lie in (self._record(), self._bytes()) if lie]

    def _record(self) -> str:
        chance, me = self._chance, name_of(LIAR)
        self._told += 1
        kind = chance.choice(["incident", "facts", "heartbeat", "clear", "x"])
        record = crash(me, self._told, kind=kind, hours=1.0, facts={"driver_version": str(self._told)})
        match chance.randrange(5):
            case 0:
                record["time"] = chance.choice(TIMES)
            case 1:
                record["node"] = chance.choice(NAMES)
            case 2:  # an id of another's
                record["id"] = f"{name_of(chance.choice(HONEST))}-{chance.randrange(self._told)}"
            case 3:
                record |= {"signature": f"s{self._told}", "job": {"id": str(self._told)}, "gpu": str(self._told)}
            case _:
                record[chance.choice(FIELDS)] = chance.choice(VALUES)
        return json.dumps(record)

    def _bytes(self) -> str:
        if self._chance.random() < 0.9:
            return ""
        return self._chance.choice(["{", "[" * 10_000, "null", '"x"', '{"kind":"incident"}', "\0" * 100, "{}" * 100])


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with serving_nodes(tmp_path / "nodes", segment_bytes=64 << 20) as running:
        running.folder.mkdir()
        yield running


@pytest.fixture
def daemons(tmp_path: Path, mount: FuseServer) -> Iterator[dict[str, Node]]:
    """The node whose mount hangs, and the one with the greedy user."""
    roots = {HUNG: [f"{mount.point}/*.log"], GREEDY: []}
    started: dict[str, Node] = {}
    for name, others in roots.items():
        folder = tmp_path / name
        folder.mkdir()
        files = {"kind": "files", "paths": [f"{folder}/jobs/**/*.log", *others], "start": "beginning"}
        node = Node(folder, [files, {"kind": "kmsg", "path": str(Kernel(folder).path)}], node=name)
        node.wrap = ("env", "GPUFAULT_WEB_READERS=everyone")
        node.start()
        started[name] = node
    yield started
    for node in started.values():
        node.kill()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class Writers:
    """Who writes on the nodes, and how much each has written."""

    def __init__(self, nodes: Nodes, daemons: dict[str, Node], mount: FuseServer) -> None:
        self._nodes, self._daemons, self._mount = nodes, daemons, mount
        self._liar = Liar(seed=7)
        self._kernels = {name: Kernel(node.folder) for name, node in daemons.items()}
        self._small_files = 0
        self.ids = {name_of(number): set[str]() for number in HONEST}
        self.lines = dict.fromkeys(daemons, 0)
        self.kernel_lines = dict.fromkeys(daemons, 0)

    def write(self, turn: int) -> None:
        for number in HONEST:
            name = name_of(number)
            record = crash(name, turn)
            self.ids[name].add(str(record["id"]))
            beat = {"kind": "heartbeat", "time": rfc3339(time.time()), "node": name, "hours": TICK_SECONDS / 3600}
            self._nodes.journals[number].append([json.dumps(record), json.dumps(beat)])
        self._nodes.journals[LIAR].append(self._liar.lies())
        for name in self._daemons:
            self._log(name, ALICE, f"job{turn // 20}", turn)
            self._kernels[name].say(f"e2e crash seq={turn} of kernel")
            self.kernel_lines[name] += 1
        append(self._mount.folder / f"far{turn // 20}.log", f"e2e crash seq={turn} of far\n")
        self.lines[HUNG] += 1
        for _ in range(math.ceil(SMALL_FILES * TICK_SECONDS / SECONDS)):
            self._small_files += 1
            self._log(GREEDY, MALLORY, f"m{self._small_files}", self._small_files)
        if turn % 40 == 10:
            self._mount.hang(*(EVERY_CALL if turn % 80 == 10 else ["read"]))
        if turn % 40 == 30:
            self._mount.go_on()

    def _log(self, node: str, uid: int, name: str, number: int) -> None:
        folder = self._daemons[node].logs / str(uid)
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.log"
        append(path, f"e2e crash seq={number} of {name}\n")
        os.chown(path, uid, uid)
        self.lines[node] += 1


def seen(service: Fleet, node: str) -> set[str]:
    """The ids of a node's incidents, of any time; also where a liar has used an id before its owner did."""
    while True:  # until none arrives between two pages, which would move a row from one to the next
        pages = [incidents(service, node, 0)]
        while pages[-1]["next_offset"]:
            pages.append(incidents(service, node, pages[-1]["next_offset"]))
        if len({page["total"] for page in pages}) == 1:
            break
    ids = [row["id"].removesuffix(f"@{node}") for page in pages for row in page["incidents"]]
    assert len(set(ids)) == len(ids) == pages[0]["total"], "none twice"
    return set(ids)


def incidents(service: Fleet, node: str, offset: int) -> dict[str, Any]:
    return service.json(f"incidents?node={node}&start=1&end=99999999999&limit=500&offset={offset}")


def rows_of(service: Fleet, names: set[str], start: float, end: float) -> dict[str, dict[str, Any]]:
    """By node. Hours are sums, whose last digits depend on the order in which heartbeats arrived."""
    rows = service.json(f"nodes?start={start:.0f}&end={end:.0f}&limit=500")["nodes"]
    return {
        row["node"]: {key: round(value, 9) if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
        if row["node"] in names
    }


@needs_fuse
def test_a_liar_a_mount_that_hangs_and_a_greedy_user_leave_the_others_numbers_exact(
    nodes: Nodes, daemons: dict[str, Node], mount: FuseServer, tmp_path: Path
) -> None:
    for number in (LIAR, *HONEST):
        nodes.add(number)
    others = [{"targets": [node.address], "labels": {"node": name}} for name, node in daemons.items()]
    nodes.target_file(*others)
    flags = ("--pull.interval=1s", "--refresh.interval=10s")
    service = Fleet(tmp_path, f"--pull.files={nodes.folder}/*.json", f"--store.file={tmp_path}/all.duckdb", *flags)
    writers, began, turn = Writers(nodes, daemons, mount), time.time(), 0
    pages = set[int]()
    try:
        while time.time() - began < SECONDS:
            writers.write(turn)
            if turn % 10 == 0:
                pages.add(service.ask(PAGES[turn // 10 % len(PAGES)])[0])
            turn += 1
            time.sleep(max(0.0, began + turn * TICK_SECONDS - time.time()))
        mount.go_on()

        for name, node in daemons.items():
            for source, count in (("job", writers.lines[name]), ("kernel", writers.kernel_lines[name])):
                eventually(lambda: (node.value(LINES.format(source)) or 0) >= count)  # noqa: B023
                assert node.value(LINES.format(source)) == count, (name, source)
            eventually(lambda: not node.value(OPEN))  # noqa: B023
        ids = writers.ids | {name: {str(record["id"]) for record in node.records()} for name, node in daemons.items()}
        for name in ids:
            eventually(lambda: len(seen(service, name)) >= len(ids[name]))  # noqa: B023
            assert seen(service, name) == ids[name]
        assert pages <= {200, 503}, "503: no result yet, or too many readers"
        assert seen(service, name_of(LIAR)), "its lies arrived"

        nodes.journals.pop(LIAR).close()
        (tmp_path / "control").mkdir()
        targets = nodes.target_file(*others)
        control = Fleet(
            tmp_path / "control", f"--pull.files={targets}", f"--store.file={tmp_path}/honest.duckdb", *flags
        )
        try:
            for name in ids:
                eventually(lambda: seen(control, name) == ids[name])  # noqa: B023
            end = time.time() + 60
            rows = rows_of(control, set(ids), began - 60, end)
            assert rows.keys() == set(ids)
            assert rows_of(service, set(ids), began - 60, end) == rows
        finally:
            control.process.kill()
            control.process.wait()
    finally:
        service.process.kill()
        service.process.wait()
