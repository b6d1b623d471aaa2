"""The programs that are run side by side, each as a whole process on one core."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.logs import FOLDER, Log

GPUFAULT = shutil.which("gpufault", path=str(Path(sys.executable).parent)) or "gpufault"
MTAIL_MEGABYTES = 4  # it reads 2 MB/s
_CORE = "0"


@dataclass(frozen=True, slots=True)
class Run:
    """One whole process: what it took of the CPU, and from its start to its end."""

    cpu_seconds: float
    wall_seconds: float
    peak_mib: float


def run(command: Sequence[str], *, pinned: bool = True, fed: Sequence[str] = ()) -> Run:
    """Run a command, on one core unless not `pinned`, with the files that it is `fed` on its stdin. Its output goes into a
    file: into /dev/null, grep stops at the first line it finds.
    """
    feeder = subprocess.Popen(["cat", *fed], stdout=subprocess.PIPE) if fed else None
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            ["taskset", "-c", _CORE, *command] if pinned else command,
            stdin=feeder.stdout if feeder else subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
    if feeder and feeder.stdout:
        feeder.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if feeder and feeder.wait():
        raise RuntimeError(f"{command[0]} has not read all that it was fed")
    if process.returncode not in (0, 1) or (process.returncode and command[0] == "mtail"):  # grep: 1 is nothing found
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return Run(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss / 1024)


def has_compiled_packs() -> bool:
    """Whether `gpufault` is a wheel, which has its packs compiled. A checkout reads YAML, so it starts slower."""
    code = "from exporter.config import packs; print(packs.is_compiled())"
    python = Path(GPUFAULT).with_name(Path(sys.executable).name)
    asked = subprocess.run([python, "-P", "-c", code], check=True, capture_output=True, text=True, cwd="/")
    return asked.stdout == "True\n"


def scan(log: Path, source: str) -> list[str]:
    """Our scan, with every signature."""
    return [GPUFAULT, "scan", "--format", "json", "--no-progress", "--source", source, "--output", os.devnull, str(log)]


def greps(log: Path, literals: Sequence[str]) -> dict[str, list[str]]:
    """Programs that only count lines with one of some literals, where they are installed."""
    patterns = FOLDER / f"literals-{len(literals)}.txt"
    patterns.write_text("".join(f"{_escaped(literal)}\n" for literal in literals))
    commands = {
        "rg": ["rg", "--no-config", "-j1", "-c", "-f", str(patterns), str(log)],
        "grep": ["grep", "-c", "-E", "-f", str(patterns), str(log)],
    }
    return {name: command for name, command in commands.items() if shutil.which(name)}


def mtail(log: Log, literals: Sequence[str]) -> Run | None:
    """mtail with a counter for each literal, over a log of MTAIL_MEGABYTES; None where it is not installed."""
    if not shutil.which("mtail"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        program = "".join(f"counter c{n}\n/{_escaped(text)}/ {{\n  c{n}++\n}}\n" for n, text in enumerate(literals))
        (Path(folder) / "all.mtail").write_text(program)
        return run(["mtail", "--one_shot", "--progs", folder, "--logs", str(log.written(MTAIL_MEGABYTES))])


def _escaped(literal: str) -> str:
    """As every regex dialect among them reads it. A slash would end mtail's pattern."""
    return re.sub(r"[.^$*+?()\[\]{}|\\]", r"\\\g<0>", literal).replace("/", ".")
