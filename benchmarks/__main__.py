"""Scan speed beside ripgrep's, in one run: `make bench` or `python benchmarks [--megabytes 256] [--runs 5]`.

Writes a training log with 0.005 % crash lines below .bench/, scans it with `gpufault scan` (all built-in signatures) and
with `rg -c -f` and 100 literals taken from the same signatures' gates, in turn, each run a whole process on one core.
Prints a Markdown table of medians, and the ratio of each pair of runs. Speed is shown here and gates nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from exporter import packs
from exporter.core.pipeline import Pipeline

FOLDER = Path(__file__).resolve().parent.parent / ".bench"
CRASH = (
    ":0:rocdevice.cpp            :2984: {us} us: [pid:196431 tid:0x7f2301dff640] Callback: Queue 0x7f2301400000 aborting with"
    " error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest legal"
    " address. code: 0x29\n"
)
HITS = 0.00005
PATTERNS = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    log = training_log(FOLDER / f"train-{options.megabytes}.log", options.megabytes)
    size = log.stat().st_size / 1e6
    commands = {"gpufault scan": gpufault(log)}
    if shutil.which("rg"):
        commands[f"rg -c -f ({PATTERNS} patterns)"] = [
            "rg",
            "--no-config",
            "-j1",
            "-c",
            "-f",
            str(patterns()),
            str(log),
        ]
    else:
        print("ripgrep is not installed: apt install ripgrep to compare", file=sys.stderr)
    log.read_bytes()  # the page cache is warm for the first as for the last
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.runs):
        for name, command in commands.items():
            times[name].append(timed(command))
    startup = statistics.median(
        timed(gpufault(Path(os.devnull).with_name("null-log"), empty=True)) for _ in range(options.runs)
    )
    table(size, times, startup)
    return 0


def training_log(path: Path, megabytes: int) -> Path:
    """A log as trainers write it, the same bytes each time."""
    if path.exists() and path.stat().st_size >= megabytes * 1_000_000:
        return path
    dice = random.Random(1)
    with path.open("w") as out:
        step = 0
        while out.tell() < megabytes * 1_000_000:
            block = []
            for _ in range(20_000):
                step += 1
                if dice.random() < HITS:
                    block.append(CRASH.format(us=step))
                block.append(
                    f"[rank{step % 8}]: 2026-11-21 01:02:{step % 60:02} INFO train.py:412 step {step} "
                    f"loss {dice.random():.4f} lr 1.00e-04 grad_norm {dice.random():.3f} tokens/s {dice.randint(9000, 12000)}\n"
                )
            out.write("".join(block))
    return path


def patterns() -> Path:
    """As many literals as ripgrep is to look for, from the signatures' own gates."""
    gates = [gate.literal.decode() for gate in Pipeline(packs.load()).matcher.gates]
    path = FOLDER / "patterns.txt"
    chosen = (gates * (PATTERNS // len(gates) + 1))[:PATTERNS]
    escaped = ["".join(c if c.isalnum() or c in " _-" else f"\\x{ord(c):02x}" for c in text) for text in chosen]
    path.write_text("\n".join(escaped) + "\n")
    return path


def gpufault(log: Path, *, empty: bool = False) -> list[str]:
    if empty:
        log = FOLDER / "empty.log"
        log.write_text("nothing\n")
    command = shutil.which("gpufault", path=str(Path(sys.executable).parent)) or "gpufault"
    return [command, "scan", "--format", "json", "--no-progress", "--source", "job", "--output", os.devnull, str(log)]


def timed(command: list[str]) -> float:
    """Seconds of one whole process, pinned to one core."""
    started = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {0}))
    return time.perf_counter() - started


def table(size: float, times: dict[str, list[float]], startup: float) -> None:
    ours = times["gpufault scan"]
    print(f"\n{size:.0f} MB training log, {HITS:.3%} crash lines, one core, {len(ours)} runs in turn\n")
    print("| command | median | MB/s | time of ours against it, pair by pair |\n|---|---|---|---|")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        ratio = statistics.median(a / b for a, b in zip(ours, seconds, strict=True))
        print(f"| {name} | {median:.2f} s | {size / median:.0f} | {ratio:.2f} |")
    without = size / max(statistics.median(ours) - startup, 1e-9)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"\nStart-up of gpufault (packs, database): {startup:.2f} s; without it {without:.0f} MB/s. Peak memory {peak:.0f} MiB."
    )


if __name__ == "__main__":
    sys.exit(main())
