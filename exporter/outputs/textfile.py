"""What /metrics shows as a file, for node_exporter's textfile collector: nodes whose firewall lets in that port only.

Written whole, under another name, and renamed: node_exporter never sees half of it. Without the metrics of the process,
of which node_exporter has its own. The file goes away with a daemon that ends; node_textfile_mtime_seconds tells of one
that died.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from exporter.config.outputs import TextfileConfig
from exporter.metrics.exposition import Exposition, MetricsSnapshot
from exporter.outputs.delivery import Say, Tally


class Textfile:
    """Writes the latest snapshot every `interval`, in a thread of its own."""

    def __init__(
        self,
        settings: TextfileConfig,
        latest: Callable[[], MetricsSnapshot],
        say: Say,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._exposition = Exposition(latest, process=False)
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._tally = Tally()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.up = True

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="output-textfile", daemon=True)
        self._thread.start()

    def take(self) -> Tally:
        """What happened since the last call."""
        with self._lock:
            tally, self._tally = self._tally, Tally()
            return tally

    def stop(self, seconds: float) -> None:
        """Write nothing more, and remove the file: its numbers would be taken for those of a daemon that runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)
            with contextlib.suppress(OSError):
                self._settings.path.unlink()

    def write(self) -> None:
        """Write the file. Raises OSError."""
        path = self._settings.path
        body = self._exposition.render(None, None).body
        half = path.with_name(f".{path.name}.half")  # node_exporter reads *.prom only
        half.unlink(missing_ok=True)  # of a daemon that was killed
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, int(self._settings.mode, 8))
                file.write(body)
            half.rename(path)  # no fsync: after a power cut the next one is written before it is read
        except OSError:
            half.unlink(missing_ok=True)
            raise

    def _run(self) -> None:
        while True:
            try:
                self.write()
            except Exception as error:
                if self.up:
                    self._say("warning", f"the file cannot be written: {error}; it is tried again")
                self.up = False
                reason = "disk" if isinstance(error, OSError) else "bug"
                with self._lock:
                    self._tally.failed[reason] += 1
            else:
                if not self.up:
                    self._say("info", "the file is written again")
                self.up = True
                with self._lock:
                    self._tally.last_success = self._clock()
            if self._stop.wait(self._settings.interval):
                return
