"""`gpufault top`: what is happening now, by cause and node."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from exporter.cli import daemon_client
from exporter.cli.time_arguments import seconds
from exporter.core.text.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

    from exporter.core.catalogue.loader import Catalogue

DESCRIPTION = (
    "Shows the root incidents of the last hour by cause and node, refreshed every few seconds. Reads node daemons or a fleet "
    "service. Exit code 3 if none of them answers."
)
URL = "http://127.0.0.1:9873"
MAX_INCIDENTS = 1000  # of one address
MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_SECONDS = 10.0
NODES = 5  # named in a row


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
    rows, failures = collect(options, time.time() - since)
    answered = len(failures) < len(options.url or [URL])
    for failure in failures:
        print(f"gpufault top: {failure}", file=sys.stderr)
    if options.once or not answered:
        if answered:
            console.print(table(rows, options.since))
        return 0 if answered else 3
    with Live(table(rows, options.since), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            rows, failures = collect(options, time.time() - since)
            live.update(table(rows, options.since, failures), refresh=True)


def collect(options: argparse.Namespace, start: float) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The root incidents since `start` from all addresses, with titles, and the errors of those that did not answer."""
    found: dict[str, Mapping[str, Any]] = {}
    failures: list[str] = []
    query = urlencode({"start": f"{start:.0f}", "end": f"{time.time() + 60:.0f}", "limit": MAX_INCIDENTS})
    for url in options.url or [URL]:
        base = f"{url.rstrip('/')}/api/v1/incidents"
        try:
            try:
                answer = _ask(f"{base}?since={start:.0f}&limit={MAX_INCIDENTS}", options)
            except OSError as error:
                if getattr(error, "code", None) != 400:
                    raise
                answer = _ask(f"{base}?{query}", options)  # a fleet service has other parameters
            for incident in answer["incidents"]:
                if incident.get("role") == "root":
                    found[str(incident["id"])] = {**incident, "title": _title(incident, answer.get("titles") or {})}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, daemon_client.Unusable) as error:
            failures.append(printable(f"{url}: {getattr(error, 'reason', None) or error}"))
    return list(found.values()), failures


def table(incidents: Iterable[Mapping[str, Any]], since: str, failures: Sequence[str] = ()) -> Table:
    """Causes, the most frequent one first, with the nodes that have most of each."""
    from rich.table import Table
    from rich.text import Text

    by_cause: dict[str, list[Mapping[str, Any]]] = {}
    for incident in incidents:
        by_cause.setdefault(str(incident["title"]), []).append(incident)
    shown = Table(
        title=f"Root incidents of the last {since}", caption="; ".join(failures) or None, title_justify="left"
    )
    for head, justify in (("Cause", "left"), ("Incidents", "right"), ("Nodes", "left"), ("Last (UTC)", "left")):
        shown.add_column(head, justify="right" if justify == "right" else "left")
    for title, group in sorted(by_cause.items(), key=lambda each: (-len(each[1]), each[0])):
        nodes = Counter(str(incident.get("node")) for incident in group).most_common()
        named = ", ".join(f"{node} ({count})" for node, count in nodes[:NODES])
        more = f" and {len(nodes) - NODES} more" if len(nodes) > NODES else ""
        last = max(datetime.fromisoformat(str(incident["time"])) for incident in group)
        cells = (title, str(len(group)), named + more, f"{last:%H:%M:%S}")
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown


def _ask(url: str, options: argparse.Namespace) -> Any:
    return json.loads(daemon_client.ask(url, options, timeout=TIMEOUT_SECONDS, most=MAX_ANSWER_BYTES))


def _title(incident: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """The cause's title; of an unknown cause, that of the signature."""
    if "cause" in incident:  # of a fleet service, which sends no titles
        return _catalogue().title(str(incident["cause"]))
    cause = incident.get("root_cause")
    if cause in (None, "", "unknown"):
        signature = str(incident["signature"])
        return f"{titles.get(signature, signature)} (cause unknown)"
    return titles.get(str(cause), str(cause))


@cache
def _catalogue() -> Catalogue:
    from exporter.config import packs

    return packs.load()
