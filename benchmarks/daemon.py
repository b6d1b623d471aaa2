"""What the daemon costs on its node: the real process, over real files in a temporary folder.

Prints Markdown: the time to start, memory and a share of a core while nothing happens, CPU a MB while 20 files grow at
50 MB/s, and the time from a written line to its count on /metrics. `python benchmarks/daemon.py` measures only this.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that this file runs by itself, too

from benchmarks.logs import Log, crash
from benchmarks.programs import GPUFAULT

IDLE_FILES = (100, 2_000, 20_000)
IDLE_SECONDS = 30.0  # three rounds over all files
QUIET_SECONDS = 15.0  # files that were just found are looked at in every poll for ten
STREAMS = 20
MB_PER_SECOND = 50
FLOW_SECONDS = 10.0
PAUSES = (0.1, 0.02)  # seconds between two writes to a log: in blocks, and by programs that flush often
STORM_LINES_PER_SECOND = 2_000
LINES = 200
LINES_PER_SECOND = 10


class Daemon:
    """`gpufault run` over the logs of a folder, until the `with` ends."""

    def __init__(self, folder: Path, *, watch: str = "auto") -> None:
        self.logs = folder / "jobs"
        self._log = folder / "daemon.log"
        config = folder / "config.json"  # JSON is YAML
        files = {"kind": "files", "paths": [f"{self.logs}/**/*.out"], "watch": watch}
        config.write_text(json.dumps({"state_dir": f"{folder}/state", "sources": [files]}))
        self._command = [GPUFAULT, "run", "--config.file", str(config), "--web.listen-address", "127.0.0.1:0"]

    def __enter__(self) -> Self:
        begun = time.perf_counter()
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(self._command, stderr=stderr)
        while "event=watching" not in (said := self._log.read_text()):
            if self._process.poll() is not None:
                raise RuntimeError(said)
            time.sleep(0.005)
        self.start_seconds = time.perf_counter() - begun
        address = re.search(r"127\.0\.0\.1:\d+", said)
        assert address
        self._web = http.client.HTTPConnection(address[0], timeout=30)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._web.close()
        self._process.terminate()
        self._process.wait()

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """What the process holds, shared pages included."""
        rollup = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text()
        return int(_first(r"Rss:\s+(\d+)", rollup)) / 1024

    def open_files(self) -> int:
        """Descriptors, those of logs and all others."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def metrics(self) -> str:
        """One scrape."""
        self._web.request("GET", "/metrics")
        return self._web.getresponse().read().decode()


def section(*, quick: bool = False) -> Iterator[str]:
    """The part of docs/performance.md. `quick`: one row of idle files."""
    yield "## Daemon\n"
    yield "The whole process, as the kernel accounts for it. Start is until all files have been found: `event=watching`.\n"
    yield "| idle files | start, s | resident, MiB | of a core | open files |"
    yield "|---|---|---|---|---|"
    for count in IDLE_FILES[:1] if quick else IDLE_FILES:
        yield idle(count)
    yield ""
    for pause in PAUSES:
        yield flow(pause)
    yield storm()
    for watch, how in (("auto", "inotify"), ("poll", "polling, as on network file systems")):
        yield latency(watch, how)
    yield scrape()


def idle(count: int) -> str:
    """A row: a daemon with so many logs to which nobody writes."""
    with tempfile.TemporaryDirectory() as folder:
        for path in _logs(Path(folder), count):
            path.write_text(f"{path.name} begins\n" + "step 1\n" * 50)
        with Daemon(Path(folder)) as daemon:
            time.sleep(QUIET_SECONDS)
            before = daemon.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            share = (daemon.cpu_seconds() - before) / IDLE_SECONDS
            return (
                f"| {count:,} | {daemon.start_seconds:.2f} | {daemon.resident_mib():.0f} | {share:.1%}"
                f" | {daemon.open_files()} |"
            )


def flow(pause: float) -> str:
    """CPU for each MB of logs that grow, each by a write in every `pause` seconds."""
    block = Log().written(32).read_bytes()
    share = int(MB_PER_SECOND * 1_000_000 / STREAMS * pause)
    cpu, resident, behind, megabytes = _growing(
        lambda n: block[(at := n * share % (len(block) - share)) : at + share], pause
    )
    return (
        f"- {MB_PER_SECOND} MB/s into {STREAMS} files, a write each {pause * 1000:.0f} ms, {Log().hits:.3%} crash lines:"
        f" {cpu * 1000 / megabytes:.1f} ms of CPU a MB, {resident:.0f} MiB resident;"
        f" all read {behind:.1f} s after the last was written"
    )


def storm() -> str:
    """The share of a core while logs show nothing but crashes."""
    dice = random.Random(1)
    lines = [f"{crash(number, dice)}\n".encode() for number in range(STORM_LINES_PER_SECOND)]
    pause = STREAMS / STORM_LINES_PER_SECOND * 2
    cpu, _, behind, _ = _growing(lambda n: b"".join(lines[2 * n % len(lines) :][:2]), pause)
    return (
        f"- {STORM_LINES_PER_SECOND:,} crash lines a second into {STREAMS} files: {cpu / FLOW_SECONDS:.0%} of a core;"
        f" all read {behind:.1f} s after the last was written"
    )


def _growing(part: Callable[[int], bytes], pause: float) -> tuple[float, float, float, float]:
    """What the daemon takes while STREAMS logs get a part each in every `pause`: seconds of CPU, MiB resident, seconds from
    the last write until all is read, MB written.
    """
    with tempfile.TemporaryDirectory() as folder:
        outs = [path.open("wb", buffering=0) for path in _logs(Path(folder), STREAMS)]
        with Daemon(Path(folder)) as daemon:
            before, begun = daemon.cpu_seconds(), time.monotonic()
            for tick in range(round(FLOW_SECONDS / pause)):
                for number, out in enumerate(outs):
                    out.write(part(tick * STREAMS + number))
                time.sleep(max(0.0, begun + (tick + 1) * pause - time.monotonic()))
            written, ended = sum(out.tell() for out in outs), time.monotonic()
            while _sum(r"gpufault_source_bytes_read_total\{[^}]*\} (\S+)", daemon.metrics()) < written:
                time.sleep(0.05)
            taken = daemon.cpu_seconds() - before, daemon.resident_mib(), time.monotonic() - ended, written / 1e6
        for out in outs:
            out.close()
    return taken


def latency(watch: str, how: str) -> str:
    """From a line in a known log to its count in a scrape."""
    dice = random.Random(1)
    written: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = _logs(Path(folder), STREAMS)
        for path in paths:
            path.write_text("step 1\n")
        with Daemon(Path(folder), watch=watch) as daemon:

            def write() -> None:
                for _ in range(LINES):
                    time.sleep(dice.expovariate(LINES_PER_SECOND))
                    with dice.choice(paths).open("a") as out:
                        written.append(time.monotonic())
                        out.write(f"{crash(1, dice)}\n")

            writer = threading.Thread(target=write)
            writer.start()
            seen: list[float] = []
            while len(seen) < LINES:
                count = _sum(r"gpufault_lines_matched_total\{[^}]*\} (\S+)", daemon.metrics())
                seen += [time.monotonic()] * (int(count) - len(seen))
                time.sleep(0.005)
            writer.join()
    waits = sorted(after - before for before, after in zip(written, seen, strict=True))
    return f"- a line until /metrics shows it, {how}: p50 {_at(waits, 0.5):.0f} ms, p99 {_at(waits, 0.99):.0f} ms"


def scrape() -> str:
    """What a scrape of a node costs when its numbers are new."""
    with tempfile.TemporaryDirectory() as folder:
        _logs(Path(folder), 1)[0].write_text("step 1\n")
        with Daemon(Path(folder)) as daemon:
            took = []
            for _ in range(20):
                time.sleep(1.05)  # a commit comes every second
                begun = time.perf_counter()
                body = daemon.metrics()
                took.append((time.perf_counter() - begun) * 1000)
    series = sum(not line.startswith("#") for line in body.splitlines())
    return f"- a scrape: {series} series, {len(body) / 1000:.0f} kB, {statistics.median(took):.1f} ms"


def _logs(folder: Path, count: int) -> list[Path]:
    """Paths of so many logs, 100 in each folder."""
    paths = [folder / "jobs" / f"{number // 100:03}" / f"slurm-{number}.out" for number in range(count)]
    for path in paths[::100]:
        path.parent.mkdir(parents=True)
    return paths


def _sum(pattern: str, text: str) -> float:
    return sum(float(value) for value in re.findall(pattern, text))


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found
    return found[1]


def _at(waits: Sequence[float], share: float) -> float:
    """Of sorted seconds, the one that so many are below, in ms."""
    return waits[min(len(waits) - 1, int(len(waits) * share))] * 1000


if __name__ == "__main__":
    for line in section():
        print(line, flush=True)
