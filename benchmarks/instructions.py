"""How many instructions a scan takes, by valgrind's callgrind: the same whatever else runs on the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

from benchmarks import programs
from benchmarks.logs import Log, one_line

MEGABYTES = (4, 8)  # what lies between them is work alone, without the start and what only the first crashes need
LOGS = (Log(), Log(hits=0.2), Log("CRI", hits=0.2), Log("kernel", hits=0.2))


def section(logs: tuple[Log, ...] = LOGS) -> Iterator[str]:
    """A table; nothing where there is no valgrind."""
    if not shutil.which("valgrind"):
        return
    yield "## Instructions\n"
    yield "Counted by `valgrind --tool=callgrind`, in millions a MB: what a longer log takes more.\n"
    yield "| log | ours |"
    yield "|---|---|"
    for log in logs:
        yield f"| {log.name} | {a_megabyte(log) / 1e6:.1f} |"
    yield f"\nThe start, with a log of one line: {counted(programs.scan(one_line(), 'job')) / 1e6:.0f} million.\n"


def a_megabyte(log: Log) -> float:
    """Instructions for each MB of a log."""
    few, many = (log.written(megabytes) for megabytes in MEGABYTES)
    more = (many.stat().st_size - few.stat().st_size) / 1e6
    return (counted(programs.scan(many, log.source)) - counted(programs.scan(few, log.source))) / more


def counted(command: list[str]) -> int:
    """The instructions of a whole process."""
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,  # 1 is what a scan that found something ends with
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode not in (0, 1) or not found:
        raise RuntimeError(f"valgrind ended with {done.returncode}: {done.stderr[-500:]}")
    return int(found[1])
