"""Find threads and child processes that a test leaves behind: they disturb the tests after it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

# A thread that has done its work may still be ending, such as a server's after the test has read its answer. On a
# loaded machine this takes a while. A thread that nobody stops outlives any wait.
ENDING_SECONDS = 10.0
KEPT_THREADS = {"IO loop"}  # that a Dask client which never connected leaves to its process, whatever it is told


def running() -> frozenset[threading.Thread | int]:
    """All threads of this process, and the pids of its children."""
    threads = (thread for thread in threading.enumerate() if thread.name not in KEPT_THREADS)
    return frozenset(threads) | frozenset(_children())


def left_behind(before: frozenset[threading.Thread | int], seconds: float = ENDING_SECONDS) -> list[str]:
    """Describe what runs now and did not run `before`, after giving it some seconds to end."""
    deadline = time.monotonic() + seconds
    while new := running() - before:
        if time.monotonic() >= deadline:
            return sorted(map(_described, new))
        time.sleep(0.01)
    return []


def _children() -> Iterator[int]:
    """The pids of all children, zombies included: a test waits for the processes that it starts."""
    # What multiprocessing starts once for a whole process.
    helpers = (resource_tracker._resource_tracker, "_pid"), (forkserver._forkserver, "_forkserver_pid")
    kept = {getattr(helper, name, None) for helper, name in helpers}
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            yield from (pid for pid in map(int, children.read_text().split()) if pid not in kept)


def _described(one: threading.Thread | int) -> str:
    if isinstance(one, threading.Thread):
        target = getattr(one, "_target", None)
        return f"thread {one.name!r}" + (f" in {target.__module__}.{target.__qualname__}" if target else "")
    try:
        command = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    return f"process {one} {command or 'that nobody waited for'}"
