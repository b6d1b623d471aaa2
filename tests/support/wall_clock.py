"""A wall clock that a test sets, for a real daemon and for the commands that ask it; the kernel's clock goes on."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

# Imported by each Python before anything else (the module `site`), so that whoever asks for the time gets this one.
_SITECUSTOMIZE = """
import os, time
_real = time.time
time.time = lambda: _real() + float(open(os.environ["TEST_CLOCK_AHEAD"]).read())
"""


class WallClock:
    """How far the wall clock is ahead, in a file, and the environment of programs that go by it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "wall"
        self._folder.mkdir()
        (self._folder / "sitecustomize.py").write_text(_SITECUSTOMIZE)
        self.set_ahead(0.0)

    def set_ahead(self, seconds: float) -> None:
        half = self._folder / "half"
        half.write_text(str(seconds))
        half.rename(self._folder / "ahead")

    @property
    def wrap(self) -> tuple[str, ...]:
        """A command that runs another one by this clock."""
        path = os.pathsep.join(filter(None, (str(self._folder), os.environ.get("PYTHONPATH"))))
        return ("env", f"PYTHONPATH={path}", f"TEST_CLOCK_AHEAD={self._folder}/ahead")

    def another_boot(self) -> tuple[str, ...]:
        """A command that runs another one where the kernel tells the id of another boot. Needs root."""
        (self._folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        mounted = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", mounted, f"{self._folder}/boot_id", *self.wrap)
