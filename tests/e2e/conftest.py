"""The real daemon as a process: started, scraped, killed and started again."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import bcrypt
import pytest
import trustme

from exporter.web import control_socket
from tests.support.fuse_server import FuseServer

T = TypeVar("T")

PACK = """
pack: e2e
signatures:
  - id: e2e_crash
    title: A line of the end-to-end tests
    vendor: any
    layer: host
    severity: error
    sources: [job, kernel]
    patterns: ['e2e crash seq=(?P<seq>\\d+) of (?P<log>\\w+)']
root_causes:
  - id: e2e_cause
    title: The tests wanted it
    signatures: [e2e_crash]
    when: {capture: seq, exists: true}
    verdict: workload
    strength: A
    remediation: Nothing.
"""


class Node:
    """One node: a folder with logs, state and configuration, and a daemon that runs on it or does not."""

    def __init__(self, folder: Path, sources: list[dict[str, Any]], **sections: Any) -> None:
        self.folder = folder
        self.logs = folder / "jobs"
        self.logs.mkdir(exist_ok=True)
        packs = folder / "packs"
        packs.mkdir(exist_ok=True)
        (packs / "e2e.yaml").write_text(PACK)
        config = {
            "node": "e2e",
            "state_dir": str(folder / "state"),
            "sources": sources or [{"kind": "files", "paths": [f"{self.logs}/*.log"]}],
            "signatures": {"dirs": [str(packs)]},
            "incidents": {"settle": "300ms", "window": "2s"},
            **sections,
        }
        self.config = folder / "config.yaml"
        self.config.write_text(json.dumps(config))  # JSON is YAML
        self.log = folder / "daemon.log"
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.wrap: tuple[str, ...] = ()  # a command that runs the daemon's

    def spawn(self, *, port: str = "0", umask: int = -1) -> subprocess.Popen[bytes]:
        """Start the daemon and wait for nothing."""
        command = [gpufault(), "run", "--config.file", str(self.config), "--web.listen-address", f"127.0.0.1:{port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self.wrap, *command], stderr=log, stdout=log, umask=umask)
        return self.process

    def start(self, *, port: str = "0", umask: int = -1) -> None:
        """Start the daemon and wait until it listens, and has looked at its sources."""
        written = self.log.stat().st_size if self.log.exists() else 0
        self.spawn(port=port, umask=umask)

        def address() -> str | None:
            text = self.log.read_bytes()[written:].decode()
            found = re.search(r"event=listening .*?(127\.0\.0\.1:\d+)", text)
            assert self.process is not None
            assert self.process.poll() is None, text
            return found[1] if found and "event=watching" in text else None

        self.address = eventually(address)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def post(self, path: str, body: bytes = b"") -> tuple[int, str]:
        """Status and text of the daemon's answer over its control socket."""
        status, answer = control_socket.post(self.folder / "state", path, body, most=1 << 20)
        return status, answer.decode()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return answer.read().decode()

    def value(self, series: str) -> float | None:
        """The value of one series on /metrics, written as there."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(series + " "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def records(self, kind: str = "incident") -> list[dict[str, Any]]:
        """The journal."""
        found = []
        for path in sorted((self.folder / "state" / "journal").glob("*.jsonl")):
            found += [
                json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()
            ]  # the last may be begun
        return [record for record in found if record["kind"] == kind]


class Kernel:
    """A kernel log that a daemon reads, and that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kmsg"
        self.path.touch()
        self._records = 0

    def say(self, text: str, seconds_ago: float = 0.0) -> None:
        self._records += 1
        clock = int((time.clock_gettime(time.CLOCK_BOOTTIME) - seconds_ago) * 1e6)
        with self.path.open("a") as log:
            log.write(f"3,{self._records},{clock},-;{text}\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[FuseServer]:
    """A file system whose calls can be kept waiting."""
    (tmp_path / "behind").mkdir()
    server = FuseServer(tmp_path / "behind", tmp_path / "mnt")
    yield server
    server.go_on()
    server.close()


def gpufault() -> str:
    """The command that belongs to the interpreter that runs the tests."""
    found = shutil.which("gpufault", path=str(Path(sys.executable).parent))
    assert found, "gpufault is not installed beside this interpreter"
    return found


def eventually(look: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Look again and again until there is something to see: nothing, 0 and an empty list are not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if seen := look():
            return seen
        time.sleep(0.05)
    raise AssertionError(f"not seen within {seconds} s")


def grows_to(goal: float, look: Callable[[], float], stalled: float = 120.0) -> None:
    """Look until a number has come to the goal, however slow the machine is: only one that stands still has failed."""
    seen, since = look(), time.monotonic()
    while seen < goal:
        assert time.monotonic() - since < stalled, f"{seen} of {goal}, and no more for {stalled} s"
        time.sleep(0.05)
        if (now := look()) > seen:
            seen, since = now, time.monotonic()


@dataclass(frozen=True)
class Guarded:
    """How a node's endpoint is guarded, and what lets a command through."""

    environment: tuple[str, ...]  # to wrap the daemon in
    trust: str  # the flag that names the authority
    login: tuple[str, str]


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    """TLS by an authority of the test's own, and one user."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    hashed = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
    web = {"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}, "basic_auth_users": {"sre": hashed}}
    (tmp_path / "web.yaml").write_text(json.dumps(web))
    (tmp_path / "password").write_text("open sesame\n")
    return Guarded(
        ("env", f"GPUFAULT_WEB_CONFIG_FILE={tmp_path}/web.yaml"),
        f"--ca-file={tmp_path}/ca.pem",
        ("--user=sre", f"--password-file={tmp_path}/password"),
    )


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Nodes that are stopped when the test ends."""
    nodes: list[Node] = []

    def make(sources: list[dict[str, Any]] | None = None, **sections: Any) -> Node:
        nodes.append(Node(tmp_path, sources or [], **sections))
        return nodes[-1]

    yield make
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            node.kill()
