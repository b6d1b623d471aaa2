"""`gpufault correlate`: finds out, once, which configuration makes which crash more frequent."""

import argparse
import json
import pickle
import sys
from pathlib import Path

from exporter.cli import fleet_options
from exporter.cli import options as flags
from exporter.cli.options import moment, seconds

DESCRIPTION = (
    "Reads node journals (JSONL, also .gz and .zst, or Parquet, at any depth below DIR), or what a Prometheus scraped "
    "from the nodes. Tests every fact against every signature, by distinct nodes that crashed first, facts as of the crash, "
    "and hours of exposure. What passes the false-discovery gate is a candidate; a later window makes it confirmed. Exit "
    "code 1 if there is a finding, 0 if none was found, 3 if nothing could be read."
)
WINDOW = "7d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--journal", metavar="DIR", help="a folder of node journals, or one file")
    source.add_argument(
        "--prometheus", metavar="URL", help="Prometheus, Thanos, Mimir or VictoriaMetrics that scrapes the node daemons"
    )
    fleet_options.add_prometheus(parser)
    fleet_options.add_location_facts(parser)
    fleet_options.add_lost(parser)
    parser.add_argument("--window", metavar="7d", help=f"length of the window, which ends at --end; default: {WINDOW}")
    parser.add_argument("--start", metavar="TIME", help="RFC 3339 or Unix seconds")
    parser.add_argument("--end", metavar="TIME", help="RFC 3339 or Unix seconds; default: the newest record, or now")
    parser.add_argument(  # pickle: for the fleet service
        "--format", default="text", choices=("text", "json", "pickle"), metavar="{text,json}", help="default: text"
    )
    parser.add_argument("--output", metavar="FILE", help="write the result here instead of stdout")
    flags.add(
        parser,
        "--findings.file",
        metavar="FILE",
        help="remember findings here, so that later runs confirm them; without it, the previous window is used",
    )
    flags.add_catalogue(parser)


def run(options: argparse.Namespace) -> int:
    if options.start and options.window:
        raise flags.UsageError("--start and --window both say where it begins; give one")
    from exporter.cli.incident_text import has_color
    from exporter.config import packs
    from exporter.fleet.results import stored_findings
    from exporter.fleet.results.terminal import text
    from exporter.fleet.results.to_json import to_json
    from exporter.fleet.review.lost_hours import lost_hours
    from exporter.fleet.statistics.correlation import remember

    start, end = moment("--start", options.start), moment("--end", options.end)
    span = seconds("--window", options.window or WINDOW)
    with fleet_options.loaded(options, start=start, end=end, span=span) as (db, loaded):
        lost = lost_hours(db, loaded.window, fleet_options.lost_config(options))
    result = fleet_options.correlated(options, loaded, packs.load(flags.pack_folders(options)))
    correlation = result.correlation
    if options.findings_file:
        stored_findings.write(Path(options.findings_file), remember(correlation, result.remembered))
    color = not options.output and has_color(sys.stdout)
    report = (
        json.dumps(to_json(correlation, lost.to_json() if lost else None), indent=1) + "\n"
        if options.format == "json"
        else text(correlation, lost=lost.sentence if lost and lost.hours else "", color=color)
    )
    if options.output and options.format == "pickle":
        Path(options.output).write_bytes(pickle.dumps((correlation, lost)))
    elif options.output:
        Path(options.output).write_text(report, encoding="utf-8")
    else:
        sys.stdout.write(report)
    return 1 if correlation.findings else 0
