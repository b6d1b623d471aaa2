"""`gpufault scan` as a process of its own, and what it and its workers have open."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.conftest import gpufault

AT_MOST_SECONDS = 20.0  # to stop: two on an idle machine; the work that is left takes minutes, or has no end
CRASH = "Memory access fault by GPU node-1 (Agent handle: 0x55d) on address 0x7f00deadb000. Reason: Unknown.\n"


def start(
    *arguments: str, environment: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [gpufault(), "scan", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment and {**os.environ, **environment},
        start_new_session=True,  # Ctrl-C goes to a whole group of processes, and only to this one
    )


def ended(process: subprocess.Popen[str], seconds: float = 120.0) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"has not ended within {seconds:g} s: {out}{err}") from None
    return process.returncode, out, err


def scanned(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, records, errors of a whole scan."""
    code, out, err = ended(start("--format", "json", *arguments, environment=environment))
    return code, [json.loads(line) for line in out.splitlines()], err


def holders(session: int, path: Path) -> Iterator[tuple[int, int]]:
    """The processes of a session that have a file open: their ids, and how far they have read it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(process.name)
            if os.getsid(pid) != session:
                continue
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) == str(path):
                    info = (process / "fdinfo" / descriptor.name).read_text()
                    yield pid, int(info.split()[1])


def archive_that_takes_long(path: Path) -> None:
    """Minutes to unpack, and ten megabytes on the disk. For a name in .xz, which no fast library unpacks."""
    member = lzma.compress(b"\0" * (1 << 24))
    with path.open("wb") as file:
        for _ in range(4000):
            file.write(member)
