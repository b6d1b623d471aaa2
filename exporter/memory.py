"""Keeps the resident memory of a process that mostly waits small: what glibc's allocator holds back, given back.

Measured with 320 signatures, idle: 67 MiB without, 57 MiB with both. Other C libraries lack these calls; nothing is lost.
"""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # malloc.h


def few_arenas() -> None:
    """Two arenas instead of eight a core: probes run in a dozen short-lived threads, each leaves its arena behind."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_ARENA_MAX, 2)


def give_back() -> None:
    """Hand free memory back to the kernel; what has been built stays, so the collector need not walk it again.

    After a reload, too: what an earlier call kept may be garbage by now.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
