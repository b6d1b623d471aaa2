"""Random programs of writing, rotating, crashing and failing, run against the tailer over a file system in memory: how many
a minute, and which of them lose or double a line.

`python benchmarks/tailing_programs.py [--programs 100000] [--seed 1] [--workers 2]`
Each failing program is printed, shortened. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.tailing_programs import Program, miscounted, program, run_in_memory, shortened

SHOWN = 20


def failing(seed: int) -> int | None:
    """The seed, if its program loses or doubles a line."""
    return seed if miscounted(program(random.Random(seed)), run_in_memory) else None


def written(what: Program) -> str:
    """A program, one step a line."""
    steps = "".join(
        f"  {step.what}({', '.join(f'{name}={value!r}' for name, value in step.arguments.items())})\n"
        for step in what.steps
    )
    return f"{dict(what.begin)}\n{steps}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first program (default: 1)")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args(argv)
    seeds = range(asked.seed, asked.seed + asked.programs)
    began = time.monotonic()
    with multiprocessing.Pool(asked.workers) as pool:
        found = [seed for seed in pool.imap_unordered(failing, seeds, chunksize=50) if seed is not None]
    minutes = (time.monotonic() - began) / 60
    print(
        f"{asked.programs:,} programs in {minutes:.1f} minutes: {asked.programs / minutes / asked.workers:,.0f} a minute"
    )
    print(f"and worker; {len(found)} fail")
    for seed in sorted(found)[:SHOWN]:
        short = shortened(program(random.Random(seed)), run_in_memory)
        print(f"\nseed {seed}: {miscounted(short, run_in_memory)}\n{written(short)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
