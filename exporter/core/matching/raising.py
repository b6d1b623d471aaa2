"""Which process raised a kernel line: the identity of faults that a user's program can provoke.

A driver names the process in one line of a report only. AMD's and Intel's name it first. NVIDIA's names it last: 580 prints
the first lines of an Xid 13 without a pid, and some milliseconds later the Xid 43 or 13 of the same GPU with one. So
adjacent lines without a pid are a block, and the next line of the GPU with a pid closes it: its process raised the block.
Knows no patterns and no incidents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

CLOSED_WITHIN = 5.0  # seconds after its last line; 4 ms on an H100, but 700 lines a second may come for several seconds
GOES_ON_WITHIN = 60.0  # seconds: a log that never names a process has one block for each episode
REPORT_SECONDS = 1.0  # between two lines of a report; microseconds, or some milliseconds on a serial console
MAX_GPUS = 64  # of a node, whose reports are open
BLOCK = "block "
# `channel 0x0000000a` (580), `Ch 00000010` (until 570), `Channel ID 00000012` (Xid 32)
_CHANNEL = re.compile(r"\b(?:[Cc]hannel(?: ID)?|Ch) (?:0x)?([0-9a-fA-F]{8})\b")


class Kind(Protocol):
    """A signature: its id, and whether its driver names the process last."""

    @property
    def id(self) -> str: ...
    @property
    def named_last(self) -> bool: ...


class Report(NamedTuple):
    """The latest lines of one GPU. by: their process, or the name of a block. last: the time of the latest line."""

    by: str
    last: float
    signature: str
    channel: str | None = None

    @property
    def is_block(self) -> bool:
        return self.by.startswith(BLOCK)

    def may_be_of(self, channel: str | None) -> bool:
        return None in (channel, self.channel) or channel == self.channel


class Raised(NamedTuple):
    """Who raised a line: `pid 5600`, or a block; None if nothing tells. closes: the block that turns out to be the same."""

    by: str | None = None
    closes: str | None = None


NOT_KNOWN = Raised()


class Raising:
    """The latest reports of one kernel log, by GPU."""

    def __init__(self, reports: Mapping[str, Report]) -> None:
        self.reports = dict(reports)

    def of_line(self, kind: Kind, gpu: str | None, captures: Mapping[str, str], time: float, offset: int) -> Raised:
        """Who raised a line that a user's program can provoke. offset: names a block that begins with it."""
        pid = captures.get("pid", "")
        found = _CHANNEL.search(captures.get("message", ""))
        channel = found[1].lower() if found else None
        before = self.reports.get(gpu or "")
        age = abs(time - before.last) if before else 0.0
        if pid.isdecimal():
            by = f"pid {int(pid)}"
            self._put(gpu, Report(by, time, kind.id, channel))
            closes = before and before.is_block and before.may_be_of(channel) and age <= CLOSED_WITHIN
            return Raised(by, before.by if before and closes else None)
        if gpu is None:  # a line in the middle of a report
            return next((Raised(r.by) for r in self.reports.values() if _is_amid(r, kind, time)), NOT_KNOWN)
        if before and before.is_block and before.may_be_of(channel) and age <= GOES_ON_WITHIN:
            self._put(gpu, before._replace(last=time, channel=before.channel or channel))
            return Raised(before.by)
        if before and _goes_on(before, kind, age):
            self._put(gpu, before._replace(last=time))
            return Raised(before.by)
        self._put(gpu, Report(f"{BLOCK}{offset}", time, kind.id, channel))
        return Raised(f"{BLOCK}{offset}")

    def of_flood(self, kind: Kind, gpu: str | None, pid: str | None, time: float, text: bytes) -> Raised | None:
        """The same for one more line of a flood, whose text was not searched; None if it must be."""
        before = self.reports.get(gpu or "")
        if gpu is None and pid is None:
            return None if any(_is_amid(report, kind, time) for report in self.reports.values()) else NOT_KNOWN
        if before is None:
            return None
        if pid is not None:
            if before.is_block or not pid.isdecimal():
                return None
            by = before.by if before.by[4:] == pid else f"pid {int(pid)}"
            self._put(gpu, before._replace(by=by, last=time, signature=kind.id))
            return Raised(by)
        age = abs(time - before.last)
        if before.is_block:
            if before.channel or age > GOES_ON_WITHIN or b"Ch " in text or b"hannel" in text:
                return None
        elif not _goes_on(before, kind, age):
            return None
        self._put(gpu, before._replace(last=time))
        return Raised(before.by)

    def _put(self, gpu: str | None, report: Report) -> None:
        self.reports[gpu or ""] = report
        while len(self.reports) > MAX_GPUS:
            del self.reports[next(iter(self.reports))]


def _is_amid(report: Report, kind: Kind, time: float) -> bool:
    return not kind.named_last and report.signature == kind.id and abs(time - report.last) <= REPORT_SECONDS


def _goes_on(before: Report, kind: Kind, age: float) -> bool:
    """Whether a line without a pid belongs to the report that named its process before."""
    return not kind.named_last and not before.is_block and before.signature == kind.id and age <= REPORT_SECONDS
