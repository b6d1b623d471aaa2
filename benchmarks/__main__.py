"""What gpufault costs beside ripgrep, grep and mtail, in one run: `make bench`, `make bench ARGS=--quick`, `ARGS=--write`.

Writes logs below .bench/ and scans each with `gpufault scan` (every built-in signature), `rg -c -f`, `grep -c -E -f` and
mtail (as many literals of the same signatures as the row says), in turn, each run a whole process on one core. Then floods
of crash lines of each kind, the time to start, instructions, and what the daemon costs. Prints Markdown; --write puts it
and its chart into docs/. Nothing gates on these figures: ratios of one run hold on any machine, MB/s do not. --ratios
prints two of them beside those that docs/performance.md has, for CI's log. --large is a section of its own, since it takes
minutes: 100 GB, a million logs.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python benchmarks` finds its own parts

from benchmarks import daemon, floods, instructions, large, programs  # noqa: E402
from benchmarks.chart import chart  # noqa: E402
from benchmarks.logs import FOLDER, Log  # noqa: E402
from benchmarks.programs import GPUFAULT, Run, run  # noqa: E402
from exporter import __version__  # noqa: E402
from exporter.config import packs  # noqa: E402
from exporter.core.matching.pipeline import Pipeline  # noqa: E402

PATTERNS = 100
LARGE = 8  # times as large as the others is the first log, beside which the start matters less
ROWS: tuple[tuple[Log, int], ...] = (
    (Log(), PATTERNS),
    (Log(), PATTERNS),
    (Log(), 20),
    (Log(), 400),
    (Log(hits=0.0), PATTERNS),
    (Log(hits=0.001), PATTERNS),
    (Log(hits=0.2), PATTERNS),
    (Log(long_lines=True), PATTERNS),
    (Log("CRI"), PATTERNS),
    (Log("CRI", hits=0.2), PATTERNS),
    (Log("kernel"), PATTERNS),
    (Log("kernel", hits=0.2), PATTERNS),
)
QUICK = (1, 6)
MANY = 500  # crash lines a MB, above which they take nearly all of the time
OURS = "gpufault"
PROGRAMS = (OURS, "rg", "grep", "mtail")
BY_HAND = "<!-- What follows is written by hand, and kept. -->\n"


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: the log's size, and the runs of each program."""

    name: str
    megabytes: float
    runs: dict[str, list[Run]]
    start: list[Run]  # of ours on a log of one line
    crash_lines: int

    def rate(self, program: str) -> float:
        """MB for each second of CPU of whole processes, the median."""
        megabytes = programs.MTAIL_MEGABYTES if program == "mtail" else self.megabytes
        return megabytes / statistics.median(run.cpu_seconds for run in self.runs[program])

    @property
    def rate_without_start(self) -> float:
        return self.megabytes / self.seconds_without_start

    @property
    def seconds_without_start(self) -> float:
        """Of CPU, of ours."""
        return statistics.median(
            max(run.cpu_seconds - start.cpu_seconds, 0.001)
            for run, start in zip(self.runs[OURS], self.start, strict=True)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rows, 32 MB, 3 runs")
    parser.add_argument("--ratios", action="store_true", help="two ratios to ripgrep, beside the recorded ones")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md and .svg")
    parser.add_argument("--large", action="store_true", help=f"only the section {large.TITLE!r}")
    parser.add_argument("--gigabytes", type=int, default=100, help="of --large")
    parser.add_argument("--files", type=int, default=1_000_000, help="of --large")
    options = parser.parse_args()
    page = ROOT / "docs" / "performance.md"
    if options.large:
        text = "".join(f"{line}\n" for line in large.section(options.gigabytes, options.files, options.runs))
        print(text)
        if options.write:
            before, _, behind = _around_large(page.read_text(encoding="utf-8"))
            page.write_text(before + text + behind, encoding="utf-8")
        return 0
    if options.quick:
        options.megabytes, options.runs = 32, 3
    literals = [gate.literal.decode() for gate in Pipeline(packs.load()).matcher.gates["job"]]
    if options.ratios:
        print("".join(f"{line}\n" for line in ratios(literals)))
        return 0
    measured = [
        row(log, evenly(literals, count), options.megabytes * (1 if number else LARGE), options.runs)
        for number, (log, count) in enumerate(ROWS)
        if not options.quick or number in QUICK
    ]
    parts = [
        table(measured, options.runs, len(literals)),
        archives(options.megabytes, options.runs),
        starting(options.runs),
        floods.section(options.runs),
        instructions.section(),
        daemon.section(quick=options.quick),
    ]
    text = "".join(f"{line}\n" for part in parts for line in part)
    print(text)
    if options.write:
        head = f"# Performance\n\nPrinted by `make bench ARGS=--write`: gpufault {__version__}, {machine()}.\n\n"
        _, much, by_hand = _around_large(page.read_text(encoding="utf-8"))
        page.write_text(f"{head}{text}{much}{by_hand}", encoding="utf-8")
        rates = {m.name: {program: m.rate(program) for program in m.runs} for m in measured}
        page.with_suffix(".svg").write_text(chart(rates, PROGRAMS), encoding="utf-8")
    return 0


def _around_large(page: str) -> tuple[str, str, str]:
    """What stands in docs/performance.md before the section of --large, the section, and what is written by hand."""
    measured, _, by_hand = page.partition(BY_HAND)
    before, title, much = measured.partition(large.TITLE)
    return before, title + much, BY_HAND + by_hand


def row(log: Log, literals: Sequence[str], megabytes: int, runs: int, beside: Sequence[str] = PROGRAMS[1:]) -> Measured:
    """Ours and the programs `beside` it over one log, in turn."""
    path = log.written(megabytes)
    one_line = FOLDER / "one-line.log"
    one_line.write_text("step 1\n")
    greps = {name: command for name, command in programs.greps(path, literals).items() if name in beside}
    commands = {OURS: programs.scan(path, log.source), **greps}
    run(["cat", str(path)])  # the page cache is as warm for the first as for the last
    found: dict[str, list[Run]] = {name: [] for name in commands}
    start = []
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(run(command))
        start.append(run(programs.scan(one_line, log.source)))
    slowest = programs.mtail(log, literals) if "mtail" in beside else None
    if slowest:
        found["mtail"] = [slowest]
    size = path.stat().st_size / 1e6
    with path.open("rb") as lines:
        crash_lines = sum(log.sign in line for line in lines)
    return Measured(f"{log.name}, {len(literals)} literals, {size:.0f} MB", size, found, start, crash_lines)


def table(measured: Sequence[Measured], runs: int, literals: int) -> Iterator[str]:
    """Rates and ratios."""
    yield f"## Scan: one core, median of {runs} runs in turn\n"
    yield f"MB for each second of CPU of whole processes. Ours looks for all {literals} literals of its signatures in each row,"
    once = f"mtail: {programs.MTAIL_MEGABYTES} MB, once"
    yield f"finds, joins and diagnoses; the others count lines with one of the row's literals ({once}).\n"
    yield "![MB/s by log and program](performance.svg)\n"
    yield "| log, literals of the others | ours | without start | peak MiB | rg | grep -E | mtail | ours / rg | ours / mtail |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for m in measured:
        ours = m.rate(OURS)
        others = {program: m.rate(program) for program in PROGRAMS[1:] if program in m.runs}
        ratios = [f"{ours / others[p]:.2g}" if p in others else "" for p in ("rg", "mtail")]
        cells = [
            m.name,
            f"{ours:.0f}",
            f"{m.rate_without_start:.0f}",
            f"{max(r.peak_mib for r in m.runs[OURS]):.0f}",
            *(f"{others[program]:.3g}" if program in others else "" for program in PROGRAMS[1:]),
            *ratios,
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "A crash line, where a fifth are such lines (the ordinary ones between them counted in), without the start:\n"
    for m in measured:
        if m.crash_lines > MANY * m.megabytes:
            yield f"- {m.name}: {m.seconds_without_start * 1e6 / m.crash_lines:.1f} µs of CPU"
    yield ""


def ratios(literals: Sequence[str]) -> Iterator[str]:
    """What is asked after each change: a regression shows as a ratio well below the recorded one."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    yield "ours / rg, MB for each second of CPU, median of 3 runs in turn:"
    for log in (Log(), Log(hits=0.2)):
        m = row(log, evenly(literals, PATTERNS), 128, 3, beside=("rg",))
        recorded = re.search(rf"^\| {re.escape(m.name)} \|(?:[^|]*\|){{6}}\s*([\d.e+-]+) \|", page, re.MULTILINE)
        yield f"  {m.name}: {m.rate(OURS) / m.rate('rg'):.2g}, recorded {recorded[1] if recorded else 'nowhere'}"


def evenly(literals: Sequence[str], count: int) -> list[str]:
    """So many of the literals, from all over them."""
    return list(literals[:: max(1, len(literals) // count)][:count])


def archives(megabytes: int, runs: int) -> Iterator[str]:
    """One log, packed by each program that is installed, and read from the archive."""
    log = Log()
    path = log.written(megabytes)
    yield "## Archives\n"
    yield f"MB of log for each second of CPU, `{log.name}`, {path.stat().st_size / 1e6:.0f} MB, the start included.\n"
    yield "| archive | ours |"
    yield "|---|---|"
    for program, ending in (("gzip", ".gz"), ("zstd", ".zst"), ("bzip2", ".bz2"), ("xz", ".xz")):
        packed = path.with_name(path.name + ending)
        if not packed.exists():
            if not shutil.which(program):
                continue
            subprocess.run([program, "--keep", "--quiet", str(path)], check=True)
        seconds = statistics.median(run(programs.scan(packed, log.source)).cpu_seconds for _ in range(runs))
        yield f"| {ending} | {path.stat().st_size / 1e6 / seconds:.0f} |"
    yield ""


def starting(runs: int) -> Iterator[str]:
    """Until a command has done nothing."""
    one_line = FOLDER / "one-line.log"
    yield "## Start\n"
    for name, command in (("--help", [GPUFAULT, "--help"]), ("scan", programs.scan(one_line, "job"))):
        seconds = statistics.median(run(command).wall_seconds for _ in range(runs))
        yield f"- `gpufault {name}`{' of one line' if name == 'scan' else ''}: {seconds * 1000:.0f} ms"
    yield ""


def machine() -> str:
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return f"Python {platform.python_version()}, {cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
