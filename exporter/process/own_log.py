"""The daemon's own log: logfmt or JSON on stderr, with secrets redacted."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact


def start_logging(level: str, form: str) -> Any:
    """A structlog logger for the given format and minimum level."""
    # structlog.dev imports rich (17 MiB resident, 0.1 s) for tracebacks that a daemon's log never shows.
    hidden = sys.modules.get("rich")
    if hidden is None:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        if hidden is None:
            del sys.modules["rich"]
    render: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "event"], drop_missing=True, bool_as_flag=False
        )
    )
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _without_secrets,
            render,
            _without_control_characters,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        cache_logger_on_first_use=True,
    )


def _without_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # A path, a log line or a setting in an event may contain a secret.
    return {name: redact(value) if isinstance(value, str) else value for name, value in event.items()}


def _without_control_characters(_logger: Any, _method: str, line: Any) -> str:
    # A file name in an event may contain terminal control sequences.
    return printable(line)
