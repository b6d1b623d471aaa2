"""Log errors of asyncio and uvicorn as one short line each, rate limited: a client may be able to cause them at will."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from exporter.core.text.printable import printable
from exporter.process.rate_limited_log import RateLimitedLog

MAX_CHARS = 400  # an error may quote what a client sent
_LOGGERS = ("asyncio", "uvicorn.error")


def limit_errors(say: Callable[[str], None]) -> None:
    """Pass errors of these libraries to `say`, one line each, rate limited by `Said`; discard their other messages."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_OneLine(RateLimitedLog(say, time.monotonic))]
        logger.propagate = False


class _OneLine(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        what = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            where = traceback.extract_tb(error.__traceback__)[-1:]
            what += "".join(f" at {frame.filename}:{frame.lineno}" for frame in where) + f": {error!r}"
        self._say(f"web server: {printable(what)[:MAX_CHARS]}; please report it")
