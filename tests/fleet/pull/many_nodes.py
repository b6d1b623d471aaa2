"""A process with many nodes: it writes their journals and serves them, until it is killed. Started again, it goes on.

Each record has the number after that of the record before, so that a reader can see whether one is missing.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from exporter.store.journal import segments_in
from tests.fleet.pull.nodes import name_of, serving_nodes


def next_number(folder: Path) -> int:
    """After the last complete record of a journal."""
    for _, path in reversed(segments_in(folder)):
        for line in reversed(path.read_bytes().split(b"\n")[:-1]):
            try:
                return int(json.loads(line)["id"].rpartition("-")[2]) + 1
            except (ValueError, LookupError):  # a record that a kill cut off
                continue
    return 0


def main(folder: str, count: str, segment_bytes: str) -> None:
    numbers = {number: next_number(Path(folder, name_of(number))) for number in range(int(count))}
    with serving_nodes(Path(folder), segment_bytes=int(segment_bytes)) as nodes:
        for number in numbers:
            nodes.add(number)
        nodes.target_file()
        chance = random.Random()
        while True:
            for number in chance.sample(list(numbers), 20):
                records = chance.randint(1, 8)
                nodes.write(number, numbers[number], records, pad="x" * chance.randint(0, 2000))
                numbers[number] += records


if __name__ == "__main__":
    main(*sys.argv[1:])
