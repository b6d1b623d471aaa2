"""The fleet service's clock."""

from __future__ import annotations

import time


class ServiceClock:
    """Unix seconds that never go back while the service runs, whatever is done to the machine's clock.

    When that clock is set back, time goes on at the rate of the monotonic clock; when it is set forward, it is believed
    for as long as it stays there.
    """

    def __init__(self) -> None:
        self._started = time.time() - time.monotonic()

    def __call__(self) -> float:
        return max(time.time(), self._started + time.monotonic())
