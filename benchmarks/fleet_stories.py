"""What the correlator says of fleets with one story each: `python -m benchmarks.fleet_stories [--fleets 20] [--first 0]`.

Each story of tests/fleet/stories.py, on so many seeds, of which `--first` is the first: use fresh ones to judge a change.
Prints Markdown for docs/internals/correlation.md.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor

from tests.fleet.stories import STORIES, Verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", type=int, default=20, help="of each story (default: 20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--story", default="", help="only stories whose names hold this")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--verbose", action="store_true", help="print what is false")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.fleets)
    print("| story | found | confirmed | fleets with a false finding | with a false confirmed one |")
    print("| --- | --- | --- | --- | --- |")
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, story in STORIES.items():
            if options.story not in name:
                continue
            verdicts = list(pool.map(verdict, [name] * len(seeds), seeds))
            found = f"{sum(v.found for v in verdicts)} | {sum(v.true_confirmed for v in verdicts)}"
            false = f"{sum(bool(v.false) for v in verdicts)} | {sum(bool(v.false_confirmed) for v in verdicts)}"
            print(f"| {name} | {found if story.truth else '- | -'} | {false} |", flush=True)
            if options.verbose:
                for seed, one in zip(seeds, verdicts, strict=True):
                    for said in (*one.false, *(f"CONFIRMED {text}" for text in one.false_confirmed)):
                        print(f"    {seed}: {said}")


def verdict(name: str, seed: int) -> Verdict:
    """What is said of one fleet of a story."""
    return STORIES[name].verdict(seed)


if __name__ == "__main__":
    main()
