"""What gpufault costs, beside ripgrep, in one run: `make bench` or `python benchmarks [--megabytes 256] [--write]`.

Writes a training log with 0.005 % crash lines below .bench/, scans it with `gpufault scan` (every built-in signature) and
with `rg -c -f` and 100 literals of the same signatures, in turn, each run a whole process on one core. Then the time to
`--help`, and what an idle daemon holds resident. Prints Markdown; --write puts it into docs/performance.md. Nothing gates
on these figures.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter import __version__, packs
from exporter.core.pipeline import Pipeline

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench"
CRASH = (
    ":0:rocdevice.cpp            :2984: {us} us: [pid:196431 tid:0x7f2301dff640] Callback: Queue 0x7f2301400000 aborting"
    " with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest"
    " legal address. code: 0x29\n"
)
HITS = 0.00005
PATTERNS = 100
IDLE_SECONDS = 5.0
GPUFAULT = shutil.which("gpufault", path=str(Path(sys.executable).parent)) or "gpufault"


@dataclass(frozen=True, slots=True)
class Run:
    """One whole process."""

    seconds: float
    peak_mib: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    text = "\n".join([*scanning(options.megabytes, options.runs), *starting(options.runs), *idling()]) + "\n"
    print(text)
    if options.write:
        head = f"# Performance\n\nPrinted by `make bench ARGS=--write`: gpufault {__version__}, {machine()}.\n\n"
        (ROOT / "docs" / "performance.md").write_text(head + text, encoding="utf-8")
    return 0


def scanning(megabytes: int, runs: int) -> Iterator[str]:
    """Scan speed of ours and of ripgrep's, run by run in turn."""
    log = training_log(FOLDER / f"train-{megabytes}.log", megabytes)
    empty = FOLDER / "empty.log"
    empty.write_text("step 1\n")
    size = log.stat().st_size / 1e6
    pipeline = Pipeline(packs.load())
    commands = {
        f"gpufault scan ({len(pipeline.matcher.gates['job'])} literals)": scan(log),
        "the same, a log of one line": scan(empty),
    }
    if shutil.which("rg"):
        commands[f"rg -c -f ({PATTERNS} literals)"] = [
            "rg",
            "--no-config",
            "-j1",
            "-c",
            "-f",
            str(literals(pipeline)),
            str(log),
        ]
    timed(["cat", str(log)])  # the page cache is as warm for the first as for the last
    measured: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            measured[name].append(timed(command))
    ours, start = list(measured.values())[:2]
    yield f"## Scan: {size:.0f} MB of training log, {HITS:.3%} crash lines, one core, {runs} runs in turn\n"
    yield "| command | median s | MB/s | peak MiB | its time / ours, pair by pair |\n|---|---|---|---|---|"
    for name, done in measured.items():
        seconds = statistics.median(run.seconds for run in done)
        ratio = statistics.median(b.seconds / a.seconds for a, b in zip(ours, done, strict=True))
        rate = f"{size / seconds:.0f}" if done is not start else ""
        yield f"| `{name}` | {seconds:.2f} | {rate} | {max(run.peak_mib for run in done):.0f} | {ratio:.2f} |"
    without = statistics.median(a.seconds - b.seconds for a, b in zip(ours, start, strict=True))
    yield f"\nWithout start-up (second row): {size / without:.0f} MB/s.\n"


def starting(runs: int) -> Iterator[str]:
    seconds = statistics.median(timed([GPUFAULT, "--help"]).seconds for _ in range(runs))
    yield f"## Start\n\n`gpufault --help`: {seconds * 1000:.0f} ms.\n"


def idling() -> Iterator[str]:
    """What a daemon with nothing to do holds resident, and takes of a core."""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "jobs"
        logs.mkdir()
        for number in range(100):
            (logs / f"slurm-{number}.out").write_text("step 1\n")
        config = Path(folder) / "config.yaml"
        config.write_text(f"state_dir: {folder}/state\nsources:\n  - {{kind: files, paths: ['{logs}/*.out']}}\n")
        log = Path(folder) / "log"
        with log.open("w") as stderr:
            command = [GPUFAULT, "run", "--config.file", str(config), "--web.listen-address", "127.0.0.1:0"]
            daemon = subprocess.Popen(command, stderr=stderr)
        while "listening" not in log.read_text():
            time.sleep(0.05)
        time.sleep(1.0)
        before = cpu_seconds(daemon.pid)
        time.sleep(IDLE_SECONDS)
        share = (cpu_seconds(daemon.pid) - before) / IDLE_SECONDS
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        daemon.terminate()
        daemon.wait()
    resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    yield f"## Idle daemon, 100 files\n\n{resident:.0f} MiB resident, {share:.1%} of a core."


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
                    f"loss {dice.random():.4f} lr 1.00e-04 grad_norm {dice.random():.3f} "
                    f"tokens/s {dice.randint(9000, 12000)}\n"
                )
            out.write("".join(block))
    return path


def literals(pipeline: Pipeline) -> Path:
    """As many literals as ripgrep is to look for, evenly from all gates."""
    gates = [gate.literal.decode() for gate in pipeline.matcher.gates["job"]]
    chosen = gates[:: max(1, len(gates) // PATTERNS)][:PATTERNS]
    path = FOLDER / "literals.txt"
    path.write_text(
        "".join("".join(c if c.isalnum() or c in " _-" else f"\\x{ord(c):02x}" for c in g) + "\n" for g in chosen)
    )
    return path


def scan(log: Path) -> list[str]:
    return [GPUFAULT, "scan", "--format", "json", "--no-progress", "--source", "job", "--output", os.devnull, str(log)]


def timed(command: list[str]) -> Run:
    """One whole process on one core."""
    started = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=nowhere)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return Run(time.perf_counter() - started, usage.ru_maxrss / 1024)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return f"Python {platform.python_version()}, {cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
