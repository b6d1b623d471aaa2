"""Flags that several commands share, with their precedence (flag, environment, file, default), and times in flags."""

from __future__ import annotations

import argparse
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from exporter.config.node import Config
    from exporter.core.text.problems import Loc
    from exporter.web.active_config import ActiveConfig


def add(parser: argparse._ActionsContainer, flag: str, **settings: Any) -> None:
    """Add a flag whose default may come from GPUFAULT_<FLAG>."""
    name = "GPUFAULT_" + flag.strip("-").replace(".", "_").replace("-", "_").upper()
    settings["help"] = f"{settings['help']} [{name}]"
    settings.setdefault("default", None)
    if name in os.environ:
        value = os.environ[name]
        settings["default"] = [value] if settings.get("action") == "append" else _Setting(value)
        settings["type"] = _typed(name, settings.get("type", str), settings.get("choices"))
    parser.add_argument(flag, dest=flag.strip("-").replace(".", "_").replace("-", "_"), **settings)


class UsageError(Exception):
    """The arguments cannot be used as they are. The message names the flag and says what to do."""


class _Setting(str):
    """A default value that was read from an environment variable."""


def _typed(name: str, type_: Callable[[str], Any], choices: Collection[str] | None) -> Callable[[str], Any]:
    """A flag's type that also checks the value of the environment variable, and names the variable in errors."""

    def typed(value: str) -> Any:
        if not isinstance(value, _Setting):
            return type_(value)
        if choices and value not in choices:  # argparse does not compare a default with them
            raise argparse.ArgumentTypeError(f"{name}: invalid choice: {value!r} (choose from {', '.join(choices)})")
        try:
            return type_(value)
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"{name}: {error}") from None

    return typed


def add_config(parser: argparse.ArgumentParser) -> None:
    add(parser, "--config.file", metavar="FILE", help="configuration; default: /etc/gpufault/config.yaml if it exists")


def config_file(options: argparse.Namespace, default: Path | None = None) -> str | None:
    """The file that --config.file names, or the default one (the daemon's); None if neither exists."""
    from exporter.config.node import DEFAULT_FILE

    path = default or DEFAULT_FILE
    return options.config_file or (str(path) if path.exists() else None)


def load_config(options: argparse.Namespace) -> Config:
    """The configuration of --config.file, else of the default file, else the defaults. Raises InvalidInput, OSError."""
    from exporter.config.node import Config, load

    name = config_file(options)
    if name is None:
        return Config()
    return load(_text(name), name)


def refuse(options: argparse.Namespace, problems: Iterable[tuple[Loc, str]]) -> None:
    """Raise InvalidInput for problems with the files that a configuration names, at their places in it."""
    from exporter.core.text.problems import InvalidInput
    from exporter.core.text.yaml_text import parse

    name = config_file(options)
    if (located := list(problems)) and name is not None:
        document = parse(_text(name), name)
        raise InvalidInput([document.problem(loc, message) for loc, message in located])


def _text(name: str) -> str:
    from exporter.store.safe_open import read_text

    return read_text(name)


def node_name(configured: str = "auto") -> str:
    """The name under which this node counts: configured, NODE_NAME (Kubernetes), or the host's."""
    return configured if configured != "auto" else os.environ.get("NODE_NAME") or os.uname().nodename


def add_service(parser: argparse.ArgumentParser, address: str) -> None:
    """Add the flags of every service: where it listens, its web configuration, its log."""
    add(
        parser, "--web.listen-address", action="append", metavar="HOST:PORT",
        help=f"address to listen on; repeatable; default: {address}",
    )  # fmt: skip
    add(
        parser,
        "--web.config.file",
        metavar="FILE",
        help="TLS, users and headers, in the format of the exporter-toolkit",
    )
    add(
        parser,
        "--web.telemetry-path",
        default="/metrics",
        metavar="PATH",
        help="path of the metrics; default: /metrics",
    )
    add(
        parser,
        "--log.level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="lowest level to log; default: info",
    )
    add(parser, "--log.format", default="logfmt", choices=("logfmt", "json"), help="format of the log; default: logfmt")


def web_config(options: argparse.Namespace) -> ActiveConfig:
    """The web configuration that --web.config.file names. Raises InvalidInput, OSError."""
    from exporter.web.active_config import ActiveConfig

    return ActiveConfig(Path(options.web_config_file).absolute() if options.web_config_file else None)


def add_catalogue(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "--signatures.dir",
        action="append",
        metavar="DIR",
        help="folder of signature packs to add to the built-in ones; repeatable",
    )


def pack_folders(options: argparse.Namespace) -> list[Path]:
    """The folders that --signatures.dir names. Raises InvalidInput for missing ones."""
    from exporter.config.packs import existing

    return existing(options.signatures_dir or ())


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def seconds(flag: str, text: str) -> float:
    """Seconds of a duration such as `7d`, `36h`, `1d12h`. Raises UsageError."""
    if re.fullmatch(r"(?:\d+[smhdw])+", text) and (
        total := sum(int(n) * _UNITS[u] for n, u in re.findall(r"(\d+)(\w)", text))
    ):
        return total
    raise UsageError(f"{flag}: invalid duration {text!r}; use numbers and units, such as 7d, 36h or 1d12h")


def since(flag: str, text: str, now: float) -> float | None:
    """Unix seconds of a time, or of a duration before now. Raises UsageError."""
    return now - seconds(flag, text) if text[-1:] in "smhdw" else moment(flag, text)


def moment(flag: str, text: str | None) -> float | None:
    """Unix seconds of a time in RFC 3339 or Unix seconds; without a zone it is UTC. Raises InvalidInput."""
    if text is None:
        return None
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{flag}: invalid time {text!r}; use 2026-06-01T00:00:00Z or Unix seconds") from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
