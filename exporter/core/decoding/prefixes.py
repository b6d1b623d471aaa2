"""Prefixes of log lines: ranks, hosts and times, which launchers, container runtimes and syslog daemons add.

Prefixes nest, so they are removed one after the other.
"""

import calendar
import re
import string
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from exporter.core.model import SourceKind
from exporter.core.values import dataclass

MAX_PREFIXES = 6  # srun -l, torchrun, GitHub Actions, compose and a time stamp at once: five, seen in CI logs
_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}

_DATE_TIME = r"(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ISO = rf"{_DATE_TIME}(?P<zone>Z|[+-]\d\d:?\d\d)?"
_CLOCK_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?"
_SYSLOG_TIME = rf"(?P<mon>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) {_CLOCK_TIME}"
# Times without a year, with the line's level: they stay in its text.
_GLOG = rf"(?=(?P<ahead>\[?[IWEF](?P<mon>\d{{1,2}})(?P<day>\d\d) {_CLOCK_TIME}) )"  # c10d's month has no zero: [E410
_VLLM = rf"(?=(?P<ahead>(?:\([^()]{{1,60}}\) )?[A-Z]{{4,8}} (?P<mon>\d\d)-(?P<day>\d\d) {_CLOCK_TIME}) )"
_TAG = r"(?:kern\.\w+ )?kernel(?:\[\d+\])?:"  # busybox adds the level
_DELTA = r"(?: +<[ \d.]{1,24}>)?"  # dmesg --show-delta, journalctl -o short-delta
# At most 31 years: ten digits are a time since 1970, as UCX prints it.
_MONOTONIC = rf"\[ *(?P<mono>\d{{1,9}}\.\d{{6}}){_DELTA}\](?:\[ *[TC]\d+\])? ?"
_MAX_BAR_LABEL = 100
# A bar of tqdm: it ends without a newline, so the next message stands behind it.
_PROGRESS_BAR = re.compile(r"[^|]{0,95}?\d{1,3}%\|[^|]{0,200}\| *[\d.]+[kMGTP]?/[\d.]+[kMGTP]? \[[^]]{0,200}\] ?(?=.)")
_LEVEL = r"(?:emerg|alert|crit|err|warn(?:ing)?|notice|info|debug)"


class Prefix:
    """One prefix, and the fields that its pattern has. Compiled when it is first tried."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        names = set(re.findall(r"\(\?P<(\w+)>", pattern))
        self.stamp, self.syslog_time, self.mono = "stamp" in names, "mon" in names, "mono" in names
        self.ahead = "ahead" in names  # stays in the text
        self.rank, self.host = "rank" in names, "host" in names

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        return re.compile(self.pattern).match


class Prefixes:
    """Prefixes in the order of their trial, indexed by the ASCII characters that they can begin with.

    No pattern may distinguish one digit from another: `Heads` depends on it.
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
        return tuple(prefix.pattern for prefix in self._all)

    def match(self, text: str, at: int) -> tuple[Prefix, re.Match[str]] | None:
        """The first prefix that matches a text at a position."""
        for prefix in self._by_initial.get(text[at : at + 1], self._all):  # \d also matches digits outside ASCII
            if match := prefix.match(text, at):
                return prefix, match
        return None


# Prefixes of job lines: docs of srun --label, mpirun --tag-output, PALS, c10d, compose, Actions.
_DIGITS, _LETTERS = string.digits, string.ascii_letters
_JOB_PREFIXES = Prefixes(
    (" " + _DIGITS, r" *(?P<rank>\d{1,6}): "),
    ("[", r"\[\d+,(?P<rank>\d+)\]<std(?:out|err|diag)>:\s?"),
    ("x", r"(?P<host>x\d+c\d+s\d+b\d+n\d+\S*) (?P<rank>\d+): "),
    ("[", r"\[(?:rank|default)(?P<rank>\d+)\]: ?"),
    ("[", r"\[gw\d{1,3}\] (?!\[ *\d)"),  # pytest-xdist; its own lines go on with how far it is
    (_DIGITS, r"\d{1,7}\.\d{1,3}s[\t ]\d{1,7}[\t ]"),  # Kaggle: seconds, line
    (_DIGITS, rf"{_ISO}(?= |\t|$)[ \t]?"),
    ("[", rf"\[{_ISO}(?: [A-Z]{{2}}\d{{1,4}}){{0,3}}\] ?"),  # sglang adds TP0 DP1 PP2
    ("[IWEF", _GLOG),
    ("(DIWEC", _VLLM),
    (_LETTERS, r"(?P<service>[A-Za-z][\w.-]{0,60}-\d+) +\| "),
)
# Prefixes of kernel lines: the forms of dmesg, syslog daemons with their `kernel:` tag, journalctl -k.
_UNMARKED = rf"{_ISO} (?=\S)"  # any program's timestamp: not a mark of the kernel
# Prefixes of every line of a copied log: an indentation, the host of pdsh and clush, the path of grep. They need a
# timestamp behind them: kernel lines without one keep their first words.
_STAMPED = (
    r"\[ *\d{1,9}\.\d{6}[\] ]|\[[A-Z][a-z]{2} |<\d{1,3}>"
    r"|[^\W\d]{3,6}\.? +\d{1,2} \d\d:|\d{4}-\d\d-\d\d[T ]"
)
_QUOTED = (
    rf"(?:[ \t]{{1,32}}|[\w./-]{{1,255}}:(?:\d{{1,9}}:)?[ \t]?)(?={_STAMPED})"
    r"|[\w.-]{1,64} (?=\[ *\d{1,9}\.\d{6}\])"  # a console server's
)
# The host may be redacted: `<host>`, `****`, nothing.
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
    (_DIGITS + _LETTERS, rf"(?P<host>[\w.:-]{{1,255}}): kern: +{_LEVEL}: \[{_ISO}\]: ?"),  # talosctl dmesg
    ("k", rf"kern *:{_LEVEL} *: "),
    (_DIGITS, _UNMARKED),
    (" \t/._-" + _DIGITS + _LETTERS, _QUOTED),
)
# Prefixes that syslog daemons, journalctl and dmesg give to lines that are not the kernel's: any user may write one, with
# any tag. A classic timestamp, in any language, is followed by a host and a tag. After an ISO timestamp the host may be
# missing (dmesg's own timestamp has a comma), so only `host tag[pid]: ` counts.
_OTHERS = (
    rf"(?:<\d+>)?[^\W\d]{{3,6}}\.? +\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)? (?!{_TAG})\S+ (?!{_TAG})"
    rf"|(?:\d{{4}}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    rf" [\w.-]+ (?!{_TAG})[^\s:\[]+(?:\[\d+\])?: "
    rf"|[^\W\d]{{2,4}}\.? \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+ [\w.-]+ (?!{_TAG})"
    rf"|<(?:[89]|[1-9]\d+)>|(?!kern\b)[a-z]+[0-7]? *:{_LEVEL} *: "  # dmesg --raw, dmesg --decode
    rf"|[\w.:-]{{1,255}}: (?!kern\b)[a-z]+[0-7]?: +{_LEVEL}: \[\d{{4}}-"  # talosctl dmesg
)
# A priority is facility * 8 + level; the kernel's facility is 0, and it never uses local0 to local7.
_BY_OTHERS = re.compile(_OTHERS)
ISO = Prefix(_ISO)
PATTERNS: Mapping[SourceKind, tuple[str, ...]] = {"job": _JOB_PREFIXES.patterns, "kernel": _KERNEL_PREFIXES.patterns}
_YEAR_SECONDS = 31556952  # the mean Gregorian year
_LATEST = 4102444800.0  # 2100; RFC 3339 ends with the year 9999


@dataclass(frozen=True, slots=True)
class Clock:
    """The values that complete timestamps without zone, year or date: UTC offset, latest possible time, time of boot.

    dated: gives a time of the log that has a year, if there is one.
    """

    latest: float
    utc_offset: float = 0.0
    boot_time: float | None = None
    dated: Callable[[], float | None] = lambda: None


Span = tuple[int, int]


class Stamp(NamedTuple):
    """A timestamp in a line: its prefix and its position. No other character affects the time."""

    prefix: Prefix
    start: int
    stop: int


class PrefixFields(NamedTuple):
    """The fields of a line's prefixes: the time, and the positions of all others."""

    text: int
    time: float | None = None
    mono: Span | None = None
    rank: Span | None = None
    host: Span | None = None
    kernel: bool = False
    by_others: bool = False
    device: str | None = None


def read_job_prefixes(text: str, at: int, clock: Clock) -> PrefixFields:
    """The prefixes of a job's line that begins at a position."""
    rank = host = time = None
    for _ in range(MAX_PREFIXES):
        there = _JOB_PREFIXES.match(text, at)
        if there is None:
            break
        prefix, match = there
        if (prefix.stamp or prefix.ahead) and time is None:
            time = _time(prefix, match, clock)
        if prefix.ahead:
            break
        if prefix.rank:
            rank = match.span("rank")
        if prefix.host:
            host = match.span("host")
        at = match.end()
    if "%|" in text[at : at + _MAX_BAR_LABEL] and (bar := _PROGRESS_BAR.match(text, at)):
        at = bar.end()
    return PrefixFields(at, time, None, rank, host)


def read_kernel_prefixes(text: str, clock: Clock) -> PrefixFields:
    mono = host = time = None
    kernel, others, at = False, False, 0
    for count in range(MAX_PREFIXES + 1):
        if others := written_by_others(text, at):
            break
        there = _KERNEL_PREFIXES.match(text, at) if count < MAX_PREFIXES else None
        if there is None:
            break
        prefix, match = there
        if time is None and _stamps(prefix, match):
            time = _time(prefix, match, clock)
        if prefix.mono and match["mono"]:
            mono = match.span("mono")
        if prefix.host and match["host"]:
            host = match.span("host")
        at = match.end()
        kernel = kernel or prefix.pattern not in (_UNMARKED, _QUOTED)
    return PrefixFields(at, time, mono, None, host, kernel, others)


def _stamps(prefix: Prefix, match: re.Match[str]) -> bool:
    return bool((prefix.stamp and match["stamp"]) or (prefix.syslog_time and match["mon"]))


def written_by_others(text: str, at: int = 0) -> bool:
    """Whether a line of a kernel log is marked as written by a user program."""
    return text[at : at + 1] != "[" and bool(_BY_OTHERS.match(text, at))


def time_from(prefix: Prefix, text: str, at: int, clock: Clock) -> float | None:
    """The time in a prefix at a position; None if missing or invalid."""
    match = prefix.match(text, at)
    return _time(prefix, match, clock) if match else None


class Times:
    """A cache of timestamps under one clock: lines of one second mostly share theirs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[tuple[Prefix, bytes], float | None] = {}

    def of(self, stamp: Stamp, line: bytes) -> float | None:
        """The time of an ASCII line whose shape has this stamp; None if invalid."""
        key = stamp.prefix, line[stamp.start : stamp.stop]
        try:
            return self._times[key]
        except KeyError:
            time = self._times[key] = time_from(stamp.prefix, line.decode(), stamp.start, self._clock)
            return time


def first_stamp(text: str) -> Stamp | None:
    """The first timestamp of a job's line."""
    at = 0
    for _ in range(MAX_PREFIXES):
        there = _JOB_PREFIXES.match(text, at)
        if there is None:
            break
        prefix, match = there
        if prefix.stamp or prefix.ahead:
            return _stamp(prefix, match)
        at = match.end()
    return None


def _stamp(prefix: Prefix, match: re.Match[str]) -> Stamp:
    return Stamp(prefix, *match.span("ahead" if prefix.ahead else 0))


def _time(prefix: Prefix, match: re.Match[str], clock: Clock) -> float | None:
    if prefix.stamp and match["stamp"]:
        return _from_iso(match, clock)
    return _without_year(match.groupdict(), clock) if prefix.syslog_time and match["mon"] else None


def _from_iso(match: re.Match[str], clock: Clock) -> float | None:
    stamp, fraction, zone = match.group("stamp", "fraction", "zone")
    whole = _seconds(stamp, zone, clock.utc_offset)
    return None if whole is None else plausible_time(whole + float(f"0.{fraction}") if fraction else whole)


@lru_cache(maxsize=1024)  # a flood has thousands of lines a second
def _seconds(stamp: str, zone: str | None, utc_offset: float) -> float | None:
    """`YYYY-MM-DD?hh:mm:ss` in a zone as Unix seconds."""
    parts = (stamp[:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:])
    try:
        local = calendar.timegm((*map(int, parts), 0, 0, 0))
    except (ValueError, OverflowError):
        return None
    return local - _zone_seconds(zone, utc_offset)


def plausible_time(time: float) -> float | None:
    """The time, or None if no node's clock can show it: a forgery, or not a timestamp."""
    return time if 0.0 <= time < _LATEST else None


def _zone_seconds(zone: str | None, utc_offset: float) -> float:
    if zone is None:
        return utc_offset
    if zone in ("Z", "UTC", "GMT"):
        return 0.0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def _without_year(f: Mapping[str, Any], clock: Clock) -> float | None:
    """The time of a timestamp without a year: the nearest to a time of the log with one, else the latest that is possible
    (with a day of skew).
    """
    dated = None if f.get("year") else clock.dated()
    latest = clock.latest if dated is None else min(clock.latest, dated + _YEAR_SECONDS / 2)
    about = int(latest // _YEAR_SECONDS) + 1970  # may be off by a day at New Year, so adjacent years are tried
    years = (int(f["year"]),) if f.get("year") else (about + 1, about, about - 1)
    fraction = float(f"0.{f.get('fraction') or 0}")
    wholes = _in_years(years, f["mon"], f["day"], f["hour"], f["minute"], f.get("second"))
    times = [whole + fraction - clock.utc_offset for whole in wholes]
    if f.get("year"):
        return plausible_time(times[0]) if times else None
    times = [time for time in times if time <= latest + 86400]
    return plausible_time(times[0]) if times else None


@lru_cache(maxsize=1024)  # as above
def _in_years(
    years: tuple[int, ...], name: str, day: str, hour: str, minute: str, second: str | None
) -> tuple[int, ...]:
    """One date and time in several years as Unix seconds; empty if invalid."""
    month = int(name) if name.isdigit() else _MONTHS.get(name)
    if month is None:
        return ()
    rest = (int(day), int(hour), int(minute), int(second or 0), 0, 0, 0)
    try:
        return tuple(calendar.timegm((year, month, *rest)) for year in years)
    except (ValueError, OverflowError):
        return ()
