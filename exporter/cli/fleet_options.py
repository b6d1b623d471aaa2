"""The flags of commands that read a fleet: a Prometheus-compatible API, or journals pulled from node daemons."""

from __future__ import annotations

import argparse
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from exporter.cli import options as flags
from exporter.store.safe_open import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duckdb import DuckDBPyConnection

    from exporter.config.fleet import LostConfig
    from exporter.config.pull import PullConfig
    from exporter.core.catalogue.loader import Catalogue
    from exporter.fleet.input.prometheus_api import Api
    from exporter.fleet.observations import LoadedWindow
    from exporter.fleet.statistics.confirm import Remembered
    from exporter.fleet.statistics.findings import Correlation


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


def add_location_facts(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser, "--places", action="append", metavar="GLOB",
        help="facts that are places, beside rack, row, cage and the like, such as 'u_*'; may be given again",
    )  # fmt: skip


def add_lost(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the GPU-hours of crashed jobs."""
    for name, type_, metavar, help_text in (
        ("assumed-hours", float, "1", "that a crash costs each GPU of a job whose start is not known; default: 1"),
        ("price", float, "2.5", "of a GPU-hour; without it, no costs are shown"),
        ("currency", str, "EUR", "of the price"),
    ):  # fmt: skip
        flags.add(parser, f"--lost.{name}", type=type_, metavar=metavar, help=help_text)


def lost_config(options: argparse.Namespace, base: LostConfig | None = None) -> LostConfig:
    """The section `lost` with values from the flags. Raises UsageError."""
    from pydantic import ValidationError

    from exporter.config.fleet import LostConfig

    given = {name: value for name in LostConfig.model_fields if (value := getattr(options, f"lost_{name}")) is not None}
    try:
        return LostConfig.model_validate({**(base.model_dump() if base else {}), **given})
    except ValidationError as errors:
        first = errors.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise flags.UsageError(f"--lost.{name}: {first['msg']}") from None


@contextmanager
def loaded(
    options: argparse.Namespace, *, start: float | None, end: float | None, span: float
) -> Iterator[tuple[DuckDBPyConnection, LoadedWindow]]:
    """The tables and observations of a window, by --journal or else --prometheus. Raises UsageError, OSError."""
    import duckdb

    from exporter.core.diagnosis.records import rfc3339
    from exporter.fleet.input import prometheus_history
    from exporter.fleet.input.journals import journals, observations
    from exporter.fleet.observations import Window
    from exporter.fleet.review.from_counts import fill_from_counts

    now = time.time()
    with journals(Path(options.journal), now=max(now, end or now)) if options.journal else duckdb.connect() as db:
        if options.journal:
            window = observations(db, start=start, end=end, span=span)
        else:
            stop = end if end is not None else now
            window = prometheus_history.load(
                api_of(options),
                Window(start=start if start is not None else stop - span, end=stop),
                selector=options.prometheus_selector or SELECTOR,
                node=options.prometheus_node_label or NODE_LABEL,
                busy=options.prometheus_busy_query,
            )
            fill_from_counts(db, window.observed)
        if window.window.end <= window.window.start:
            raise flags.UsageError(f"--start: is not before the end, {rfc3339(window.window.end)}")
        yield db, window


class Correlated(NamedTuple):
    """A window's correlation, that of the window before, if the source reaches back so far, and the earlier findings."""

    correlation: Correlation
    before: Correlation | None
    remembered: Sequence[Remembered]


def correlated(options: argparse.Namespace, loaded: LoadedWindow, catalogue: Catalogue) -> Correlated:
    """Correlate with --places and what --findings.file remembers. Raises InvalidInput, OSError."""
    from exporter.fleet.input.catalogue_conditions import nodes_meeting_causes, with_catalogue, with_locations
    from exporter.fleet.results import stored_findings
    from exporter.fleet.statistics.correlation import correlate, remember

    observed = with_locations(with_catalogue(loaded.observed, catalogue), options.places or ())
    remembered = stored_findings.read(Path(options.findings_file)) if options.findings_file else ()
    before = correlate(observed, loaded.before) if loaded.before is not None else None
    if before is not None:
        earlier = remember(before, remembered)
        remembered = tuple({(r.signature, r.direction, r.facts): r for r in (*earlier, *remembered)}.values())
    now = correlate(observed, loaded.window, remembered, nodes_meeting_causes(observed, catalogue))
    return Correlated(now, before, remembered)


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


SOURCES = ("files", "dns", "prometheus")


def add_pull(parser: argparse.ArgumentParser, title: str = "journals pulled from node daemons") -> None:
    """Add the flags in a group of that title."""
    group = parser.add_argument_group(title)
    for name, metavar, help_text in (
        ("files", "GLOB", "target files in Prometheus' file_sd format; may be given again"),
        ("dns", "HOST:PORT", "each address of the host is a node; may be given again"),
    ):
        flags.add(group, f"--pull.{name}", action="append", metavar=metavar, help=help_text)
    for name, metavar, help_text in (
        ("prometheus", "URL", "its active targets with job=gpufault are the nodes"),
        ("node-label", "LABEL", "of a target, names the node; without it, the target's host; default: node"),
        ("interval", "30s", "how often each node is asked; default: 30s"),
        ("timeout", "30s", "for one request; default: 30s"),
        ("token-key-file", "FILE", "private key that signs a read-only token for each node"),
        ("user", "USER", "for basic authentication instead: each node sees a password that opens the others"),
        ("password-file", "FILE", "file with the password"),
        ("ca-file", "FILE", "who signs the nodes' certificates"),
        ("cert-file", "FILE", "client certificate"),
        ("key-file", "FILE", "its key"),
        ("server-name", "NAME", "in the nodes' certificates; default: the target's host"),
    ):
        flags.add(group, f"--pull.{name}", metavar=metavar, help=help_text)
    flags.add(
        group, "--pull.dns-names", choices=("reverse", "daemon", "kubernetes"),
        help="what names the node of an address: its reverse lookup, the daemon there, or Kubernetes; default: reverse",
    )  # fmt: skip
    flags.add(group, "--pull.scheme", choices=("http", "https"), help="of targets without __scheme__; default: http")


def names_nodes(options: argparse.Namespace) -> bool:
    """Whether the flags name node daemons to pull from."""
    return any(getattr(options, f"pull_{name}") for name in SOURCES)


def pull_config(config: PullConfig | None, options: argparse.Namespace) -> PullConfig | None:
    """The section `pull` with values from the flags. Raises InvalidInput."""
    from pydantic import ValidationError

    from exporter.config.pull import PullConfig
    from exporter.core.text.problems import InvalidInput, Problem

    given: dict[str, Any] = {
        name: value for name in PullConfig.model_fields if (value := getattr(options, f"pull_{name}", None))
    }
    if "prometheus" in given:
        earlier = config.prometheus.model_dump(exclude_none=True) if config and config.prometheus else {}
        given["prometheus"] = {**earlier, "url": given["prometheus"]}
    for name in ("files", "password_file", "token_key_file"):
        if name in given:
            given[name] = _absolute(given[name])
    tls = {
        name: _absolute(value)
        for name in ("ca_file", "cert_file", "key_file")
        if (value := getattr(options, f"pull_{name}"))
    }
    if not given and not tls:
        return config
    base: dict[str, Any] = {}
    if config is not None:
        base = config.model_dump(exclude_none=True, exclude_unset=True)
        for name in ("interval", "timeout"):
            if name in base:
                base[name] = f"{base[name]:f}".rstrip("0").rstrip(".") + "s"
    if tls:
        given["tls"] = {**base.get("tls", {}), **tls}
    if config is None and not names_nodes(options):
        return None
    try:
        return PullConfig.model_validate({**base, **given})
    except ValidationError as errors:
        problems = [
            Problem(
                "command line", 1, 1, f"--pull.{'.'.join(str(part) for part in error['loc'])}".rstrip("."), error["msg"]
            )
            for error in errors.errors()
        ]
        raise InvalidInput(problems) from None


def _absolute(value: Any) -> Any:
    return [str(Path(one).absolute()) for one in value] if isinstance(value, list) else str(Path(value).absolute())
