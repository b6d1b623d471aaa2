"""`gpufault fleet` as a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.e2e.conftest import eventually, gpufault


class Fleet:
    """One service on a free port of loopback."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.log = folder / "fleet.log"
        command = [gpufault(), "fleet", "--web.listen-address=127.0.0.1:0", *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=os.environ | environment)
        self.address = eventually(self._address)

    def _address(self) -> str | None:
        text = self.log.read_text()
        assert self.process.poll() is None, text
        found = re.search(r"event=listening .*?(127\.0\.0\.1:\d+)", text)
        return found[1] if found else None

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        asked = urllib.request.Request(f"http://{self.address}{path}", method=method, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    def json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(f"/api/v1/{name}")[1])
        return found

    def metric(self, series: str) -> float | None:
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith(f"gpufault_fleet_{series} "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def reaches(self, series: str, value: float) -> None:
        eventually(lambda: self.metric(series) == value, seconds=120)

    def child(self) -> int:
        """The refresh under way, once it is a program of its own."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")

        def correlating() -> int | None:
            return next(
                (
                    int(pid)
                    for pid in children.read_text().split()
                    if b"correlate" in Path(f"/proc/{pid}/cmdline").read_bytes()
                ),
                None,
            )

        return eventually(correlating)
