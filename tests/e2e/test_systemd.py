"""What systemd is told: ready, alive as long as the main loop comes round, stopping; and how fast SIGTERM is obeyed."""

from __future__ import annotations

import itertools
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.programs import needs, needs_root

from .conftest import Node, eventually

MakeNode = Callable[..., Node]
WATCHDOG_SECONDS = 60.0  # WatchdogSec= of deploy/systemd/gpufault.service


class Systemd:
    """The socket that a service tells its state to, and when it told what."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(0.1)
        self._told: list[tuple[float, str]] = []
        self._stop = threading.Event()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                said = self._socket.recv(4096).decode()
            except TimeoutError:
                continue
            self._told.append((time.monotonic(), said))

    def times(self, state: str, *, since: float = 0.0) -> list[float]:
        return [at for at, said in list(self._told) if said == state and at >= since]

    def longest_silence(self, since: float, until: float) -> float:
        """Seconds without WATCHDOG=1."""
        times = [since, *(at for at in self.times("WATCHDOG=1", since=since) if at <= until), until]
        return max(after - before for before, after in itertools.pairwise(times))

    def close(self) -> None:
        self._stop.set()
        self._listener.join()
        self._socket.close()


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    with TemporaryDirectory() as folder:
        one = Systemd(f"{folder}/notify")
        monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
        yield one
        one.close()


def test_ready_is_told_after_the_first_look_and_stopping_at_the_end(make_node: MakeNode, systemd: Systemd) -> None:
    node = make_node()
    node.start()
    eventually(lambda: systemd.times("READY=1") or None)
    assert node.stop() == 0
    eventually(lambda: systemd.times("STOPPING=1") or None)
    [ready], [stopping] = systemd.times("READY=1"), systemd.times("STOPPING=1")
    assert ready < stopping


@pytest.mark.heavy
def test_the_watchdog_hears_of_a_loop_that_rests_and_of_one_that_does_not(
    make_node: MakeNode, systemd: Systemd
) -> None:
    node = make_node()
    node.start()
    rested = time.monotonic()
    eventually(lambda: len(systemd.times("WATCHDOG=1", since=rested)) >= 6 or None)
    assert systemd.longest_silence(rested, time.monotonic()) < 5.0
    busy = time.monotonic()
    with (node.logs / "flood.log").open("ab", buffering=0) as log:
        while time.monotonic() < busy + 8.0:
            log.write(b"".join(b"e2e crash seq=%d of flood\n" % number for number in range(20_000)))
    now = time.monotonic()
    assert systemd.longest_silence(busy, now) < WATCHDOG_SECONDS / 4


@pytest.mark.heavy
@needs("strace")
@needs_root
def test_a_loop_that_a_disk_holds_up_tells_the_watchdog_nothing(make_node: MakeNode, systemd: Systemd) -> None:
    node = make_node()
    node.start()
    assert node.process is not None
    eventually(lambda: systemd.times("WATCHDOG=1") or None)  # one round of the loop is through before the disk hangs
    hang = "inject=fsync,fdatasync:delay_enter=60s"
    disk = subprocess.Popen(["strace", "-qq", "-e", "trace=fsync,fdatasync", "-e", hang, "-p", str(node.process.pid)])
    try:
        status = Path(f"/proc/{node.process.pid}/status")
        eventually(lambda: "TracerPid:\t0\n" not in status.read_text() or None)
        (node.logs / "a.log").write_text("e2e crash seq=1 of a\n")
        eventually(lambda: time.monotonic() - systemd.times("WATCHDOG=1")[-1] > 4.0 or None)
        assert "gpufault_state_up" in node.get("/metrics"), "who scrapes is answered all the same"
    finally:
        disk.terminate()
        disk.wait()
    mended = time.monotonic()
    eventually(lambda: systemd.times("WATCHDOG=1", since=mended) or None)
    eventually(lambda: node.value('gpufault_lines_matched_total{signature="e2e_crash",source="job"}') == 1.0 or None)
