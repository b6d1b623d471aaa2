"""Sends the review of `gpufault report` to a chat by webhook, and by e-mail."""

from __future__ import annotations

import argparse
import json
import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from typing import TYPE_CHECKING

from exporter.cli import options as flags
from exporter.core.text.printable import printable
from exporter.store.safe_open import read_text

if TYPE_CHECKING:
    from exporter.fleet.review.values import Overview

SECONDS = 30.0  # for a whole request, and between two replies of a mail server
MAX_DETAIL_CHARS = 200  # of what a server answered
SECURITY = {"starttls": 587, "tls": 465, "none": 25}  # and the usual port


class NotDelivered(OSError):
    """The review was written, but a server did not take it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def is_wanted(options: argparse.Namespace) -> bool:
    """Whether the review is to be sent."""
    return bool(options.webhook_url_file or options.email_to)


def check(options: argparse.Namespace) -> None:
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


def deliver(options: argparse.Namespace, found: Overview, markdown: str, page: str) -> None:
    """Send it to every receiver, whatever the others answer. Raises NotDelivered, UsageError, OSError."""
    from exporter.fleet.report.messages import email_message, slack_payload

    failed = []
    link = options.delivery_link or ""
    sends: list[Callable[[], None]] = []
    if options.webhook_url_file:
        sends.append(lambda: _post(options, json.dumps(slack_payload(found, markdown, link)).encode()))
    if options.email_to:
        message = email_message(
            found, markdown, page, sender=options.email_from, recipients=options.email_to, link=link
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
    from exporter.net.client_tls import client_context
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
    from exporter.net.client_tls import client_context

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
