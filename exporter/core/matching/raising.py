"""Which process raised a kernel line: the identity of faults that a user's program can provoke.

A driver names the process for sure in one line of a report only. AMD's and Intel's name it first. NVIDIA's names it last:
580 prints the first lines of an Xid 13 without a pid, or with that of another process which uses the GPU at the time, and
some milliseconds later the Xid 13 or 43 of the channel with the right one. So adjacent lines of one GPU without a channel
are a block, and the line with a channel that goes on with the report closes it: its process raised the block. Knows no
patterns and no incidents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

CLOSED_WITHIN = 5.0  # seconds after its last line; 4 ms on an H100, but 700 lines a second may come for several seconds
MIXED_WITHIN = 0.1  # seconds, where the line that closes a block names another pid than the block
GOES_ON_WITHIN = 60.0  # seconds, between lines with one pid; those without may be of the next job on the GPU
REPORT_SECONDS = 1.0  # between two lines of a report; microseconds, or some milliseconds on a serial console
MAX_REPORTS = 256  # kept: of 16 GPUs with some processes each
BLOCK = "block "
_NAMED = "named"
# `channel 0x0000000a` (580), `Ch 00000010` (until 570), `Channel ID 00000012` (Xid 32)
_CHANNEL = re.compile(r"\b(?:[Cc]hannel(?: ID)?|Ch) (?:0x)?([0-9a-fA-F]{8})\b")


class Kind(Protocol):
    """A signature: its id, whether its driver names the process last, and whether its lines end a report."""

    @property
    def id(self) -> str: ...
    @property
    def named_last(self) -> bool: ...
    @property
    def ends_report(self) -> bool: ...


class Report(NamedTuple):
    """The latest lines of one GPU. by: their process, or the block. last: the time of the latest line."""

    by: str
    last: float
    signature: str
    channel: str | None = None

    @property
    def is_block(self) -> bool:
        return self.by.startswith(BLOCK)

    def may_be_of(self, channel: str | None) -> bool:
        return None in (channel, self.channel) or channel == self.channel

    def goes_on_at(self, time: float, pid: str | None) -> bool:
        return abs(time - self.last) <= (GOES_ON_WITHIN if pid else CLOSED_WITHIN)

    def at(self, time: float, channel: str | None = None) -> Report:
        """The report with one more line. Not by `_replace`, whose calls a flood would feel."""
        return Report(self.by, time, self.signature, self.channel or channel)


class Raised(NamedTuple):
    """Who raised a line: `pid 5600`, or a block, `block 7` or `block 7 pid 5600`; None if nothing tells.

    closes: the block that turns out to be of the same process.
    """

    by: str | None = None
    closes: str | None = None


UNKNOWN_PROCESS = Raised()


def pid_in(by: str | None) -> str | None:
    """The pid of who raised a line, as far as it is known."""
    words = (by or "").split()
    return words[words.index("pid") + 1] if "pid" in words else None


class Raising:
    """The latest reports of one kernel log: by GPU and the pid in a block's lines, or `named` for a process named for sure."""

    def __init__(self, reports: Mapping[str, Report]) -> None:
        self.reports = dict(reports)

    def of_line(self, kind: Kind, gpu: str | None, captures: Mapping[str, str], time: float, offset: int) -> Raised:
        """Who raised a line that a user's program can provoke. offset: names a block that begins with it."""
        pid = _number(captures.get("pid"))
        match = _CHANNEL.search(captures.get("message", ""))
        channel = match[1].lower() if match else None
        if pid and not _begins_block(kind, is_of_channel=channel is not None):
            closes = self._closed_by(kind, gpu, pid, channel, time) if gpu else None
            self._put(f"{gpu} {_NAMED}", Report(f"pid {pid}", time, kind.id, channel))
            return Raised(f"pid {pid}", closes)
        if gpu is None:  # a line in the middle of a report
            return next(
                (Raised(r.by) for r in self.reports.values() if _is_of_named_report(r, kind, time)), UNKNOWN_PROCESS
            )
        key = f"{gpu} {pid or ''}"
        block, named = self.reports.get(key), self.reports.get(f"{gpu} {_NAMED}")
        if block and block.may_be_of(channel) and block.goes_on_at(time, pid):
            self._put(key, block.at(time, channel))
            return Raised(block.by)
        if named and pid is None and _is_of_named_report(named, kind, time):
            self._put(f"{gpu} {_NAMED}", named.at(time))
            return Raised(named.by)
        by = f"{BLOCK}{offset} pid {pid}" if pid else f"{BLOCK}{offset}"
        self._put(key, Report(by, time, kind.id, channel))
        return Raised(by)

    def _closed_by(self, kind: Kind, gpu: str, pid: str, channel: str | None, time: float) -> str | None:
        """The block that a line with a process closes: the one with its pid, else the latest one of the GPU."""
        blocks = [(key, block) for key, block in self.reports.items() if block.is_block and key.startswith(f"{gpu} ")]
        blocks.sort(key=lambda item: (pid_in(item[1].by) != pid, -item[1].last))
        for key, block in blocks:
            if not (kind.ends_report or kind.id == block.signature) or not block.may_be_of(channel):
                continue  # of another process, which failed at the same time
            age, is_its_own = abs(time - block.last), pid_in(block.by) in (None, pid)
            if is_its_own or age <= MIXED_WITHIN:
                del self.reports[key]
                if age <= CLOSED_WITHIN:
                    return block.by
        return None

    def of_flood(self, kind: Kind, gpu: str | None, pid: str | None, time: float, text: bytes) -> Raised | None:
        """The same for one more line of a flood, whose text was not searched; None if it must be."""
        if gpu is None and pid is None:
            return (
                None
                if any(_is_of_named_report(report, kind, time) for report in self.reports.values())
                else UNKNOWN_PROCESS
            )
        is_of_channel, named = b"Ch " in text or b"hannel" in text, f"{gpu} {_NAMED}"
        if pid is not None and (pid := _number(pid)) is None:
            return None
        if pid is not None and not _begins_block(kind, is_of_channel=is_of_channel):
            if any(report.is_block for report in self.reports.values()):
                return None  # which it may close
            by = f"pid {pid}"
            self._put(named, Report(by, time, kind.id))
            return Raised(by)
        key = f"{gpu} {pid or ''}"
        block, before = self.reports.get(key), self.reports.get(named)
        if block:
            if is_of_channel or block.channel or not block.goes_on_at(time, pid):
                return None
            self._put(key, block.at(time))
            return Raised(block.by)
        if pid is None and before and _is_of_named_report(before, kind, time):
            self._put(named, before.at(time))
            return Raised(before.by)
        return None

    def _put(self, key: str, report: Report) -> None:
        self.reports[key] = report
        while len(self.reports) > MAX_REPORTS:
            del self.reports[next(iter(self.reports))]


def _number(pid: str | None) -> str | None:
    """A pid without leading zeros; None for text such as `'<unknown>'`, and for 0, which is not a process of a user."""
    return (pid.lstrip("0") or None) if pid and pid.isdecimal() else None


def _begins_block(kind: Kind, *, is_of_channel: bool) -> bool:
    """Whether the pid in a line is not sure yet: the driver's first lines of a report name no channel."""
    return kind.named_last and not is_of_channel and not kind.ends_report


def _is_of_named_report(report: Report, kind: Kind, time: float) -> bool:
    """Whether a line without a pid belongs to a report that named its process before."""
    is_recent = report.signature == kind.id and abs(time - report.last) <= REPORT_SECONDS
    return is_recent and not kind.named_last and not report.is_block
