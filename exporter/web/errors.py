"""Errors of the web server, a bounded line each: asyncio and uvicorn log a traceback of 3 kB, as often as a client likes."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from exporter.core.printable import printable
from exporter.said import Said

MAX_CHARS = 400  # an error may quote what a client sent
_LOGGERS = ("asyncio", "uvicorn.error")


def limit_errors(say: Callable[[str], None]) -> None:
    """Have errors of the libraries below said by `say`, a line each, no more than `Said` lets pass; nothing else of theirs."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_OneLine(Said(say, time.monotonic))]
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
