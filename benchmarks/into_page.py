"""The command line of a benchmark whose tables stand in a page of the documentation."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
END = "<!-- End -->\n"


def main(script: str, description: str | None, page: str, lines: Callable[[], Iterable[str]]) -> None:
    """Print the lines, or write them into the page with --write, between the comment that names the script and END."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write the tables into docs/{page}")
    options = parser.parse_args()
    text = "\n".join(lines()) + "\n"
    if not options.write:
        print(text, end="")
        return
    begin = f"<!-- Written by benchmarks/{Path(script).name} --write. -->\n"
    before, _, rest = (DOCS / page).read_text().partition(begin)
    (DOCS / page).write_text(before + begin + text + END + rest.partition(END)[2])
