"""The result of a scan as a table: root causes and signatures with their numbers of incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from exporter.core.model import STAMPED, UNKNOWN
from exporter.core.text.printable import printable

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import Catalogue

HEADS = ("count", "jobs", "verdict", "first", "last", "root cause, or what happened where none is known")


def summary_table(roots: Sequence[Mapping[str, Any]], catalogue: Catalogue) -> str:
    """One row for each root cause (for unknown causes, each signature), the most frequent first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in roots:
        is_known = record["root_cause"] in catalogue.root_causes
        key = (record["root_cause"], "") if is_known else (UNKNOWN, record["signature"])
        groups.setdefault(key, []).append(record)
    years = {record["time"][:4] for record in roots if record["time_source"] in STAMPED}
    day = "%d %b" if len(years) == 1 else "%Y-%m"
    rows = [HEADS]
    for (cause, signature), records in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        jobs = {
            record["job"]["id"] if record["job"] else record["path"]
            for record in records
            if record["job"] or record["source"] == "job"  # a kernel log is not of one job
        }
        verdicts = {record["verdict"] for record in records}
        times = sorted(record["time"] for record in records if record["time_source"] in STAMPED)
        first, last = (
            (datetime.fromisoformat(time).strftime(day) for time in (times[0], times[-1])) if times else ("", "")
        )
        title = f"unknown: {catalogue.signatures[signature].title}" if signature else catalogue.root_causes[cause].title
        verdict = verdicts.pop() if len(verdicts) == 1 else "unclear"
        rows.append((str(len(records)), str(len(jobs)), verdict, first, last, printable(title)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = (
        "  ".join(
            cell.rjust(size) if column < 2 else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
