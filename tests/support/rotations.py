"""Rotations of a log as lines of steps, for a node in process and for the real daemon."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tests.support.tailing import copytruncate, lines, write

BANNER = b"".join(b"launcher: option %04d is at its default value\n" % number for number in range(40))


def pack(path: Path) -> None:
    """As gzip and logrotate do: the time stays, the original goes."""
    status = path.stat()
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


# Each step is a line of `Script`. Crash lines 1 and 2 are read before; every line up to `last` counts once.
SCENARIOS = {
    "the writer goes on in the renamed file": (5, "hold; mv log log.1; 4; poll 1; held 3; poll 1; held 5"),
    "three rotations within one poll": (6, "3; rotate; 4; rotate; 5; rotate; 6"),
    "rotation by date": (5, "3; mv log log-20260801; 4; settle; mv log job-20260802.log; 5"),
    "a line that rotation cuts is completed in the renamed file": (
        3, r"hold; held CRASH s; poll; poll; mv log log.1; poll; poll; held eq=3\n",
    ),
    "a rotated log without a newline at its end": (4, "text CRASH seq=3; mv log log.1; 4"),
    "renamed while the node was down": (5, r"3; crash; mv log log.1; text log.1 CRASH seq=4\n; 5"),
    "several rotations while the node was down": (5, "crash; 3; rotate; 4; rotate; 5"),
    "a crash in the middle of draining a rotated file": (
        4, "3; mv log log.1; 4; poll; poll; crash; settle; seen 4; restart",
    ),
    "copytruncate, rewritten to a larger size within one poll": (6, "copytruncate log log.1; 3 4 5 6"),
    "copytruncate, a writer keeps its offset twice and ends no line between": (
        4,
        (r"hold; copytruncate log log.1; held CRASH seq=3; poll .1; poll .1; poll .1; commit; mv log.1 log.2; "
        r"copytruncate log log.1; held \nCRASH seq=4\n"),
    ),
    "copytruncate, nothing of a copy counts again": (
        6,
        ("3; copytruncate log log.0; settle; 4; settle; copytruncate log log.1; settle; 5; settle; "
        "copytruncate log log.2; settle; 6; settle; restart"),
    ),
    "copytruncate, the copy is found before the truncation": (
        4, "copy log log.1 5; rescan; copy log log.1; poll; 3; copy log log.1; poll; truncate log; 4",
    ),
    "copytruncate, more is read of a log than was copied": (
        4, "banner; poll; copy log log.1; 3; poll; truncate log; 4",
    ),
    "a copy of a log that is never truncated": (4, "banner; 3; poll; copy log log.1; settle; 4"),
    "copytruncate, a line without its newline": (
        4, r"text CRASH seq=3; poll 2; poll 2; poll 2; seen 3; text \n; copytruncate log log.1; 4",
    ),
    "copytruncate while the node was down, and the log is longer again": (
        7, "3; crash; copytruncate log log.1; 4 5 6 7",
    ),
    "two copytruncates while the node was down": (
        5, "3; crash; copytruncate log log.1; 4; mv log.1 log.2; copytruncate log log.1; 5",
    ),
    "copytruncate of an empty log is committed with what came after": (
        4, "copytruncate log log.1; poll; poll; commit; 3; copytruncate log log.2; 4; poll; commit; crash",
    ),
    "compressed at once": (4, "3; mv log log.1; gzip log.1; 4"),
    "compressed while the node was down": (4, "banner; 3; crash; mv log log.1; gzip log.1; 4"),
    "copied, truncated and compressed while the node was down": (
        7, "3; crash; copytruncate log log.1; gzip log.1; 4 5 6 7",
    ),
    "compressed with delay": (
        6,
        ("3; mv log log.1; touch log; settle; 4; mv log.1 log.2; gzip log.2; mv log log.1; touch log; settle; "
        "5; mv log.2.gz log.3.gz; mv log.1 log.2; gzip log.2; mv log log.1; touch log; settle; "
        "6; mv log.2.gz log.3.gz; mv log.1 log.2; gzip log.2; mv log log.1; touch log; settle; restart"),
    ),
    "made again a while after it was renamed": (4, "3; mv log log.1; poll 1; poll 1; poll 1; 4; poll; seen 4"),
    "copytruncate, and the log begins with its banner again": (
        6,
        ("3; copytruncate log log.1; banner; 4; poll; settle; 5; copytruncate log log.2; banner; 6; poll; poll; settle; "
        "crash"),
    ),
    "copied with its times and truncated": (
        8, "3; cp -p log log.1; truncate log; 4 5; poll; 6; cp -p log log.2; truncate log; 7 8; poll; settle; commit; crash",
    ),
    "a last line without a newline": (3, "text CRASH seq=3; poll 2"),
    "one line in four parts": (
        4, r"text CRA; poll; text SH s; rescan; restart; text eq=3; poll 2; text \n; poll; 4",
    ),
    "deleted and made again": (4, "3; rm log; 4"),
    "deleted while its writer goes on": (4, "hold; rm log; held 3; poll; held 4; poll"),
    "rewritten to the same size within one poll": (4, "rewrite 3 4"),
    "rewritten to a larger size within one poll": (6, "rewrite 3 4 5 6"),
}  # fmt: skip


class Script:
    """Runs the steps of a scenario on real files. `log` stands for job.log; numbers are written to it as crash lines.

    written: is given what is written.
    """

    def __init__(self, node: Any, log: Path, written: Callable[[bytes], object] = lambda _: None) -> None:
        self._node, self._log, self._written = node, log, written
        self._writer: BinaryIO | None = None

    def run(self, steps: str) -> None:
        try:
            for step in steps.split("; "):
                verb, _, rest = step.partition(" ")
                if verb.isdecimal():
                    self._write("text", step)
                elif verb == "seen":
                    assert self._node.seen == list(range(1, int(rest) + 1))
                elif verb in ("held", "text", "rewrite"):
                    self._write(verb, rest)
                elif verb in ("poll", "rescan", "settle", "commit", "crash", "restart"):
                    getattr(self._node, verb)(*map(float, rest.split()))
                else:
                    self._file_step(verb, *rest.split())
        finally:
            if self._writer is not None:
                self._writer.close()

    def _path(self, name: str) -> Path:
        return self._log.with_name(name.replace("log", "job.log", 1) if name.startswith("log") else name)

    def _write(self, verb: str, text: str) -> None:
        path, text = (
            (self._path("log.1"), text.removeprefix("log.1 ")) if text.startswith("log.1 ") else (self._log, text)
        )
        numbers = text.split()
        data = lines(*map(int, numbers)) if numbers[0].isdecimal() else text.replace("\\n", "\n").encode()
        self._written(data)
        if verb == "text":
            write(path, data)
        elif verb == "rewrite":
            with path.open("r+b") as file:
                file.truncate(0)
                file.write(data)
        else:
            assert self._writer is not None
            self._writer.write(data)

    def _file_step(self, verb: str, *names: str) -> None:
        path, target = [*map(self._path, names[:2]), self._log, self._log][:2]
        if verb == "hold":  # a writer that keeps its offset through a truncation
            self._writer = self._log.open("r+b", buffering=0)
            self._writer.seek(0, os.SEEK_END)
        elif verb == "copy":
            target.write_bytes(path.read_bytes()[: int(names[2]) if names[2:] else None])
        elif verb == "rotate":
            for age in (3, 2, 1):
                if (old := self._path(f"log.{age}")).exists():
                    old.rename(self._path(f"log.{age + 1}"))
            self._log.rename(self._path("log.1"))
        else:
            steps: dict[str, Callable[[], object]] = {
                "banner": lambda: write(path, BANNER),
                "copytruncate": lambda: copytruncate(path, target),
                "cp": lambda: shutil.copy2(*map(self._path, names[1:])),
                "gzip": lambda: pack(path),
                "mv": lambda: path.rename(target),
                "rm": path.unlink,
                "touch": path.touch,
                "truncate": lambda: os.truncate(path, 0),
            }
            steps[verb]()
