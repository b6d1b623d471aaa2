"""`gpufault report`: the fleet health review of a window, as a document, in a chat or by e-mail."""

from __future__ import annotations

import argparse
import json
import os
import smtplib
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from email.message import EmailMessage
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
    _add_delivery(parser)


def run(options: argparse.Namespace) -> int:
    import duckdb

    from exporter.config import packs
    from exporter.fleet.input.catalogue_conditions import nodes_meeting_causes, with_catalogue, with_locations
    from exporter.fleet.input.journals import journals, observations
    from exporter.fleet.observations import Window
    from exporter.fleet.report.steps import carried_over
    from exporter.fleet.results import stored_findings
    from exporter.fleet.review.from_counts import NOTE, fill_from_counts
    from exporter.fleet.review.review_contents import titles_of
    from exporter.fleet.review.window_review import review_of
    from exporter.fleet.statistics.correlation import correlate, remember

    if not options.journal and not options.prometheus:
        raise flags.UsageError("give --journal DIR, --prometheus URL, or both")
    _check_delivery(options)
    form = options.format or ("md" if sys.stdout.isatty() and not options.output else "html")
    now, end = time.time(), moment("--end", options.end)
    span = seconds("--window", options.window or WINDOW)
    catalogue = packs.load(flags.pack_folders(options))
    with journals(Path(options.journal), now=max(now, end or now)) if options.journal else duckdb.connect() as db:
        if options.journal:
            loaded = observations(db, end=end, span=span)
        else:
            stop = end if end is not None else now
            loaded = fleet_options.history(options, Window(start=stop - span, end=stop))
            fill_from_counts(db, loaded.observed)
        if loaded.window.end <= loaded.window.start:
            raise flags.UsageError("--window: is empty")
        observed = with_locations(with_catalogue(loaded.observed, catalogue), options.places or ())
        remembered = stored_findings.read(Path(options.findings_file)) if options.findings_file else ()
        correlated = correlate(observed, loaded.before) if loaded.before is not None else None
        if correlated is not None:
            earlier = remember(correlated, remembered)
            remembered = tuple({(r.signature, r.direction, r.facts): r for r in (*earlier, *remembered)}.values())
        config = fleet_options.lost_config(options)
        correlation = correlate(observed, loaded.window, remembered, nodes_meeting_causes(observed, catalogue))
        titles = titles_of(catalogue)
        review = review_of(db, loaded.window, correlation, titles, compare=options.compare == "previous", lost=config)
        if correlated is not None and review.before is not None:
            before = review_of(db, review.before, correlated, titles, compare=False, lost=config)
            review = replace(review, actions=carried_over(review, before))
        if options.prometheus:
            review = replace(review, alerts=_alerts(options, db, loaded.window))
    notes = () if options.journal else (NOTE,)
    if options.output or not _is_delivered(options):
        _write(_rendered(form, options.table, review, titles, notes), options.output)
    if _is_delivered(options):
        markdown, page = (_rendered(form, "", review, titles, notes) for form in ("md", "html"))
        _deliver(options, review, markdown, page)
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


SECONDS = 30.0  # for a whole request, and between two replies of a mail server
MAX_DETAIL_CHARS = 200  # of what a server answered
SECURITY = {"starttls": 587, "tls": 465, "none": 25}  # and the usual port


class NotDelivered(OSError):
    """The review was written, but a server did not take it."""


def _add_delivery(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("delivery")
    flags.add(
        group, "--webhook.url-file", metavar="FILE", help="post it as Slack-compatible blocks to the URL in this file"
    )
    flags.add(group, "--email.to", metavar="ADDRESS", action="append", help="send it there; may be given again")
    flags.add(group, "--email.from", metavar="ADDRESS", help="the sender; required with --email.to")
    flags.add(group, "--email.server", metavar="HOST[:PORT]", default="localhost", help="default: localhost")
    flags.add(
        group, "--email.security", choices=tuple(SECURITY), default="starttls",
        help="default: starttls (port 587); tls: port 465; none: port 25",
    )  # fmt: skip
    flags.add(group, "--email.user", metavar="NAME", help="to log in; never without encryption")
    flags.add(group, "--email.password-file", metavar="FILE", help="file with the password of the user")
    flags.add(group, "--delivery.ca-file", metavar="FILE", help="who signs the certificates of these servers")
    flags.add(group, "--delivery.link", metavar="URL", help="of the fleet page, for the messages")


def _is_delivered(options: argparse.Namespace) -> bool:
    """Whether the review is to be sent."""
    return bool(options.webhook_url_file or options.email_to)


def _check_delivery(options: argparse.Namespace) -> None:
    """Report what is missing before anything is computed. Raises UsageError."""
    if options.email_to and not options.email_from:
        raise flags.UsageError("--email.from: missing; name the sender")
    if options.email_user and not options.email_password_file:
        raise flags.UsageError("--email.password-file: missing; it has the password of --email.user")
    if options.email_user and options.email_security == "none":
        raise flags.UsageError(
            "--email.security: none would send the password of --email.user in plain text; use starttls or tls"
        )
    for address in (*(options.email_to or ()), *([options.email_from] if options.email_from else ())):
        if "@" not in address or not address.isprintable() or " " in address:
            raise flags.UsageError(f"--email.to or --email.from: {address!r} is not an address")
    if options.delivery_link and not options.delivery_link.startswith(("http://", "https://")):
        raise flags.UsageError("--delivery.link: is not an http:// or https:// address")


def _deliver(options: argparse.Namespace, review: Review, markdown: str, page: str) -> None:
    """Send it to every receiver, whatever the others answer. Raises NotDelivered, UsageError, OSError."""
    from exporter.fleet.report.markdown import email_message, slack_payload

    failed = []
    link = options.delivery_link or ""
    sends: list[Callable[[], None]] = []
    if options.webhook_url_file:
        sends.append(lambda: _post(options, json.dumps(slack_payload(review, markdown, link)).encode()))
    if options.email_to:
        message = email_message(
            review, markdown, page, sender=options.email_from, recipients=options.email_to, link=link
        )  # fmt: skip
        sends.append(lambda: _mail(options, message))
    for send in sends:
        try:
            send()
        except NotDelivered as error:
            failed.append(str(error))
    if failed:
        raise NotDelivered("; ".join(failed))


def _post(options: argparse.Namespace, body: bytes) -> None:
    from exporter.net.credentials import client_context
    from exporter.net.http import RequestFailed, post
    from exporter.net.url import parse_url

    try:
        url = parse_url(_secret(options.webhook_url_file))
        context = client_context(options.delivery_ca_file, None, None) if url.tls else None
    except ValueError as error:
        raise flags.UsageError(f"--webhook.url-file: {error}") from error
    try:
        answer = post(url, body, {"Content-Type": "application/json"}, context=context, seconds=SECONDS)
    except RequestFailed as error:
        raise NotDelivered(f"the webhook at {url.origin} did not take the review: {error}") from error
    if not 200 <= answer.status < 300:
        detail = printable(answer.body[:MAX_DETAIL_CHARS].decode(errors="replace")).strip()
        raise NotDelivered(f"the webhook at {url.origin} did not take the review: {answer.status} {detail}".rstrip())


def _mail(options: argparse.Namespace, message: EmailMessage) -> None:
    from exporter.net.credentials import client_context

    host, _, port = options.email_server.partition(":")
    at = f"{host}:{port or SECURITY[options.email_security]}"
    try:
        context = client_context(options.delivery_ca_file, None, None)
        with _connect(options.email_security, host, int(at.rpartition(":")[2]), context) as server:
            if options.email_user:
                server.login(options.email_user, _secret(options.email_password_file))
            server.send_message(message)
    except smtplib.SMTPResponseException as error:
        detail = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise NotDelivered(
            f"the mail server {at} refused: {error.smtp_code} {printable(detail)[:MAX_DETAIL_CHARS]}"
        ) from error
    except (smtplib.SMTPException, OSError) as error:
        raise NotDelivered(
            f"the mail server {at} did not take the review: {printable(str(error))[:MAX_DETAIL_CHARS]}"
        ) from error
    except ValueError as error:
        raise flags.UsageError(f"--email.server: {error}") from error


def _connect(security: str, host: str, port: int, context: ssl.SSLContext) -> smtplib.SMTP:
    if security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=context)
    server = smtplib.SMTP(host, port, timeout=SECONDS)
    if security == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server


def _secret(file: str) -> str:
    return read_text(file, pipes=True).strip()
