"""`gpufault demo` as one who tries it out starts and ends it."""

from __future__ import annotations

import subprocess
import sys


def test_a_demo_that_ends_while_it_replays_says_nothing_of_it() -> None:
    command = [
        sys.executable,
        "-m",
        "exporter.cli.main",
        "demo",
        "--web.listen-address",
        "127.0.0.1:0",
        "--seconds",
        "0.5",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Replaying crash logs" in done.stdout
    assert "Counted so far" not in done.stdout
