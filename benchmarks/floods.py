"""What a crash line costs in a flood of its kind, where each has numbers and addresses of its own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks import programs
from benchmarks.crashes import OF_JOBS, OF_KERNELS
from benchmarks.logs import Log, one_line
from benchmarks.programs import run

HITS = 0.2


def section(megabytes: int, runs: int) -> Iterator[str]:
    """A table: a row a kind."""
    yield "## Floods by kind\n"
    yield f"{megabytes} MB each, a fifth of the lines, median of {runs} runs without the start: CPU for each crash line, the"
    yield "ordinary ones between two counted in, and MB for each second of CPU.\n"
    yield "| crash lines | µs | MB/s |"
    yield "|---|---|---|"
    for kind in (*OF_JOBS, *OF_KERNELS):
        log = Log(kind, hits=HITS)
        path = log.written(megabytes)
        start = statistics.median(run(programs.scan(one_line(), log.source)).cpu_seconds for _ in range(runs))
        whole = statistics.median(run(programs.scan(path, log.source)).cpu_seconds for _ in range(runs))
        with path.open("rb") as lines:
            crashes = HITS * sum(1 for _ in lines)
        seconds = whole - start
        yield f"| {kind} | {seconds / crashes * 1e6:.0f} | {path.stat().st_size / 1e6 / seconds:.0f} |"
    yield ""
