"""The clock of the current boot, which cannot be set: converts timestamps of the kernel to wall time."""

import contextlib
import functools
import time
from pathlib import Path

from exporter.core.model import Moment


@functools.cache
def this_boot() -> str:
    """The kernel's id of this boot; empty if /proc does not provide it."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def moment(now: float) -> Moment:
    """The current moment: wall time `now`, this boot, and the seconds since it."""
    return Moment(time=now, boot=this_boot(), boot_seconds=_seconds())


def boot_time_now() -> float:
    """The current wall time of the kernel clock's zero.

    Read at each poll, so a step of the wall clock affects one poll only. Records from before a suspend appear too recent.
    """
    return time.time() - _seconds()


def _seconds() -> float:
    """The kernel's clock.

    printk stamps with local_clock(), which counts from boot, stands still in suspend and is not steered by NTP. The
    clock of user space with these properties is CLOCK_MONOTONIC_RAW; its zero lies some 0.1 s off (0.104 s, measured on
    6.18). CLOCK_MONOTONIC is steered: 20 ppm make 1.7 s a day, three minutes after 100 days.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
