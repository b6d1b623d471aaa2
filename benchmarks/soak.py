"""A daemon under steady work for as long as you like: `make soak`, half an hour; `make soak ARGS='--minutes 5'`.

Jobs come, write, crash now and then, rotate and go, kernel lines flow, and a scraper asks every second. Prints a row at
equal steps: memory, descriptors, threads, lag, and lines written and counted. Ends with 1 if a line is missing or counted
twice, if memory in the last quarter is above that of the second by more than 5%, or if descriptors or threads grew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from dataclasses import dataclass
from pathlib import Path

GPUFAULT = str(Path(sys.executable).parent / "gpufault")
STEPS = 24
JOBS = 50  # at once
GROWTH = 1.05

PACK = """
pack: soak
signatures:
  - id: soak_line
    title: A numbered line
    vendor: any
    layer: host
    severity: error
    sources: [job, kernel]
    patterns: ['soak line seq=(?P<seq>[0-9]+) ends']
    examples: ['soak line seq=1 ends']
    near_misses: ['soak line']
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon takes at one moment."""

    minutes: float
    rss_mib: float
    descriptors: int
    threads: int
    lag_bytes: float
    counted: int
    written: int

    def row(self) -> str:
        return (
            f"{self.minutes:8.1f} {self.rss_mib:8.1f} {self.descriptors:6} {self.threads:8} {self.lag_bytes:10.0f}"
            f" {self.written:12} {self.counted:12}"
        )


class Work:
    """What goes on on the node: jobs' logs and the kernel's, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.written = 0
        self._logs = folder / "jobs"
        self._logs.mkdir()
        self._fifo = folder / "kmsg"
        os.mkfifo(self._fifo)
        self._kernel = os.open(self._fifo, os.O_RDWR)  # neither blocks nor ends
        self._records = 0
        self._jobs: deque[Path] = deque()
        self._number = 0
        self._dice = random.Random(1)

    def go_on(self) -> None:
        """A tenth of a second's work."""
        while len(self._jobs) < JOBS:
            self._number += 1
            self._jobs.append(self._logs / f"slurm-{self._number}.out")
        for path in self._dice.sample(list(self._jobs), 10):
            with path.open("ab") as log:
                log.write(b"step 12 loss 0.5 throughput 812 samples/s\n" * 200 + self._lines(self._dice.randrange(3)))
            if path.stat().st_size > 200_000:
                self._rotate(path)
        text = self._lines(1).strip() if self._dice.random() < 0.1 else b"usb 1-1: new device"
        self._records += 1
        os.write(self._kernel, b"3,%d,%d,-;%s\n" % (self._records, self._records, text))
        if self._dice.random() < 0.05:
            self._jobs.popleft()  # its log stays for a while

    def clean_up(self, age: float) -> None:
        """Delete what no job has written to for a while."""
        kept = set(self._jobs)
        for path in self._logs.iterdir():
            if path not in kept and path.stat().st_mtime < time.time() - age:
                path.unlink()

    def close(self) -> None:
        os.close(self._kernel)

    def _lines(self, count: int) -> bytes:
        numbers = range(self.written + 1, self.written + count + 1)
        self.written += count
        return b"".join(b"soak line seq=%d ends\n" % number for number in numbers)

    def _rotate(self, path: Path) -> None:
        old = path.with_name(f"{path.name}.{self._dice.randrange(10**9)}")
        if self._dice.random() < 0.5:
            path.rename(old)
        else:
            shutil.copyfile(path, old)
            os.truncate(path, 0)


class Daemon:
    """The real one, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        packs = folder / "packs"
        packs.mkdir()
        (packs / "soak.yaml").write_text(PACK)
        config = {
            "node": "soak",
            "state_dir": str(folder / "state"),
            "sources": [
                {"kind": "files", "paths": [f"{folder}/jobs/*.out"]},
                {"kind": "kmsg", "path": str(folder / "kmsg")},
            ],
            "signatures": {"dirs": [str(packs)]},
        }
        (folder / "config.yaml").write_text(json.dumps(config))
        command = [GPUFAULT, "run", "--config.file", str(folder / "config.yaml")]
        self._log = (folder / "daemon.log").open("wb+")
        self._process = subprocess.Popen([*command, "--web.listen-address", "127.0.0.1:0"], stderr=self._log)
        self._url = self._listening(folder / "daemon.log")

    def sample(self, minutes: float, written: int) -> Sample:
        process = Path(f"/proc/{self._process.pid}")
        status = process.joinpath("status").read_text()
        numbers = {name: int(value) for name, value in re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.MULTILINE)}
        metrics = self.metrics()
        return Sample(
            minutes,
            numbers["VmRSS"] / 1024,
            len(list(process.joinpath("fd").iterdir())),
            numbers["Threads"],
            sum(metrics.get(f'gpufault_source_lag_bytes{{source="{name}"}}', 0.0) for name in ("files", "kmsg")),
            self.counted(metrics),
            written,
        )

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}

    @staticmethod
    def counted(metrics: dict[str, float]) -> int:
        return int(
            sum(value for name, value in metrics.items() if "lines_matched_total" in name and "soak_line" in name)
        )

    def stop(self) -> float:
        """Seconds from SIGTERM to the end."""
        started = time.monotonic()
        self._process.terminate()
        self._process.wait(timeout=60)
        self._log.close()
        return time.monotonic() - started

    def _listening(self, log: Path) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = log.read_text()
            found = re.search(r"event=listening .*?(127\.0\.0\.1:\d+)", text)
            if found and "event=watching" in text:
                return f"http://{found[1]}/metrics"
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"the daemon did not start:\n{log.read_text()}")


def grown(samples: list[Sample]) -> list[str]:
    """What is not flat: the last quarter against the second, the first being warm-up."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    for name, limit in (("rss_mib", GROWTH), ("descriptors", 1.2), ("threads", 1.0)):
        before, after = (statistics.median(getattr(s, name) for s in part) for part in (early, late))
        if after > before * limit:
            found.append(f"{name} grew from {before:.1f} to {after:.1f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes: float = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="gpufault-soak-") as name:
        folder = Path(name)
        work = Work(folder)
        daemon = Daemon(folder)
        print(" minutes  RSS MiB    fds  threads  lag bytes      written      counted")
        samples: list[Sample] = []
        started = time.monotonic()
        while (passed := (time.monotonic() - started) / 60) < minutes:
            work.go_on()
            if passed >= len(samples) * minutes / STEPS:
                work.clean_up(age=60.0)
                samples.append(daemon.sample(passed, work.written))
                print(samples[-1].row(), flush=True)
            time.sleep(0.1)
        deadline = time.monotonic() + 60
        while (counted := daemon.counted(daemon.metrics())) < work.written and time.monotonic() < deadline:
            time.sleep(0.5)
        faults = grown(samples)
        if counted != work.written:
            faults.append(f"{work.written} lines written, {counted} counted")
        stopped = daemon.stop()
        if stopped > 10:
            faults.append(f"took {stopped:.1f} s to stop")
        work.close()
    print("\n".join(faults) or f"flat; {counted} lines, each counted once; stopped in {stopped:.1f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
