"""Writes the metrics to a file for node_exporter's textfile collector, for nodes where only node_exporter's port is open.

The file is written under another name and renamed, so node_exporter never reads an incomplete one. It omits the process
metrics, since node_exporter exports its own under the same names. A daemon that stops removes the file; if it crashed,
node_textfile_mtime_seconds shows that the file is old.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from exporter.metrics.exposition import Exposition, MetricsSnapshot
from exporter.outputs.delivery import Log, OutputCounts

if TYPE_CHECKING:
    from exporter.config.outputs import TextfileConfig


class Textfile:
    """Writes the latest snapshot at each interval, in its own thread."""

    def __init__(
        self,
        settings: TextfileConfig,
        latest: Callable[[], MetricsSnapshot],
        log: Log,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._exposition = Exposition(latest, process=False)
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = OutputCounts()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.up = True

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="output-textfile", daemon=True)
        self._thread.start()

    def take_counts(self) -> OutputCounts:
        """The counts since the previous call."""
        with self._lock:
            counts, self._counts = self._counts, OutputCounts()
            return counts

    def stop(self, seconds: float) -> None:
        """Stop the thread and remove the file, so that nobody reads its numbers as current."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)
            with contextlib.suppress(OSError):
                self._settings.path.unlink()

    def write(self) -> None:
        """Write the file. Raises OSError."""
        path = self._settings.path
        body = self._exposition.render(None, None).body
        temporary = path.with_name(f".{path.name}.half")  # node_exporter reads only *.prom
        temporary.unlink(missing_ok=True)  # left by a daemon that was killed
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, int(self._settings.mode, 8))
                file.write(body)
            temporary.rename(path)  # no fsync: after a power loss the file is written again before it is read
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _run(self) -> None:
        while True:
            try:
                self.write()
            except Exception as error:
                if self.up:
                    self._log("warning", f"the file cannot be written: {error}; retrying")
                self.up = False
                reason = "disk" if isinstance(error, OSError) else "bug"
                with self._lock:
                    self._counts.failed[reason] += 1
            else:
                if not self.up:
                    self._log("info", "writing the file works again")
                self.up = True
                with self._lock:
                    self._counts.last_success = self._clock()
            if self._stop.wait(self._settings.interval):
                return
