"""Logs errors of asyncio and uvicorn as one short line each, rate limited, since clients may be able to cause them."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from exporter.core.text.phrases import printable
from exporter.process.rate_limited_log import RateLimitedLog

MAX_CHARS = 400  # an error may quote what a client sent
_LOGGERS = ("asyncio", "uvicorn.error")


def redirect_errors(log: Callable[[str], None]) -> None:
    """Send the errors of these libraries to `log`, and discard their other messages."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_OneLineHandler(RateLimitedLog(log, time.monotonic))]
        logger.propagate = False


class _OneLineHandler(logging.Handler):
    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)[-1:]
            message += "".join(f" at {frame.filename}:{frame.lineno}" for frame in frames) + f": {error!r}"
        self._log(f"web server: {printable(message)[:MAX_CHARS]}; please report it")
