"""One raw line to a Record: what its writer meant, its time, and what its carrier told about it.

Takes bytes, gives values; never raises on any input. Carriers (CRI, docker, kmsg, syslog, srun, torchrun …) nest, so
their prefixes are taken off again and again. What a prefix says is kept as a field; a match is tried on the rest.
"""

from __future__ import annotations

import calendar
import json
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from exporter.core import kmsg
from exporter.core.model import LogFormat, Record, SourceKind

MAX_PREFIXES = 6  # srun -l, torchrun, GitHub Actions, compose and a time stamp at once: five, seen in CI logs
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NULS = re.compile(r"\x00+")
_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}

_ISO = r"(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
_SYSLOG_TIME = (
    r"(?P<mon>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
)
_TAG = r"kernel(?:\[\d+\])?:"
_MONOTONIC = r"\[ *(?P<mono>\d{1,10}\.\d{6})\](?:\[ *[TC]\d+\])? ?"


class _Prefix:
    """One prefix, and what it tells."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.match = re.compile(pattern).match
        names = re.compile(pattern).groupindex
        self.stamp, self.syslog_time, self.mono = "stamp" in names, "mon" in names, "mono" in names
        self.rank, self.host = "rank" in names, "host" in names


class _Prefixes:
    """Prefixes in the order in which they are tried, and which of them can begin with a given ASCII character."""

    def __init__(self, *rows: tuple[str, str]) -> None:
        compiled = [(initials, _Prefix(pattern)) for initials, pattern in rows]
        self._all = tuple(prefix for _, prefix in compiled)
        self._by_initial = {
            initial: tuple(prefix for initials, prefix in compiled if initial in initials)
            for initial in map(chr, range(128))
        }

    def match(self, text: str, at: int) -> tuple[_Prefix, re.Match[str]] | None:
        """The first prefix that a text goes on with at a place."""
        for prefix in self._by_initial.get(text[at : at + 1], self._all):  # digits that are not ASCII are digits too
            if found := prefix.match(text, at):
                return prefix, found
        return None


# What carriers put in front of a job's line: docs of srun --label, mpirun --tag-output, PALS, c10d, compose, Actions.
_DIGITS, _LETTERS = string.digits, string.ascii_letters
_JOB_PREFIXES = _Prefixes(
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
# A log that somebody indented to quote it; the kernel's own lines without a stamp keep their indentation.
_INDENTED = (
    r"[ \t]{1,32}(?=\[ *\d{1,10}\.\d{6}\]|\[[A-Z][a-z]{2} |<\d{1,3}>"
    r"|[^\W\d]{3,6}\.? +\d{1,2} \d\d:|\d{4}-\d\d-\d\d[T ])"
)
_KERNEL_PREFIXES = _Prefixes(
    (" \t", _INDENTED),
    ("[", _MONOTONIC),
    ("<", r"<\d{1,3}>"),
    ("[", rf"\[(?P<wday>[A-Z][a-z]{{2}}) {_SYSLOG_TIME} (?P<year>\d{{4}})\] ?"),
    (
        "[",
        r"\[(?P<mon>[A-Z][a-z]{2}) ?(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d)\] ?",
    ),  # dmesg --human: its minute,
    ("[", r"\[ *\+\d{1,10}\.\d{6}\] ?"),  # and the seconds since the line before
    ("<" + _LETTERS, rf"(?:<\d+>)?{_SYSLOG_TIME} (?:(?P<host>[\w.:-]+) )?{_TAG} ?"),
    (
        _LETTERS,
        rf"[^\W\d]{{3,6}}\.? +\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)? (?:(?P<host>[\w.:-]+) )?{_TAG} ?",
    ),  # in another language
    (_DIGITS, rf"{_ISO} (?:(?P<host>[\w.:-]+) )?{_TAG} ?"),
    (_DIGITS + "k", rf"(?:\d\d:\d\d:\d\d(?:\.\d+)? (?:(?P<host>[\w.:-]+) )?)?{_TAG} "),
    ("k", rf"(?P<facility>kern) *:(?P<level>\w+) *: (?:{_MONOTONIC}|{_ISO} )"),
    (_DIGITS, _UNMARKED),
)
# What a syslog daemon, journalctl or dmesg puts in front of a line that is not the kernel's: any user may write one, with
# any tag. After a classic stamp, in whatever language, comes a host, then `kernel:` or another's tag. After an ISO stamp
# the host may be missing (dmesg's own has a comma), so only what looks like `host tag[pid]: ` is another's.
_KERNELS_TAG = r"(?:kern\.\w+ )?kernel(?:\[\d+\])?:"
_BY_OTHERS = re.compile(
    rf"(?:<\d+>)?[^\W\d]{{3,6}}\.? +\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)? (?!{_KERNELS_TAG})\S+ (?!{_KERNELS_TAG})"
    rf"|(?:\d{{4}}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    rf" [\w.-]+ (?!{_KERNELS_TAG})[^\s:\[]+(?:\[\d+\])?: "
    r"|<(?:[89]|[1-9]\d+)>"  # dmesg --raw: facility * 8 + level, and the kernel's facility is 0
    r"|(?!kern\b)[a-z]+[0-7]? *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: "  # dmesg --decode
)
_CRI = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\S+) (?P<stream>stdout|stderr) (?P<part>[FP])(?::\S+)?(?: |$)")
_ISO_ALONE = re.compile(_ISO)
_YEAR_SECONDS = 31556952  # the mean Gregorian year
_LATEST = 4102444800.0  # 2100: no log is from later, and what lies beyond the year 9999 no record could state


@dataclass(frozen=True, slots=True)
class Clock:
    """What is needed to place a stamp that lacks a zone or a year: the node's offset from UTC and the time of reading."""

    read_at: float
    utc_offset: float = 0.0
    boot_time: float | None = None


class Part(NamedTuple):
    """A carrier's line: its text, and whether the writer's line goes on in the carrier's next one."""

    text: str
    time: float | None
    stream: str = ""
    goes_on: bool = False


def decode(raw: bytes, format: LogFormat, source: SourceKind, clock: Clock) -> Record:  # noqa: A002 (the field's word)
    """One raw line, without its newline, to a Record. The text holds no ANSI sequence, no NUL and no line end."""
    if format == "kmsg":
        return _kmsg(raw, clock)
    time = None
    if format in CARRIERS:
        part = CARRIERS[format](raw, clock)
        text, time = clean(part.text), part.time
    else:
        text = clean(_text(raw))
    return _kernel(text, time, clock) if source == "kernel" else _job(text, time, clock)


def time_of(raw: bytes, format: LogFormat, clock: Clock) -> float | None:  # noqa: A002
    """The time that a job's line, or how it begins, is stamped with: that of its Record."""
    if format != "plain":
        return decode(raw, format, "job", clock).time
    text, at = clean(_text(raw)), 0
    for _ in range(MAX_PREFIXES):  # as in _job, up to the first stamp and no further
        there = _JOB_PREFIXES.match(text, at)
        if there is None:
            break
        prefix, found = there
        if prefix.stamp and (time := _time(prefix, found, clock)) is not None:
            return time
        at = found.end()
    return None


def decode_job_text(text: str, time: float | None, clock: Clock) -> Record:
    """A job's line that has been taken out of its carrier already (joined parts, a piece between carriage returns)."""
    return _job(clean(text), time, clock)


def clean(text: str) -> str:
    """Without colours, NULs and line ends: what a person reads on a terminal."""
    if "\x00" in text:  # first: one within a colour's sequence would hide it
        text = _NULS.sub("", text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.rstrip("\r\n")


def looks_like_kernel(raw: bytes) -> bool:
    """Whether a line carries a mark that only kernel logs carry: for `--source auto`."""
    return is_kmsg(raw) or _kernel(clean(_text(raw[:512])), None, Clock(0.0)).kernel


def is_kmsg(raw: bytes) -> bool:
    """Whether a line is a record in /dev/kmsg form."""
    return kmsg.parse_header(raw[:256]) is not None


def cri_part(raw: bytes, clock: Clock) -> Part:
    """A line of the Container Runtime Interface's log: `time stream P|F text`."""
    text = _text(raw)
    found = _CRI.match(text)
    if not found:
        return Part(text, None)
    stamp = _ISO_ALONE.match(found["time"])
    time = _from_iso(stamp, clock) if stamp else None
    return Part(text[found.end() :], time, found["stream"], found["part"] == "P")


def docker_part(raw: bytes, clock: Clock) -> Part:
    """A line of docker's json-file log: `{"log": "text\\n", "stream": …, "time": …}`; without the \\n the line goes on."""
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return Part(_text(raw), None)
    if not isinstance(entry, dict) or not isinstance(entry.get("log"), str):
        return Part(_text(raw), None)
    stamp = _ISO_ALONE.match(str(entry.get("time", "")))
    text = (
        entry["log"].encode("utf-8", "backslashreplace").decode()
    )  # JSON can hold half a surrogate pair, UTF-8 cannot
    time = _from_iso(stamp, clock) if stamp else None
    return Part(text.removesuffix("\n"), time, str(entry.get("stream", "")), not text.endswith("\n"))


CARRIERS: dict[str, Callable[[bytes, Clock], Part]] = {"cri": cri_part, "docker": docker_part}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _job(text: str, time: float | None, clock: Clock) -> Record:
    rank, host, at = None, None, 0
    for _ in range(MAX_PREFIXES):
        there = _JOB_PREFIXES.match(text, at)
        if there is None:
            break
        prefix, found = there
        at = found.end()
        if time is None:
            time = _time(prefix, found, clock)
        if prefix.rank:
            rank = found["rank"]
        if prefix.host:
            host = found["host"]
    return Record(text=text[at:], time=time, rank=rank, host=host)


def _kernel(text: str, time: float | None, clock: Clock) -> Record:
    mono = host = None
    kernel, others, at = False, False, 0
    for count in range(MAX_PREFIXES + 1):
        if others := written_by_others(text, at):
            break
        there = _KERNEL_PREFIXES.match(text, at) if count < MAX_PREFIXES else None
        if there is None:
            break
        prefix, found = there
        at = found.end()
        if time is None:
            time = _time(prefix, found, clock)
        if prefix.mono and found["mono"]:
            mono = float(found["mono"])
        if prefix.host:
            host = found["host"] or host
        kernel = kernel or prefix.pattern not in (_UNMARKED, _INDENTED)
    return Record(text=text[at:], time=time, mono=mono, host=host, kernel=kernel, others=others)


def _time(prefix: _Prefix, found: re.Match[str], clock: Clock) -> float | None:
    if prefix.stamp and found["stamp"]:
        return _from_iso(found, clock)
    return _from_syslog(found.groupdict(), clock) if prefix.syslog_time and found["mon"] else None


def _kmsg(raw: bytes, clock: Clock) -> Record:
    header = kmsg.parse_header(raw)
    if header is None:
        return Record(text=clean(_text(raw)))
    mono = None if header.us is None else header.us / 1e6
    return Record(
        text=clean(_text(kmsg.unescape(raw[header.text_at :]))),
        time=_possible(clock.boot_time + mono) if clock.boot_time is not None and mono is not None else None,
        mono=mono,
        device=header.device.removeprefix("+pci:") if header.device else None,
        kernel=header.pri >> 3 == 0,  # facility 0 cannot be written from user space (Documentation/ABI dev-kmsg)
        seq=header.seq,
    )


def _from_iso(found: re.Match[str], clock: Clock) -> float | None:
    stamp, fraction, zone = found.group("stamp", "fraction", "zone")
    whole = _seconds(stamp)
    return None if whole is None else _possible(whole + _fraction(fraction) - _zone_seconds(zone, clock))


@lru_cache(maxsize=1024)  # a crash that floods a log writes thousands of lines a second
def _seconds(stamp: str) -> int | None:
    """`YYYY-MM-DD?hh:mm:ss` of UTC as Unix seconds."""
    year, month, day, hour, minute, second = stamp[:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:]
    try:
        return calendar.timegm((int(year), int(month), int(day), int(hour), int(minute), int(second), 0, 0, 0))
    except (ValueError, OverflowError):
        return None


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


def _possible(time: float) -> float | None:
    """A time, unless it is one that no clock of a node shows: then it was a number of something else, or a forgery."""
    return time if 0.0 <= time < _LATEST else None


def _zone_seconds(zone: str | None, clock: Clock) -> float:
    if zone is None:
        return clock.utc_offset
    if zone == "Z":
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
            return _possible(time)
    return None


def written_by_others(text: str, at: int = 0) -> bool:
    """Whether a line of a kernel log says that it is not the kernel's: any user may write one, whatever it says."""
    return text[at : at + 1] != "[" and bool(_BY_OTHERS.match(text, at))
