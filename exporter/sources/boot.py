"""The clock of the boot that runs, which nobody can set: what time the kernel's stamps mean."""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path

from exporter.core.model import Moment


@functools.cache
def this_boot() -> str:
    """The kernel's name for this boot; empty where /proc does not say."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def moment(now: float) -> Moment:
    """This moment; `now` is the wall time."""
    return Moment(time=now, boot=this_boot(), boot_seconds=_seconds())


def boot_time_now() -> float:
    """The wall time of the kernel clock's zero, by the wall clock of this moment. Asked at each poll, so that a step of
    the wall clock is forgotten at the next one; only records from before a suspend look too young.
    """
    return time.time() - _seconds()


def _seconds() -> float:
    """The kernel's clock.

    printk stamps with local_clock(), which counts from boot, stands still in suspend and is not steered by NTP. The
    clock of user space with these properties is CLOCK_MONOTONIC_RAW; its zero lies some 0.1 s off (0.104 s, measured on
    6.18). CLOCK_MONOTONIC is steered: 20 ppm make 1.7 s a day, three minutes after 100 days.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
