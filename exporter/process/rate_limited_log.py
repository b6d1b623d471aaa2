"""A log function that suppresses repeated messages and limits the others to a number per minute."""

from collections.abc import Callable

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
