"""`gpufault fleet` as a process beside lying nodes, wrong clocks and greedy readers: all others see what they saw before."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.service.page_cache import MAKERS, MAX_WAITING, RETRY_SECONDS
from tests.e2e.conftest import eventually
from tests.fleet.pull.nodes import Nodes, name_of, serving_nodes
from tests.fleet.running import Fleet
from tests.support.wall_clock import WallClock

pytestmark = pytest.mark.heavy  # the service is a process

YEARS = 12 * 365 * 86400.0  # ahead of this machine's clock: 2038
DAY = 86400.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with serving_nodes(tmp_path / "nodes", segment_bytes=1 << 20) as running:
        running.folder.mkdir()
        yield running


def record(node: str, kind: str, ago: float, **more: Any) -> str:
    return json.dumps({"kind": kind, "time": rfc3339(time.time() - ago), "node": node, **more})


def crash(node: str, name: str, ago: float, **more: Any) -> str:
    return record(node, "incident", ago, id=f"{node}-{name}", signature="s", **more)


def beat(node: str, ago: float) -> str:
    return record(node, "heartbeat", ago, hours=1.0)


def seen(service: Fleet, node: str) -> int:
    """How many incidents of a node are listed, of any time."""
    return int(service.json(f"incidents?node={node}&start=1&end=99999999999&limit=1")["total"])


@pytest.mark.parametrize("liars", [("b",), tuple(f"invented{number}" for number in range(20))], ids=["half", "most"])
def test_records_from_the_future_delete_nothing_and_move_no_window(
    fleet: Callable[..., Fleet], tmp_path: Path, liars: tuple[str, ...]
) -> None:
    folder = tmp_path / "j"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in (beat("a", 600), crash("a", "1", 3000))))
    lies = [line for node in liars for line in (beat(node, -YEARS), beat(node, 60), crash(node, "2", -YEARS))]
    (folder / "b.jsonl").write_text("".join(f"{line}\n" for line in lies))
    service = fleet(f"--journal={folder}", f"--store.file={tmp_path}/store.duckdb", "--store.history=1d")
    service.reaches("refreshes_total", 1)
    service.process.terminate()
    assert service.process.wait(30) == 0
    again = fleet(f"--journal={folder}", f"--store.file={tmp_path}/store.duckdb", "--store.history=1d")
    again.reaches("refreshes_total", 1)

    assert seen(again, "a") == 1
    assert [seen(again, liar) for liar in liars] == [0] * len(liars)
    assert again.json("incidents")["total"] == 1  # of the usual window, which ends at the newest record
    assert again.json("correlation")["incidents"] == 1
    assert liars[0] in again.ask("/quality?table=ahead&format=csv")[1]


def test_a_clock_that_jumps_stops_no_pull_and_deletes_nothing(
    fleet: Callable[..., Fleet], nodes: Nodes, tmp_path: Path
) -> None:
    """Wrong at boot, set back by a day, then at 2038 for a while, and right again."""
    clock = WallClock(tmp_path)
    clock.set_ahead(DAY)
    nodes.add(0).append([beat(name_of(0), 600), crash(name_of(0), "0", 600)])
    nodes.target_file()
    environment = dict(each.split("=", 1) for each in clock.wrap[1:])
    flags = (f"--pull.files={nodes.folder}/*.json", "--pull.interval=1s", f"--store.file={tmp_path}/store.duckdb")
    service = fleet(*flags, "--store.history=1d", **environment)
    eventually(lambda: seen(service, name_of(0)) == 1, seconds=60)
    for count, ahead in enumerate((0.0, YEARS, 0.0), 2):
        clock.set_ahead(ahead)
        nodes.journals[0].append([beat(name_of(0), 0), crash(name_of(0), str(count), 0)])
        eventually(lambda count=count: seen(service, name_of(0)) == count, seconds=60)
    clock.set_ahead(YEARS)
    service.process.terminate()
    assert service.process.wait(30) == 0
    again = fleet(*flags, "--store.history=1d", **environment)  # it begins with deleting what is old
    clock.set_ahead(0.0)
    nodes.journals[0].append([crash(name_of(0), "last", 0)])
    eventually(lambda: seen(again, name_of(0)) == 5, seconds=60)


def test_reloads_in_a_loop_keep_no_correlation_from_ending(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    folder = tmp_path / "j"
    folder.mkdir()
    lines = [f"{line}\n" for number in range(20) for line in (beat(f"n{number}", 60), crash(f"n{number}", "1", 600))]
    (folder / "a.jsonl").write_text("".join(lines))
    begin = time.monotonic()
    service = fleet(f"--journal={folder}")

    def reloaded() -> bool:
        service.process.send_signal(signal.SIGHUP)
        return (service.metric("refreshes_total") or 0) >= 1

    eventually(reloaded, seconds=240)
    assert service.json("correlation")["incidents"] == 20
    assert service.log.read_text().count("configuration applied") <= time.monotonic() - begin + 1  # one a second


def test_readers_with_ever_other_windows_keep_no_kept_page_waiting(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    folder = tmp_path / "j"
    folder.mkdir()
    lines = [crash(f"n{number % 50}", str(number), 60.0 * number, job={"id": str(number)}) for number in range(20_000)]
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    service = fleet(f"--journal={folder}", "--refresh.interval=1h")
    eventually(lambda: service.json("incidents")["total"] or None, seconds=120)
    service.reaches("refreshes_total", 1)
    service.ask("/")
    now = int(time.time())

    def read(reader: int) -> list[tuple[int, str | None]]:
        answers = [service.ask(f"/?window=1d&end={now - 48 * turn - reader}") for turn in range(4)]
        return [(status, headers.get("retry-after")) for status, _, headers in answers]

    with ThreadPoolExecutor(48) as readers:
        flood = [readers.submit(read, reader) for reader in range(48)]
        kept = []
        while not all(each.done() for each in flood):
            begin = time.monotonic()
            status, _, headers = service.ask("/")
            kept.append((status, "age" in headers, time.monotonic() - begin))
    answers = [answer for each in flood for answer in each.result()]
    assert {status for status, _, _ in kept} == {200}
    assert set(answers) == {(200, None), (503, str(RETRY_SECONDS))}
    assert MAX_WAITING > MAKERS
    assert service.ask("/?window=3d")[0] == 200  # there is room again
