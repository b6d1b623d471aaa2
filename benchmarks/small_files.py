"""What many small logs cost: where to find, open and recognise them takes longer than to read them."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Iterator

from benchmarks.large import linked, small_seeds
from benchmarks.logs import FOLDER
from benchmarks.programs import GPUFAULT, run


def section(files: int, runs: int) -> Iterator[str]:
    """A table by the clock, each program in turn."""
    folder = str(linked(FOLDER / f"small-{files}", small_seeds(), files))
    ours = [GPUFAULT, "scan", "--quiet", "--no-progress", folder]
    commands = {
        "ours": ours,
        "ours, `--source job`": [*ours, "--source", "job"],
        f"ours, `--workers 0` on {os.cpu_count()} cores": [*ours, "--workers", "0"],
        "rg": ["rg", "--no-config", "-c", "HSA_STATUS_ERROR", folder],
    }
    known = {name: command for name, command in commands.items() if shutil.which(command[0])}
    seconds: dict[str, list[float]] = {name: [] for name in known}
    for _ in range(runs):
        for name, command in known.items():
            seconds[name].append(run(command, pinned="--workers" not in command).wall_seconds)
    yield "## Small files\n"
    yield f"{files:,} logs of 2 kB by the clock, the start included, median of {runs} runs in turn.\n"
    yield "| program | s |"
    yield "|---|---|"
    for name in known:
        yield f"| {name} | {statistics.median(seconds[name]):.2f} |"
    yield ""
