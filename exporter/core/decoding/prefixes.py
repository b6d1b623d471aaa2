"""What carriers put in front of a line: ranks, hosts, times. Where each lies, what it says, and where the line's text begins.

Prefixes nest, so they are taken off again and again.
"""

from __future__ import annotations

import calendar
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from exporter.core.model import SourceKind

MAX_PREFIXES = 6  # srun -l, torchrun, GitHub Actions, compose and a time stamp at once: five, seen in CI logs
_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}

_DATE_TIME = r"(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ISO = rf"{_DATE_TIME}(?P<zone>Z|[+-]\d\d:?\d\d)?"
_SYSLOG_TIME = (
    r"(?P<mon>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
)
_TAG = r"(?:kern\.\w+ )?kernel(?:\[\d+\])?:"  # busybox tells the level, too
_DELTA = r"(?: +<[ \d.]{1,24}>)?"  # dmesg --show-delta, journalctl -o short-delta
_MONOTONIC = rf"\[ *(?P<mono>\d{{1,10}}\.\d{{6}}){_DELTA}\](?:\[ *[TC]\d+\])? ?"
_LEVEL = r"(?:emerg|alert|crit|err|warn|notice|info|debug)"


class Prefix:
    """One prefix, and what it tells."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.match = re.compile(pattern).match
        names = re.compile(pattern).groupindex
        self.stamp, self.syslog_time, self.mono = "stamp" in names, "mon" in names, "mono" in names
        self.rank, self.host = "rank" in names, "host" in names


class Prefixes:
    """Prefixes in the order in which they are tried, and which of them can begin with a given ASCII character.

    To none is one digit another than any other: `Layouts` rests on it.
    """

    def __init__(self, *rows: tuple[str, str]) -> None:
        compiled = [(initials, Prefix(pattern)) for initials, pattern in rows]
        self._all = tuple(prefix for _, prefix in compiled)
        self._by_initial = {
            initial: tuple(prefix for initials, prefix in compiled if initial in initials)
            for initial in map(chr, range(128))
        }

    @property
    def patterns(self) -> tuple[str, ...]:
        """What they are searched by."""
        return tuple(prefix.pattern for prefix in self._all)

    def match(self, text: str, at: int) -> tuple[Prefix, re.Match[str]] | None:
        """The first prefix that a text goes on with at a place."""
        for prefix in self._by_initial.get(text[at : at + 1], self._all):  # digits that are not ASCII are digits too
            if found := prefix.match(text, at):
                return prefix, found
        return None


# What carriers put in front of a job's line: docs of srun --label, mpirun --tag-output, PALS, c10d, compose, Actions.
_DIGITS, _LETTERS = string.digits, string.ascii_letters
_JOB_PREFIXES = Prefixes(
    (" " + _DIGITS, r" *(?P<rank>\d{1,6}): "),
    ("[", r"\[\d+,(?P<rank>\d+)\]<std(?:out|err|diag)>:\s?"),
    ("x", r"(?P<host>x\d+c\d+s\d+b\d+n\d+\S*) (?P<rank>\d+): "),
    ("[", r"\[(?:rank|default)(?P<rank>\d+)\]: ?"),
    (_DIGITS, rf"{_ISO}(?= |\t|$)[ \t]?"),
    ("[", rf"\[{_ISO}\] ?"),
    (_LETTERS, r"(?P<service>[A-Za-z][\w.-]{0,60}-\d+) +\| "),
)
# What the kernel's readers put in front: dmesg in its forms, syslog daemons with their `kernel:` tag, journalctl -k.
_UNMARKED = rf"{_ISO} (?=\S)"  # anyone's stamp: no mark of the kernel
# What somebody put before the lines of a whole log: an indentation, pdsh's and clush's host, grep's path. The kernel's own
# lines without a stamp keep how they begin.
_STAMPED = (
    r"\[ *\d{1,10}\.\d{6}[\] ]|\[[A-Z][a-z]{2} |<\d{1,3}>"
    r"|[^\W\d]{3,6}\.? +\d{1,2} \d\d:|\d{4}-\d\d-\d\d[T ]"
)
_QUOTED = (
    rf"(?:[ \t]{{1,32}}|[\w./-]{{1,255}}:(?:\d{{1,9}}:)?[ \t]?)(?={_STAMPED})"
    r"|[\w.-]{1,64} (?=\[ *\d{1,10}\.\d{6}\])"  # a console server's
)
# Whoever shows a log to others may have blotted it out: `<host>`, `****`, nothing.
_HOST = r"(?:(?:(?P<host>[\w.:-]+)|[\w.<>\[\]{}()*#$-]*) )?"
# journalctl -o short-full
_FULL = rf"[^\W\d]{{2,4}}\.? {_DATE_TIME} (?:(?P<zone>UTC|GMT)|[A-Z]{{2,5}}|[+-]\d{{2,4}})"
_KERNEL_PREFIXES = Prefixes(
    ("[", _MONOTONIC),
    ("<", r"<\d{1,3}>"),
    ("[", rf"\[(?P<wday>[A-Z][a-z]{{2}}) {_SYSLOG_TIME} (?P<year>\d{{4}}){_DELTA}\] ?"),
    (
        "[",
        r"\[(?P<mon>[A-Z][a-z]{2}) ?(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d)\] ?",
    ),  # dmesg --human: its minute,
    ("[", r"\[ *\+\d{1,10}\.\d{6}\] ?"),  # and the seconds since the line before
    ("<" + _LETTERS, rf"(?:<\d+>)?{_SYSLOG_TIME} {_HOST}{_TAG} ?"),
    (
        _LETTERS,
        rf"[^\W\d]{{3,6}}\.? +\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)? {_HOST}{_TAG} ?",
    ),  # in another language
    (_DIGITS, rf"{_ISO} {_HOST}{_TAG} ?"),
    (_DIGITS + "k", rf"(?:\d\d:\d\d:\d\d(?:\.\d+)? {_HOST})?{_TAG} "),
    (_LETTERS, rf"{_FULL} {_HOST}{_TAG} ?"),
    (_DIGITS, rf"\d {_ISO} (?P<host>\S+) kernel \S+ \S+ (?:-|(?:\[[^]]*\])+) ?"),  # RFC 5424, behind its priority
    ("k", rf"kern *:{_LEVEL} *: "),
    (_DIGITS, _UNMARKED),
    (" \t/._-" + _DIGITS + _LETTERS, _QUOTED),
)
# What a syslog daemon, journalctl or dmesg puts in front of a line that is not the kernel's: any user may write one, with
# any tag. After a classic stamp, in whatever language, comes a host, then `kernel:` or another's tag. After an ISO stamp
# the host may be missing (dmesg's own has a comma), so only what looks like `host tag[pid]: ` is another's.
_OTHERS = (
    rf"(?:<\d+>)?[^\W\d]{{3,6}}\.? +\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)? (?!{_TAG})\S+ (?!{_TAG})"
    rf"|(?:\d{{4}}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    rf" [\w.-]+ (?!{_TAG})[^\s:\[]+(?:\[\d+\])?: "
    rf"|[^\W\d]{{2,4}}\.? \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+ [\w.-]+ (?!{_TAG})"
    rf"|<{{priority}}>|(?!kern\b)[a-z]+{{local}}? *:{_LEVEL} *: "  # dmesg --raw, dmesg --decode
)
# A priority is facility * 8 + level, and the kernel's facility is 0; local0 to local7 are no words of the kernel.
_BY_OTHERS = re.compile(_OTHERS.replace("{priority}", r"(?:[89]|[1-9]\d+)").replace("{local}", "[0-7]"))
_PERHAPS_BY_OTHERS = re.compile(_OTHERS.replace("{priority}", r"\d+").replace("{local}", r"\d"))  # with other digits
ISO = Prefix(_ISO)
# All that decides what a line's prefixes are, but for whether others wrote it: that is asked of each line.
PATTERNS: Mapping[SourceKind, tuple[str, ...]] = {
    "job": _JOB_PREFIXES.patterns,
    "kernel": (*_KERNEL_PREFIXES.patterns, _PERHAPS_BY_OTHERS.pattern),
}
_YEAR_SECONDS = 31556952  # the mean Gregorian year
_LATEST = 4102444800.0  # 2100: no log is from later, and what lies beyond the year 9999 no record could state


@dataclass(frozen=True, slots=True)
class Clock:
    """What is needed to place a stamp that lacks a zone or a year: the node's offset from UTC and the time of reading."""

    read_at: float
    utc_offset: float = 0.0
    boot_time: float | None = None


Span = tuple[int, int]


class Stamp(NamedTuple):
    """By which prefix a line is stamped, and where that lies: no other character decides what it says."""

    prefix: Prefix
    start: int
    stop: int


class PrefixFields(NamedTuple):
    """What a line's prefixes tell: its time, and by which of them; of the rest where it lies, as spans. All of it but the
    time is the same in every line in which only ASCII digits differ, unless a stamp is no time or others wrote the line.
    """

    text: int
    time: float | None = None
    stamp: Stamp | None = None
    impossible: bool = False  # a stamp that is no time came first
    mono: Span | None = None
    rank: Span | None = None
    host: Span | None = None
    kernel: bool = False
    others: bool = False
    looked: tuple[int, ...] = ()  # where a mark of others would have ended them


def read_job_prefixes(text: str, at: int, clock: Clock) -> PrefixFields:
    """By what carriers put in front of a job's line, which begins there."""
    rank = host = time = stamp = None
    impossible = False
    for _ in range(MAX_PREFIXES):
        there = _JOB_PREFIXES.match(text, at)
        if there is None:
            break
        prefix, found = there
        if prefix.stamp and time is None:
            time, stamp = _time(prefix, found, clock), Stamp(prefix, *found.span())
            impossible = impossible or time is None
        if prefix.rank:
            rank = found.span("rank")
        if prefix.host:
            host = found.span("host")
        at = found.end()
    return PrefixFields(at, time, stamp, impossible, None, rank, host)


def read_kernel_prefixes(text: str, clock: Clock) -> PrefixFields:
    """By what readers of the kernel's log put in front."""
    mono = host = time = stamp = None
    kernel, others, impossible, at, looked = False, False, False, 0, []
    for count in range(MAX_PREFIXES + 1):
        looked.append(at)
        if others := written_by_others(text, at):
            break
        there = _KERNEL_PREFIXES.match(text, at) if count < MAX_PREFIXES else None
        if there is None:
            break
        prefix, found = there
        if time is None and _stamps(prefix, found):
            time, stamp = _time(prefix, found, clock), Stamp(prefix, *found.span())
            impossible = impossible or time is None
        if prefix.mono and found["mono"]:
            mono = found.span("mono")
        if prefix.host and found["host"]:
            host = found.span("host")
        at = found.end()
        kernel = kernel or prefix.pattern not in (_UNMARKED, _QUOTED)
    return PrefixFields(at, time, stamp, impossible, mono, None, host, kernel, others, tuple(looked))


def _stamps(prefix: Prefix, found: re.Match[str]) -> bool:
    return bool((prefix.stamp and found["stamp"]) or (prefix.syslog_time and found["mon"]))


def written_by_others(text: str, at: int = 0) -> bool:
    """Whether a line of a kernel log says that it is not the kernel's: any user may write one, whatever it says."""
    return text[at : at + 1] != "[" and bool(_BY_OTHERS.match(text, at))


def may_be_by_others(text: str, at: int) -> bool:
    """Whether a line in which only digits differ may say that."""
    return text[at : at + 1] != "[" and bool(_PERHAPS_BY_OTHERS.match(text, at))


def time_from(prefix: Prefix, text: str, at: int, clock: Clock) -> float | None:
    """What a prefix that stamps lines says there; None if it is not there or no time."""
    found = prefix.match(text, at)
    return _time(prefix, found, clock) if found else None


class Times:
    """What stamps say under one clock. Those of a second are mostly one and the same."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[tuple[Prefix, bytes], float | None] = {}

    def of(self, stamp: Stamp, line: bytes) -> float | None:
        """The time that an ASCII line states, of the shape that the stamp was found in; None if it is no time."""
        key = stamp.prefix, line[stamp.start : stamp.stop]
        try:
            return self._said[key]
        except KeyError:
            said = self._said[key] = time_from(stamp.prefix, line.decode(), stamp.start, self._clock)
            return said


def first_stamp(text: str) -> Stamp | None:
    """The first stamp of a job's line."""
    at = 0
    for _ in range(MAX_PREFIXES):
        there = _JOB_PREFIXES.match(text, at)
        if there is None:
            break
        prefix, found = there
        if prefix.stamp:
            return Stamp(prefix, *found.span())
        at = found.end()
    return None


def _time(prefix: Prefix, found: re.Match[str], clock: Clock) -> float | None:
    if prefix.stamp and found["stamp"]:
        return _from_iso(found, clock)
    return _from_syslog(found.groupdict(), clock) if prefix.syslog_time and found["mon"] else None


def _from_iso(found: re.Match[str], clock: Clock) -> float | None:
    stamp, fraction, zone = found.group("stamp", "fraction", "zone")
    whole = _seconds(stamp, zone, clock.utc_offset)
    return None if whole is None else plausible_time(whole + float(f"0.{fraction}") if fraction else whole)


@lru_cache(maxsize=1024)  # a crash that floods a log writes thousands of lines a second
def _seconds(stamp: str, zone: str | None, utc_offset: float) -> float | None:
    """`YYYY-MM-DD?hh:mm:ss` of a zone as Unix seconds."""
    year, month, day, hour, minute, second = stamp[:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:]
    try:
        there = calendar.timegm((int(year), int(month), int(day), int(hour), int(minute), int(second), 0, 0, 0))
    except (ValueError, OverflowError):
        return None
    return there - _zone_seconds(zone, utc_offset)


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


def plausible_time(time: float) -> float | None:
    """A time, unless it is one that no clock of a node shows: then it was a number of something else, or a forgery."""
    return time if 0.0 <= time < _LATEST else None


def _zone_seconds(zone: str | None, utc_offset: float) -> float:
    if zone is None:
        return utc_offset
    if zone in ("Z", "UTC", "GMT"):
        return 0.0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def _from_syslog(f: Mapping[str, Any], clock: Clock) -> float | None:
    """A stamp without a year lies in the year that ends now: nothing was logged in the future (but for a day of skew)."""
    month = _MONTHS.get(f["mon"])
    if month is None:
        return None
    about = int(clock.read_at // _YEAR_SECONDS) + 1970  # a day off at New Year, so its neighbours are looked at too
    for year in (int(f["year"]),) if f.get("year") else (about + 1, about, about - 1):
        parts = (year, month, int(f["day"]), int(f["hour"]), int(f["minute"]), int(f.get("second") or 0), 0, 0, 0)
        try:
            time = calendar.timegm(parts) + _fraction(f.get("fraction")) - clock.utc_offset
        except (ValueError, OverflowError):
            return None
        if f.get("year") or time <= clock.read_at + 86400:
            return plausible_time(time)
    return None
