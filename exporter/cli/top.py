"""`gpufault top`: what is happening now, by cause and node."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from exporter.cli import daemon_client
from exporter.cli.options import seconds
from exporter.core.text.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

    from exporter.core.catalogue.loader import Catalogue
    from exporter.core.diagnosis.record_schema import IncidentRecord

DESCRIPTION = (
    "Shows the root incidents of the last hour by cause and node, refreshed every few seconds. Reads node daemons or a fleet "
    "service. Exit code 3 if none of them answers."
)
URL = "http://127.0.0.1:9873"
MAX_INCIDENTS = 1000  # of one address
TIMEOUT_SECONDS = 10.0
NODES = 5  # named in a row


class Collected(NamedTuple):
    """Root incidents with the titles of their causes, what went wrong, and whether any address answered."""

    incidents: list[tuple[str, IncidentRecord]]
    failures: list[str]
    answered: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="*", metavar="URL", help=f"node daemons, or a fleet service; default: {URL}")
    parser.add_argument("--since", default="1h", metavar="1h", help="how far back (default: 1h)")
    parser.add_argument("--interval", default="5s", metavar="5s", help="between two refreshes (default: 5s)")
    parser.add_argument("--once", action="store_true", help="print one table, then exit")
    daemon_client.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    since, interval = seconds("--since", options.since), seconds("--interval", options.interval)
    console = Console()
    collected = collect(options, time.time() - since)
    for failure in collected.failures:
        print(f"gpufault top: {failure}", file=sys.stderr)
    if options.once or not collected.answered:
        if collected.answered:
            console.print(table(collected.incidents, options.since))
        return 0 if collected.answered else 3
    with Live(table(collected.incidents, options.since), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            collected = collect(options, time.time() - since)
            live.update(table(collected.incidents, options.since, collected.failures), refresh=True)


def collect(options: argparse.Namespace, start: float) -> Collected:
    """The root incidents since `start` from all addresses. An incident that does not pass is counted as a failure."""
    from exporter.core.diagnosis.record_schema import RefusedRecord, incident_of

    incidents: dict[tuple[str, str | None, str], tuple[str, IncidentRecord]] = {}
    failures: list[str] = []
    answered = False
    for url in options.url or [URL]:
        refused: Counter[str] = Counter()
        try:
            answer = daemon_client.incidents(url, options, start, MAX_INCIDENTS, TIMEOUT_SECONDS)
            titles = {key: str(title) for key, title in (answer.get("titles") or {}).items()}
            for given in answer["incidents"]:
                try:
                    incident = incident_of(given)
                except RefusedRecord as error:
                    refused[error.reason] += 1
                    continue
                if incident.role == "root":
                    title = _title(incident, given.get("cause"), titles)
                    incidents[incident.node, incident.id, title] = title, incident
            answered = True
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            why = daemon_client.failure_of(error) if isinstance(error, OSError) else error
            failures.append(printable(f"{url}: {why}"))
        failures += [printable(f"{url}: incidents refused: {count}: {why}") for why, count in sorted(refused.items())]
    return Collected(list(incidents.values()), failures, answered)


def table(incidents: Iterable[tuple[str, IncidentRecord]], since: str, failures: Sequence[str] = ()) -> Table:
    """Causes, the most frequent one first, with the nodes that have most of each."""
    from rich.table import Table
    from rich.text import Text

    by_cause: dict[str, list[IncidentRecord]] = {}
    for title, incident in incidents:
        by_cause.setdefault(title, []).append(incident)
    shown = Table(
        title=f"Root incidents of the last {since}", caption="; ".join(failures) or None, title_justify="left"
    )
    for head, justify in (("Cause", "left"), ("Incidents", "right"), ("Nodes", "left"), ("Last (UTC)", "left")):
        shown.add_column(head, justify="right" if justify == "right" else "left")
    for title, group in sorted(by_cause.items(), key=lambda row: (-len(row[1]), row[0])):
        nodes = Counter(incident.node for incident in group).most_common()
        named = ", ".join(f"{node} ({count})" for node, count in nodes[:NODES])
        more = f" and {len(nodes) - NODES} more" if len(nodes) > NODES else ""
        last = datetime.fromtimestamp(max(incident.time for incident in group), UTC)
        cells = (title, str(len(group)), named + more, f"{last:%H:%M:%S}")
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown


def _title(incident: IncidentRecord, cause: object, titles: Mapping[str, str]) -> str:
    """The cause's title; of an unknown cause, that of the signature. cause: as a fleet service names it, without titles."""
    if isinstance(cause, str):
        return _catalogue().title(cause)
    if incident.root_cause in (None, "", "unknown"):
        return f"{titles.get(incident.signature, incident.signature)} (cause unknown)"
    return titles.get(incident.root_cause, incident.root_cause)


@cache
def _catalogue() -> Catalogue:
    from exporter.config import packs

    return packs.load()
