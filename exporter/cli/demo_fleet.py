"""The simulated fleet of `gpufault demo`: `simulate` and `fleet` as child processes, and what they report."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

COMMAND = (sys.executable, "-m", "exporter.cli.main")
END_SECONDS = 10.0  # from SIGTERM to SIGKILL
SHOWN = """
Fleet page: {url}/   (2,000 simulated nodes, six weeks; it fills within some seconds)
  What was planted: a driver rollout that breaks NVLinks, a library version that makes collectives hang,
  a bad node (n0412), 12 nodes that went silent."""
FOUND = "Fleet page complete: {findings} findings, computed in {seconds:.0f} s."


class FleetDemo:
    """Simulates the fleet and serves its pages in the background, until `close`."""

    def __init__(self, folder: Path, address: str, prepare: str) -> None:
        """prepare: a shell command that runs first; empty: none."""
        self._folder, self._address, self._prepare = folder, address, shlex.split(prepare)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the running child process."""
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(END_SECONDS)
            child.kill()
        self._thread.join()

    def _run(self) -> None:
        if self._prepare and not self._succeeds(self._prepare):
            return
        journals = str(self._folder / "journals")
        if not self._succeeds((*COMMAND, "simulate", "--case=review", f"--end={time.time():.0f}", journals)):
            return
        asked = (f"--journal={journals}", "--window=7d", f"--web.listen-address={self._address}", "--log.format=json")
        for line in self._lines((*COMMAND, "fleet", *asked)):
            if told := message_of(line):
                print(told, flush=True)

    def _succeeds(self, command: Sequence[str]) -> bool:
        """Run a command; if it fails, print what it printed."""
        told = list(self._lines(command))
        child = self._child
        if child is None or self._closed:
            return False
        if child.returncode:
            print("\n".join([*told, "gpufault demo: no fleet page"]), file=sys.stderr, flush=True)
        return not child.returncode

    def _lines(self, command: Sequence[str]) -> Iterator[str]:
        """The lines that a command prints, until it ends."""
        with self._lock:
            if self._closed:
                return
            # In a session of its own, so that only this process decides about Ctrl-C.
            child = self._child = subprocess.Popen(  # noqa: S603 (our own commands, and the caller's)
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="backslashreplace", start_new_session=True,
            )  # fmt: skip
        assert child.stdout is not None
        with child.stdout:
            yield from (line.rstrip("\n") for line in child.stdout)
        child.wait()


def message_of(line: str) -> str:
    """What a line of the fleet service's log says to somebody who tries the demo; empty: nothing."""
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if event.get("event") == "listening":
        return SHOWN.format(url=f"http://{event['addresses'][0]}")
    if event.get("event") == "refreshed":
        return FOUND.format(findings=event["findings"], seconds=event["seconds"])
    return "" if event.get("level") in ("info", "debug") else line
