"""`gpufault report`: the fleet health review of a window, as a document or in a chat."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from exporter.cli import fleet_options
from exporter.cli import options as flags
from exporter.cli.options import moment, seconds
from exporter.core.text.phrases import printable
from exporter.store.safe_open import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from exporter.fleet.observations import Window
    from exporter.fleet.review.review_contents import AlertQuality, Review, Title


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
    fleet_options.add_prometheus(parser)
    fleet_options.add_location_facts(parser)
    fleet_options.add_lost(parser)
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
    group = parser.add_argument_group("delivery")
    flags.add(
        group, "--webhook.url-file", metavar="FILE", help="post it as Slack-compatible blocks to the URL in this file"
    )
    flags.add(group, "--delivery.ca-file", metavar="FILE", help="who signs the server's certificate")
    flags.add(group, "--delivery.link", metavar="URL", help="of the fleet page, for the message")


def run(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.fleet.report.steps import carried_over
    from exporter.fleet.review.from_counts import NOTE
    from exporter.fleet.review.review_contents import titles_of
    from exporter.fleet.review.window_review import review_of

    if not options.journal and not options.prometheus:
        raise flags.UsageError("give --journal DIR, --prometheus URL, or both")
    if options.delivery_link and not options.delivery_link.startswith(("http://", "https://")):
        raise flags.UsageError("--delivery.link: is not an http:// or https:// address")
    form = options.format or ("md" if sys.stdout.isatty() and not options.output else "html")
    catalogue = packs.load(flags.pack_folders(options))
    titles, lost = titles_of(catalogue), fleet_options.lost_config(options)
    span = seconds("--window", options.window or WINDOW)
    with fleet_options.loaded(options, start=None, end=moment("--end", options.end), span=span) as (db, loaded):
        result = fleet_options.correlated(options, loaded, catalogue)
        compare = options.compare == "previous"
        review = review_of(db, loaded.window, result.correlation, titles, compare=compare, lost=lost)
        if result.before is not None and review.before is not None:
            before = review_of(db, review.before, result.before, titles, compare=False, lost=lost)
            review = replace(review, actions=carried_over(review, before))
        if options.prometheus:
            review = replace(review, alerts=_alerts(options, db, loaded.window))
    notes = () if options.journal else (NOTE,)
    if options.output or not options.webhook_url_file:
        _write(_rendered(form, options.table, review, titles, notes), options.output)
    if options.webhook_url_file:
        _post(options, review, _rendered("md", "", review, titles, notes))
    return 0


def _alerts(options: argparse.Namespace, db: DuckDBPyConnection, window: Window) -> AlertQuality:
    """The alerts of the window, or why they are not known: a Prometheus that is down does not stop the review."""
    from exporter.fleet.input.prometheus_alerts import SELECTOR, alerts, are_rules_loaded
    from exporter.fleet.input.prometheus_api import NoAnswer
    from exporter.fleet.review.alert_quality import alert_quality
    from exporter.fleet.review.review_contents import AlertQuality

    api = fleet_options.api_of(options)
    try:
        fired = alerts(api, window, options.alerts_selector or SELECTOR)
        if not fired and not are_rules_loaded(api, window):
            return AlertQuality(
                missing=f"{options.prometheus} does not evaluate the rules of deploy/prometheus/rules.yml"
            )
    except NoAnswer as error:
        return AlertQuality(missing=str(error))
    return alert_quality(
        db, fired, missing="; ".join(f"{options.prometheus} warns: {warning}" for warning in api.warnings)
    )


def _rendered(
    form: str, table: str, review: Review, titles: Mapping[str, Title], notes: tuple[str, ...]
) -> str:  # fmt: skip
    from exporter.fleet.report.document import as_csv, as_json
    from exporter.fleet.report.html_report import as_html
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


SECONDS = 30.0  # for a whole request
MAX_DETAIL_CHARS = 200  # of what a server answered


class NotDelivered(OSError):
    """The review was written, but the chat did not take it."""


def _post(options: argparse.Namespace, review: Review, markdown: str) -> None:
    """Post it to the chat. Raises NotDelivered, UsageError, OSError."""
    from exporter.fleet.report.markdown import slack_payload
    from exporter.net.credentials import client_context
    from exporter.net.http import RequestFailed, request
    from exporter.net.url import parse_url

    try:
        url = parse_url(read_text(options.webhook_url_file, pipes=True).strip())
        context = client_context(options.delivery_ca_file, None, None) if url.tls else None
    except ValueError as error:
        raise flags.UsageError(f"--webhook.url-file: {error}") from error
    try:
        body = json.dumps(slack_payload(review, markdown, options.delivery_link or "")).encode()
        headers = {"Content-Type": "application/json"}
        answer = request("POST", url, headers, body, context=context, seconds=SECONDS)
    except RequestFailed as error:
        raise NotDelivered(f"the webhook at {url.origin} did not take the review: {error}") from error
    if not 200 <= answer.status < 300:
        detail = printable(answer.body[:MAX_DETAIL_CHARS].decode(errors="replace")).strip()
        raise NotDelivered(f"the webhook at {url.origin} did not take the review: {answer.status} {detail}".rstrip())
