"""The daemon's own log: logfmt or JSON on stderr, with secrets redacted, and its rate limit."""

import logging
import sys
from collections.abc import Callable, MutableMapping
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


MAX_REMEMBERED = 1000  # messages; one that is older than so many others may be logged again
MAX_PER_MINUTE = 60  # different messages: they contain file names, which a job can choose


class RateLimitedLog:
    """Logs each message once, at most MAX_PER_MINUTE a minute, and then the number of suppressed messages."""

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._logged: dict[str, None] = {}
        self._minute_start = clock()
        self._count = 0  # messages of this minute, suppressed ones included

    def __call__(self, message: str) -> None:
        if message in self._logged:
            return
        now = self._clock()
        if not 0 <= now - self._minute_start < 60.0:
            if (suppressed := self._count - MAX_PER_MINUTE) > 0:
                self._log(f"suppressed {suppressed} more warnings in a minute; /metrics has the counts")
            self._minute_start, self._count = now, 0
        self._count += 1
        if self._count > MAX_PER_MINUTE:
            return
        self._logged[message] = None
        if len(self._logged) > MAX_REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._log(message)
