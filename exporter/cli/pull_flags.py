"""The flags that select the node daemons to ask. They override the section `pull`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli import options as flags

if TYPE_CHECKING:
    from exporter.config.pull import PullConfig

SOURCES = ("files", "dns", "prometheus")


def add_arguments(parser: argparse.ArgumentParser, title: str = "journals pulled from node daemons") -> None:
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


def with_flags(config: PullConfig | None, options: argparse.Namespace) -> PullConfig | None:
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
    except ValidationError as error:
        problems = [
            Problem(
                "command line", 1, 1, f"--pull.{'.'.join(str(part) for part in each['loc'])}".rstrip("."), each["msg"]
            )
            for each in error.errors()
        ]
        raise InvalidInput(problems) from None


def _absolute(value: Any) -> Any:
    return [str(Path(one).absolute()) for one in value] if isinstance(value, list) else str(Path(value).absolute())
