"""Much to read: one log of a hundred GB, a hundred logs of one, a million small ones.

Takes minutes: `make bench ARGS='--only large'`.

Disks are spared: the hundred logs are links to one, the million to a few, and the one log comes through a pipe.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.logs import FOLDER, Log, crash
from benchmarks.programs import GPUFAULT, Run, run

TITLE = "Much to read"
PIECE_MEGABYTES = 1024
A_FOLDER = 1000  # small logs
SEEDS = 101  # different small logs, one of them with a crash; file systems allow 65,000 links to each
SMALL_LINES = 36


def section(gigabytes: int, files: int, runs: int) -> Iterator[str]:
    """Two tables: what it takes to read much, and how much faster more processes are."""
    yield f"## {TITLE}\n"
    yield "`make bench ARGS='--only large --write'`."
    yield f"Large logs are as `{Log().name}`; of small ones, one in {SEEDS} shows a crash."
    yield "Peak: of the process that reads and joins. Each as one process, on one core.\n"
    yield "| logs | read | incidents | peak MiB | MB for each second of CPU |"
    yield "|---|---|---|---|---|"
    piece = Log().written(PIECE_MEGABYTES)
    size = piece.stat().st_size
    count = max(1, gigabytes * 10**9 // size)
    seeds = small_seeds()
    large = linked(FOLDER / f"large-{count}", [piece], count)
    small = linked(FOLDER / f"small-{files}", seeds, files)
    small_size = sum(seeds[number % SEEDS].stat().st_size for number in range(files))
    found = FOLDER / "found.jsonl"
    for name, length, path, fed in (
        ("one, through a pipe", size * count, "-", [str(piece)] * count),
        (f"{count} of {size / 1e9:.1f} GB", size * count, str(large), ()),
        (f"{files:,} of {small_size / files / 1e3:.1f} kB", small_size, str(small), ()),
    ):
        done = run(_scan(path, "--output", str(found)), fed=fed)
        with found.open(encoding="utf-8") as records:
            incidents = sum(1 for _ in records)
        rate = length / 1e6 / done.cpu_seconds
        yield f"| {name} | {length / 1e9:.1f} GB | {incidents:,} | {done.peak_mib:.0f} | {rate:.0f} |"
    yield ""
    yield from workers(large, size * count, runs)


def workers(folder: Path, size: int, runs: int) -> Iterator[str]:
    """By the clock: what else runs on the machine shows."""
    yield f"The {size / 1e9:.0f} GB by `--workers`, by the clock, the best of {runs} in turn:\n"
    yield "| workers | MB/s | of one's |"
    yield "|---|---|---|"
    counts = sorted({1, 2, os.cpu_count() or 1})
    taken: dict[int, list[Run]] = {count: [] for count in counts}
    for _ in range(runs):
        for count in counts:
            command = _scan(str(folder), "--output", os.devnull, "--workers", str(count))
            taken[count].append(run(command, pinned=False))
    best = {count: min(done.wall_seconds for done in taken[count]) for count in counts}
    for count in counts:
        yield f"| {count} | {size / 1e6 / best[count]:.0f} | {best[1] / best[count]:.2f} |"
    yield ""


def small_seeds() -> list[Path]:
    """The different small logs, the last of which shows a crash."""
    folder = FOLDER / "small-seeds"
    folder.mkdir(parents=True, exist_ok=True)
    seeds = [folder / f"{number}.log" for number in range(SEEDS)]
    for number, seed in enumerate(seeds):
        lines = [f"2026-11-21 01:02:03 INFO train.py:412 step {number + line} loss 2.25" for line in range(SMALL_LINES)]
        crashes = [crash(number, random.Random(number))] if seed is seeds[-1] else []
        seed.write_text("".join(f"{line}\n" for line in lines + crashes))
    return seeds


def linked(folder: Path, to: Sequence[Path], count: int) -> Path:
    """A folder with so many logs in its folders, made if it is not there; each is of a job of its own."""
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        for number in range(count):
            below = unfinished / f"{number // A_FOLDER:04}"
            if number % A_FOLDER == 0:
                below.mkdir(parents=True)
            os.link(to[number % len(to)], below / f"slurm-{number}.out")
        unfinished.rename(folder)
    return folder


def _scan(path: str, *options: str) -> list[str]:
    return [GPUFAULT, "scan", "--format", "json", "--no-progress", "--source", "job", *options, path]
