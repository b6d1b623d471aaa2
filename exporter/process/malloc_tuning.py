"""Keeps the resident memory of a process that mostly waits small: what glibc's allocator holds back, given back.

Measured with 320 signatures, idle: 67 MiB without, 57 MiB with both. Other C libraries lack these calls; nothing is lost.
"""

from __future__ import annotations

import ctypes
import gc

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h
LARGE_BYTES = 1 << 20


def hold_little() -> None:
    """Two arenas instead of eight a core: probes run in a dozen short-lived threads, each leaves its arena behind. And
    large blocks are always mapped and given back: glibc takes them from the heap once it has freed one, where they leave
    holes of 1.7 MiB behind the text of the catalogue in every second start.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_ARENA_MAX, 2)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def give_back() -> None:
    """Hand free memory back to the kernel; what has been built stays, so the collector need not walk it again.

    After a reload, too: what an earlier call kept may be garbage by now.
    """
    gc.unfreeze()
    give_back_garbage()
    gc.freeze()


def give_back_garbage() -> None:
    """Hand back the memory of short-lived objects. Cheap: skips objects that existed at the last `give_back`."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
