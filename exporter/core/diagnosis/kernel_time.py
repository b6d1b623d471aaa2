"""When a kernel line was written, by the wall clock and by the kernel's own."""

from __future__ import annotations

import math

from exporter.core.model import Match, Moment


def kernel_time(match: Match, now: Moment) -> tuple[float, str, float]:
    """Unix seconds, the id of the boot, and the seconds since that boot; an empty id if it was before this boot."""
    happened = min(match.happened, now.time)  # the clock may have been ahead
    if match.boot_seconds is not None:
        latest = now.boot_seconds if match.origin == now.boot else math.inf  # a file may hold stamps of another boot
        return happened, match.origin, min(match.boot_seconds, latest)
    seconds = happened - now.booted
    return (happened, now.boot, seconds) if seconds >= 0 else (happened, "", 0.0)
