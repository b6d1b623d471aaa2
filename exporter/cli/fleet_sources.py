"""The flags of commands that query a Prometheus-compatible API, and the client that they configure."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from exporter.cli import options as flags
from exporter.store.safe_open import read_text

if TYPE_CHECKING:
    from exporter.fleet.input.prometheus_api import Api
    from exporter.fleet.observations import LoadedWindow, Window


SELECTOR, NODE_LABEL = 'job="gpufault"', "instance"


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """Add the flags for --prometheus. Secrets come from files, because every user can read command lines."""
    group = parser.add_argument_group("with --prometheus")
    for name, metavar, help_text in (
        ("selector", "MATCHERS", f"which targets are daemons; default: {SELECTOR}"),
        ("node-label", "LABEL", f"that names a node; default: {NODE_LABEL}"),
        ("busy-query", "EXPR", "GPU-busy hours by that label, with $range for the span; else the hours that targets were up"),
    ):  # fmt: skip
        flags.add(group, f"--prometheus.{name}", metavar=metavar, help=help_text)
    for name, help_text in (
        ("tenant", "sent as X-Scope-OrgID (Mimir)"),
        ("user", "for basic authentication"),
        ("password-file", "file with the password"),
        ("bearer-token-file", "with a token instead"),
        ("ca-file", "who signs the server's certificate"),
        ("cert-file", "with the client's certificate"),
        ("key-file", "its private key, if it is not in that file"),
    ):
        flags.add(
            group, f"--prometheus.{name}", metavar="FILE" if name.endswith("file") else name.upper(), help=help_text
        )


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add --places."""
    flags.add(
        parser, "--places", action="append", metavar="GLOB",
        help="facts that are places, beside rack, row, cage and the like, such as 'u_*'; may be given again",
    )  # fmt: skip


def history(options: argparse.Namespace, window: Window) -> LoadedWindow:
    """The history from the API that --prometheus names. Raises UsageError, OSError."""
    from exporter.fleet.input.prometheus_history import load

    return load(
        api_of(options),
        window,
        selector=options.prometheus_selector or SELECTOR,
        node=options.prometheus_node_label or NODE_LABEL,
        busy=options.prometheus_busy_query,
    )


def api_of(options: argparse.Namespace) -> Api:
    """The API that --prometheus names. Raises UsageError, OSError."""
    from exporter.fleet.input.prometheus_api import connect

    try:
        return connect(
            options.prometheus,
            user=options.prometheus_user,
            password=_secret(options.prometheus_password_file) or "",
            token=_secret(options.prometheus_bearer_token_file),
            tenant=options.prometheus_tenant,
            ca_file=options.prometheus_ca_file,
            certificate=(options.prometheus_cert_file, options.prometheus_key_file)
            if options.prometheus_cert_file
            else None,
        )
    except ValueError as error:
        raise flags.UsageError(f"--prometheus: {error}") from error


def _secret(file: str | None) -> str | None:
    return read_text(file, pipes=True).strip() if file else None
