"""What gpufault costs beside ripgrep, grep and mtail, in one run: `make bench`, `make bench ARGS=--quick`, `ARGS=--write`.

Writes logs below .bench/ and scans each with `gpufault scan` (every built-in signature), `rg -c -f`, `grep -c -E -f` and
mtail (as many literals of the same signatures as the row says), in turn, each run a whole process on one core. Then floods
of crash lines of each kind, the time to start, instructions, what the daemon costs, and the pages of a large fleet. Prints
Markdown; --write puts it and its chart into docs/, each section with the commit that it was measured at. Nothing gates on
these figures: ratios of one run hold on any machine, MB/s do not. --ratios prints two of them beside those that
docs/performance.md has, for CI's log.
Left out unless named, since they take minutes to hours: `--only large` (100 GB, a million logs) and `--only pages` (simulated
fleets under the shipped alert rules; `--quick` takes one small fleet of each kind).
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

from benchmarks import daemon, fleet_service, floods, instructions, large, ordinary, pages, programs, small_files  # noqa: E402
from benchmarks.chart import chart  # noqa: E402
from benchmarks.logs import Log, one_line  # noqa: E402
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
    *((Log(kind, hits=0.0), PATTERNS) for kind in (*ordinary.OF_JOBS, *ordinary.OF_KERNELS)),
)
QUICK = (1, 6)
MANY = 500  # crash lines a MB, above which they take nearly all of the time
OURS = "gpufault"
PROGRAMS = (OURS, "rg", "grep", "mtail")
PAGE = ROOT / "docs" / "performance.md"
TITLES = {
    "scan": "Scan",
    "archives": "Archives",
    "start": "Start",
    "small": "Small files",
    "floods": "Floods by kind",
    "instructions": "Instructions",
    "daemon": "Daemon",
    "fleet": "Fleet page",
    "large": "Much to read",
    "pages": "Pages",
}
LONG = ("large", "pages")
HEAD = f"""# Performance

Written by `make bench ARGS=--write`: gpufault {__version__}. Each section is measured at one commit, which stands below it."""
NOTES = """## How to read it

Seconds of CPU, since other work may run beside it: on an idle core they are the seconds that pass. The first row of the scan
shows the rate, the others of 128 MB mostly the start: imports, the catalogue, its database, and what the first crash needs.
Instructions hardly vary from run to run; a change of a tenth there is one.

- How fast memory is decides, and it is shared on most machines: the first row varies by half from one run to the next.
- Logs of less than some 150 MB are read slower than by ripgrep, because of the start.
- A log of which a fifth are crash lines is read at a twentieth of the rate of one that has few. The work is spread over
  finding the line, its literals, its time and its verdict; nothing takes a third of it.
- In floods of some kinds a crash line costs several times as much as in others: where lines behind it belong to it, where one
  line may be graver than another, and where its text has many shapes, each of which is learnt.
- Most of what an idle daemon holds is Python, its libraries and the catalogue.
"""


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
    parser.add_argument("--megabytes", type=int, help="default: 128")
    parser.add_argument("--runs", type=int, help="default: 5")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two rows, 32 MB, 3 runs, smaller floods, fewer small files, a small fleet; nothing to be recorded",
    )
    parser.add_argument("--ratios", action="store_true", help="two ratios to ripgrep, beside the recorded ones")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md and .svg")
    parser.add_argument("--only", nargs="+", choices=TITLES, metavar="SECTION", help=f"of {', '.join(TITLES)}")
    parser.add_argument("--gigabytes", type=int, default=100, help=f"of {large.TITLE}")
    parser.add_argument("--files", type=int, default=1_000_000, help=f"of {large.TITLE}")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("--quick measures too little to be recorded; leave out --quick or --write")
    is_wheel = programs.has_compiled_packs()
    if options.write and not is_wheel:
        parser.error(f"{GPUFAULT} reads packs from YAML, which takes longer than a wheel's packs; use `make bench`")
    options.megabytes = options.megabytes or (32 if options.quick else 128)
    options.runs = options.runs or (3 if options.quick else 5)
    literals = [gate.literal.decode() for gate in Pipeline(packs.load()).matcher.gates["job"]]
    if options.ratios:
        print("".join(f"{line}\n" for line in ratios(literals)))
        return 0
    sections = {
        "scan": lambda: table(options, literals),
        "archives": lambda: archives(options.megabytes, options.runs),
        "start": lambda: starting(options.runs),
        "small": lambda: small_files.section(1000 if options.quick else 10_000, options.runs),
        "floods": lambda: floods.section(options.megabytes // 4, options.runs),
        "instructions": lambda: instructions.section(instructions.LOGS[: 2 if options.quick else None]),
        "daemon": lambda: daemon.section(quick=options.quick),
        "fleet": lambda: fleet_service.section(fleet_service.QUICK if options.quick else fleet_service.WHOLE),
        "large": lambda: large.section(options.gigabytes, options.files, options.runs),
        "pages": lambda: pages.section(quick=options.quick),
    }
    for name in options.only or [name for name in TITLES if name not in LONG]:
        at = commit()
        text = "".join(f"{line}\n" for line in sections[name]()).rstrip("\n")
        if commit() != at:
            sys.exit("another commit was checked out meanwhile; measure again")
        packs_from = "" if is_wheel else ", with packs from YAML: the start takes longer than a wheel's"
        text += f"\n\nMeasured at {at}, {machine()}{packs_from}.\n"
        print(text, flush=True)
        if options.write:
            write(name, text)
    return 0


def write(name: str, text: str) -> None:
    """Put a section into docs/performance.md, all of which is written here."""
    known = {title: part for part in re.split(r"^(?=## )", PAGE.read_text("utf-8"), flags=re.MULTILINE)
             for title in TITLES.values() if part.startswith(f"## {title}")}  # fmt: skip
    known[TITLES[name]] = text
    parts = [known[title].rstrip("\n") for title in TITLES.values() if title in known]
    PAGE.write_text("\n\n".join([HEAD, *parts, NOTES]), encoding="utf-8")


def commit() -> str:
    """The commit that is checked out, marked where files differ from it."""

    def of_git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    changed = of_git("status", "--porcelain", "--untracked-files=no", "--", "exporter", "signatures", "benchmarks")
    return f"commit {of_git('rev-parse', '--short=10', 'HEAD')}" + (" with changes" if changed else "")


def row(log: Log, literals: Sequence[str], megabytes: int, runs: int, beside: Sequence[str] = PROGRAMS[1:]) -> Measured:
    """Ours and the programs `beside` it over one log, in turn."""
    path = log.written(megabytes)
    greps = {name: command for name, command in programs.greps(path, literals).items() if name in beside}
    commands = {OURS: programs.scan(path, log.source), **greps}
    run(["cat", str(path)])  # the page cache is as warm for the first as for the last
    found: dict[str, list[Run]] = {name: [] for name in commands}
    start = []
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(run(command))
        start.append(run(programs.scan(one_line(), log.source)))
    slowest = programs.mtail(log, literals) if "mtail" in beside else None
    if slowest:
        found["mtail"] = [slowest]
    size = path.stat().st_size / 1e6
    with path.open("rb") as lines:
        crash_lines = sum(log.sign in line for line in lines)
    return Measured(f"{log.name}, {len(literals)} literals, {size:.0f} MB", size, found, start, crash_lines)


def table(options: argparse.Namespace, literals: Sequence[str]) -> Iterator[str]:
    """Rates and ratios, and their chart."""
    runs = options.runs
    measured = [
        row(log, evenly(literals, count), options.megabytes * (1 if number else LARGE), runs)
        for number, (log, count) in enumerate(ROWS)
        if not options.quick or number in QUICK
    ]
    if options.write:
        rates = {m.name: {program: m.rate(program) for program in m.runs} for m in measured}
        PAGE.with_suffix(".svg").write_text(chart(rates, PROGRAMS), encoding="utf-8")
    yield f"## Scan: one core, median of {runs} runs in turn\n"
    yield "MB for each second of CPU of whole processes."
    yield f"Ours looks for all {len(literals)} literals of its signatures in each row,"
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
    page = PAGE.read_text(encoding="utf-8")
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
    yield "## Start\n"
    yield f"CPU of whole processes, median of {runs} runs.\n"
    for name, command in (("--help", [GPUFAULT, "--help"]), ("scan", programs.scan(one_line(), "job"))):
        seconds = statistics.median(run(command).cpu_seconds for _ in range(runs))
        yield f"- `gpufault {name}`{' of one line' if name == 'scan' else ''}: {seconds * 1000:.0f} ms"
    yield ""


def machine() -> str:
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return f"Python {platform.python_version()}, {cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
