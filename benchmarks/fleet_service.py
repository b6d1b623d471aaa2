"""How fast the pages of a large fleet are while people read them, journals grow and a refresh works: `--only fleet`."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.logs import FOLDER
from benchmarks.programs import GPUFAULT

BEAT_MINUTES = 60
READERS, THINK_SECONDS = 50, 5.0
GROW_SECONDS = 30.0  # as often as the service looks for new records
ADDRESS = "127.0.0.1:29874"
LISTS = ("/causes", "/nodes", "/jobs", "/incidents", "/unknowns", "/timeline")
PAGES = ("/", "/", "/", *LISTS, "/findings", "/quality", *(f"/api/v1{path}" for path in LISTS))
WINDOWS = ("1d", "7d", "7d", "7d", "30d", "90d")
HOUR, DAY = 3600.0, 86400.0


class Size(NamedTuple):
    """Of a fleet, and how long its pages are read."""

    nodes: int = 20_000
    days: float = 90.0
    seconds: float = 90.0


WHOLE, QUICK = Size(), Size(500, 14.0, 20.0)


def section(size: Size = WHOLE) -> Iterator[str]:
    """The section of docs/performance.md."""
    folder = fleet(size)
    yield f"## Fleet page: {size.nodes:,} nodes, {size.days:.0f} days\n"
    beats = int(size.nodes * size.days * 1440 / BEAT_MINUTES)
    yield f"{beats:,} heartbeats, {_incidents(folder):,} incidents; the store has {_size(folder):.0f} MB."
    yield f"{READERS} readers open a page every {THINK_SECONDS:g} s on average, of all kinds and windows; journals grow;"
    yield "a refresh is always at work.\n"
    with service(folder) as started:
        seconds, cpu, refreshes = read(folder, size)
    every = sorted(second for found in seconds.values() for second in found)
    yield f"- first page after a restart: {started:.1f} s"
    times = f"median {_ms(every, 0.5)}, p95 {_ms(every, 0.95)}, slowest {_ms(every, 1)}"
    yield f"- {len(every):,} pages in {size.seconds:.0f} s: {times}"
    yield f"- the service took {cpu / size.seconds * 100:.0f}% of a core; {refreshes} refreshes ended meanwhile\n"
    yield "| page | read | median | p95 |"
    yield "|---|---|---|---|"
    for name, found in sorted(seconds.items()):
        yield f"| {name} | {len(found)} | {_ms(sorted(found), 0.5)} | {_ms(sorted(found), 0.95)} |"
    yield ""


def fleet(size: Size) -> Path:
    """The folder of the fleet's journals and store, made once."""
    from exporter.demo import review_case
    from exporter.demo.review_crashes import write_review
    from exporter.fleet.history.store import Store
    from exporter.fleet.history.watched import roll_up_all

    folder = FOLDER / f"fleet-{size.nodes}-{size.days:.0f}-{BEAT_MINUTES}"
    if (folder / "whole").exists():
        return folder
    # The journals have few heartbeats, since as lines they would take gigabytes; the store gets all of them by a query.
    plan = replace(review_case.plan(nodes=size.nodes, days=size.days, end=time.time() - HOUR), beat_hours=168.0)
    write_review(review_case.simulate_review(plan), folder / "journals")
    store = Store(folder / "history.duckdb")
    store.read_once(folder / "journals")
    with store.cursor() as db:
        db.execute("CREATE TEMP TABLE last AS SELECT node, max(time) AS last FROM heartbeat_rows GROUP BY node")
        db.execute("DELETE FROM heartbeat_rows")
        db.execute(
            """INSERT INTO heartbeat_rows (time, node, hours, gpu_busy_hours) SELECT t.time, node, $hours, $hours * 5.6
            FROM (SELECT $start + $hours * 3600 * unnest(range(1, $count + 1)) AS time) AS t, last
            WHERE t.time <= last.last ORDER BY t.time, node""",
            {"hours": BEAT_MINUTES / 60, "start": plan.start, "count": int(size.days * 1440 / BEAT_MINUTES)},
        )
        roll_up_all(db)
    store.close()
    (folder / "whole").touch()
    return folder


@contextmanager
def service(folder: Path) -> Iterator[float]:
    """Run the service; gives the seconds until its first page was answered. It refreshes without a pause."""
    command = [
        GPUFAULT, "fleet", f"--journal={folder}/journals", f"--store.file={folder}/history.duckdb", "--window=7d",
        "--refresh.interval=1s", f"--web.listen-address={ADDRESS}", "--log.format=json",
    ]  # fmt: skip
    begin = time.monotonic()
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            while True:
                try:
                    _get("/")
                    break
                except OSError:
                    if process.poll() is not None:
                        raise SystemExit((folder / "log").read_text()) from None
                    time.sleep(0.02)
            (folder / "pid").write_text(str(process.pid))
            yield time.monotonic() - begin
        finally:
            process.terminate()


def read(folder: Path, size: Size) -> tuple[dict[str, list[float]], float, int]:
    """Seconds of each page by kind, CPU seconds of the service, and refreshes that ended."""
    names = {
        kind: [row[key] for row in json.loads(_get(f"/api/v1/{kind}?limit=300&window=90d"))[kind]]
        for kind, key in (("nodes", "node"), ("jobs", "job"), ("incidents", "id"), ("causes", "cause"))
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    stop = threading.Event()

    def reader(number: int) -> None:
        rng = random.Random(number)
        stop.wait(rng.uniform(0, THINK_SECONDS))
        while not stop.is_set():
            kind = rng.choice([*PAGES, *(f"/{name}/…" for name in names)])
            path = kind.replace("…", rng.choice(names.get(kind.split("/")[1], [""])))
            begin = time.perf_counter()
            _get(f"{path}?window={rng.choice(WINDOWS)}")
            seconds[kind].append(time.perf_counter() - begin)
            stop.wait(rng.expovariate(1 / THINK_SECONDS))

    def grow() -> None:
        """Some nodes' next heartbeats, as new lines of a journal."""
        at = 0
        while not stop.wait(GROW_SECONDS if at else 0):
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            with (folder / "journals" / "journal-growing.jsonl").open("a") as journal:
                journal.writelines(
                    f'{{"kind": "heartbeat", "time": "{now}", "node": "n{n:04}", "hours": 0.083, "gpu_busy_hours": 0.4}}\n'
                    for n in range(at % 10, size.nodes, 10)
                )
            at += 1

    pid = int((folder / "pid").read_text())
    cpu, refreshed = _cpu_seconds(pid), _refreshes(folder)
    threads = [threading.Thread(target=reader, args=(n,)) for n in range(READERS)] + [threading.Thread(target=grow)]
    for thread in threads:
        thread.start()
    time.sleep(size.seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return seconds, _cpu_seconds(pid) - cpu, _refreshes(folder) - refreshed


def _get(path: str) -> bytes:
    with urllib.request.urlopen(f"http://{ADDRESS}{path}", timeout=120) as answer:
        return bytes(answer.read())


def _refreshes(folder: Path) -> int:
    return (folder / "log").read_text().count('"refreshed"')


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _incidents(folder: Path) -> int:
    return sum(path.read_bytes().count(b'"kind": "incident"') for path in (folder / "journals").iterdir())


def _size(folder: Path) -> float:
    return (folder / "history.duckdb").stat().st_size / 1e6


def _ms(ordered: Sequence[float], share: float) -> str:
    """A quantile in milliseconds."""
    value = (
        ordered[-1] if share == 1 or len(ordered) < 2 else statistics.quantiles(ordered, n=100)[int(share * 100) - 1]
    )
    return f"{value * 1000:.0f} ms"
