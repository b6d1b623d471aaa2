"""`gpufault report`: the fleet health review of a window, as a document."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from exporter.cli import fleet_sources, report_delivery
from exporter.cli import options as flags
from exporter.cli.time_arguments import moment, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from exporter.fleet.observations import Window
    from exporter.fleet.review.values import AlertQuality, Overview, Title

DESCRIPTION = (
    "Writes the fleet health review: crashes by cause against the window before, what makes them more frequent, nodes at "
    "risk, unusually bad nodes, rollouts, reliability, new and unrecognised crashes, alerts, and what was not seen. Reads "
    "what `gpufault correlate` reads. Exit code 0 once it is written and delivered, 3 if nothing could be read or a server "
    "refused."
)
WINDOW = "7d"
TABLES = (
    "causes", "novelties", "unrecognised", "silent_nodes", "over_time", "findings", "nodes_at_risk", "outlier_nodes",
    "rollouts", "reliability", "not_enough_data", "alerts",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--journal", metavar="DIR", help="a folder of node journals, or one file")
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus, Thanos, Mimir or VictoriaMetrics that scrapes the node daemons; with --journal it is only asked "
        "which alerts fired",
    )
    flags.add(parser, "--alerts.selector", metavar="MATCHERS", help="which alerts count; default: all of Gpufault")
    fleet_sources.add_prometheus(parser)
    fleet_sources.add_places(parser)
    parser.add_argument("--window", metavar="7d", help=f"length of the window, which ends at --end; default: {WINDOW}")
    parser.add_argument("--end", metavar="TIME", help="RFC 3339 or Unix seconds; default: the newest record, or now")
    parser.add_argument(
        "--compare", default="previous", choices=("previous", "none"), help="with the window before; default: previous"
    )
    parser.add_argument("--format", choices=("html", "md", "json", "csv"), help="default: html; on a terminal md")
    parser.add_argument("--table", default="causes", choices=TABLES, help="what --format csv writes; default: causes")
    parser.add_argument("--output", metavar="FILE", help="write the report here, in one step, instead of to stdout")
    flags.add(
        parser, "--findings.file", metavar="FILE",
        help="findings of earlier runs of correlate or fleet, which this window may confirm; it is only read",
    )  # fmt: skip
    flags.add_catalogue(parser)
    report_delivery.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    import duckdb

    from exporter.config import packs
    from exporter.fleet.input.catalogue_conditions import nodes_meeting_causes, with_catalogue, with_places
    from exporter.fleet.input.journals import journals, observations
    from exporter.fleet.observations import Window
    from exporter.fleet.report.steps import carried_over
    from exporter.fleet.results import stored_findings
    from exporter.fleet.results.to_json import to_json
    from exporter.fleet.review.from_counts import NOTE, fill_from_counts
    from exporter.fleet.review.overview import overview
    from exporter.fleet.review.titles import titles_of
    from exporter.fleet.statistics.correlation import correlate, remember

    if not options.journal and not options.prometheus:
        raise flags.UsageError("give --journal DIR, --prometheus URL, or both")
    report_delivery.check(options)
    form = options.format or ("md" if sys.stdout.isatty() and not options.output else "html")
    now, end = time.time(), moment("--end", options.end)
    span = seconds("--window", options.window or WINDOW)
    catalogue = packs.load(flags.pack_folders(options))
    with journals(Path(options.journal), now=max(now, end or now)) if options.journal else duckdb.connect() as db:
        if options.journal:
            loaded = observations(db, end=end, span=span)
        else:
            stop = end if end is not None else now
            loaded = fleet_sources.history(options, Window(start=stop - span, end=stop))
            fill_from_counts(db, loaded.observed)
        if loaded.window.end <= loaded.window.start:
            raise flags.UsageError("--window: is empty")
        observed = with_places(with_catalogue(loaded.observed, catalogue), options.places or ())
        remembered = stored_findings.read(Path(options.findings_file)) if options.findings_file else ()
        correlated = correlate(observed, loaded.before) if loaded.before is not None else None
        if correlated is not None:
            earlier = remember(correlated, remembered)
            remembered = tuple({(r.signature, r.direction, r.facts): r for r in (*earlier, *remembered)}.values())
        found = to_json(correlate(observed, loaded.window, remembered, nodes_meeting_causes(observed, catalogue)))
        titles = titles_of(catalogue)
        review = overview(db, loaded.window, found, titles, compare=options.compare == "previous")
        if correlated is not None and review.before is not None:
            before = overview(db, review.before, to_json(correlated), titles, compare=False)
            review = replace(review, actions=carried_over(review, before))
        if options.prometheus:
            review = replace(review, alerts=_alerts(options, db, loaded.window))
    notes = () if options.journal else (NOTE,)
    if options.output or not report_delivery.is_wanted(options):
        _write(_rendered(form, options.table, review, titles, notes), options.output)
    if report_delivery.is_wanted(options):
        markdown, page = (_rendered(each, "", review, titles, notes) for each in ("md", "html"))
        report_delivery.deliver(options, review, markdown, page)
    return 0


def _alerts(options: argparse.Namespace, db: DuckDBPyConnection, window: Window) -> AlertQuality:
    """The alerts of the window, or why they are not known: a Prometheus that is down does not stop the review."""
    from exporter.fleet.input.prometheus_alerts import SELECTOR, alerts, are_rules_loaded
    from exporter.fleet.input.prometheus_api import NoAnswer
    from exporter.fleet.review.alert_quality import alert_quality
    from exporter.fleet.review.values import AlertQuality

    api = fleet_sources.api_of(options)
    try:
        fired = alerts(api, window, options.alerts_selector or SELECTOR)
        if not fired and not are_rules_loaded(api, window):
            return AlertQuality(
                missing=f"{options.prometheus} does not evaluate the rules of deploy/prometheus/rules.yml"
            )
    except NoAnswer as error:
        return AlertQuality(missing=str(error))
    return alert_quality(db, fired, missing="; ".join(f"{options.prometheus} warns: {each}" for each in api.warnings))


def _rendered(
    form: str, table: str, review: Overview, titles: Mapping[str, Title], notes: tuple[str, ...]
) -> str:  # fmt: skip
    from exporter.fleet.report.document import as_csv, as_json
    from exporter.fleet.report.html import as_html
    from exporter.fleet.report.markdown import as_markdown

    if form == "json":
        return as_json(review)
    if form == "csv":
        return as_csv(review, table)
    return as_markdown(review, titles, notes) if form == "md" else as_html(review, titles, notes)


def _write(text: str, output: str | None) -> None:
    """Write the report in one step: a web server may be serving the previous one."""
    if output is None:
        sys.stdout.write(text)
        return
    path = Path(output)
    with NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise
