"""Log formats: from one raw line to a Record with its text, time and prefix fields. Never raises on any input.

Formats nest (CRI, docker, kmsg, syslog, srun, torchrun …): all prefixes are removed and kept as fields; signatures match
the remaining text.
"""

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from exporter.core.decoding import kernel_records
from exporter.core.decoding.prefixes import (
    ISO,
    Clock,
    PrefixFields,
    first_stamp,
    plausible_time,
    read_job_prefixes,
    read_kernel_prefixes,
    time_from,
)
from exporter.core.model import LogFormat, Record, SourceKind

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NULS = re.compile(r"\x00+")
CRI = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\S+) (?P<stream>stdout|stderr) (?P<part>[FP])(?::\S+)?(?: |$)")


class ContainerLine(NamedTuple):
    """A line of a container log: its text, and whether the container's line continues in the next one."""

    text: str
    time: float | None
    stream: str = ""
    continues: bool = False


def decode(raw: bytes, format: LogFormat, source: SourceKind, clock: Clock) -> Record:  # noqa: A002 (the field's word)
    """Decode one raw line without newline. The text has no ANSI sequences, NULs or line ends."""
    if format == "kmsg":
        return _kmsg(raw, clock)
    time = None
    if format in CONTAINER_FORMATS:
        part = CONTAINER_FORMATS[format](raw, clock)
        text, time = clean(part.text), part.time
    else:
        text = clean(_text(raw))
    return _kernel(text, time, clock) if source == "kernel" else _job(text, time, clock)


def time_of(raw: bytes, format: LogFormat, clock: Clock) -> float | None:  # noqa: A002
    """The time of a job's line, or of its first bytes: the same as in its Record."""
    if format != "plain":
        return decode(raw, format, "job", clock).time
    text = clean(_text(raw))
    stamp = first_stamp(text)
    time = time_from(stamp.prefix, text, stamp.start, clock) if stamp else None
    return time if time is not None or stamp is None else read_job_prefixes(text, 0, clock).time


def prefix_fields(raw: bytes, format: LogFormat, source: SourceKind, clock: Clock) -> PrefixFields | None:  # noqa: A002
    """The prefix fields of a line with positions in it; None if decoding changes the text."""
    if format == "docker" or is_rewritten(raw, format):
        return None
    if format == "kmsg":
        return _kmsg_fields(raw, clock)
    text = raw.decode()
    if format == "plain":
        return read_kernel_prefixes(text, clock) if source == "kernel" else read_job_prefixes(text, 0, clock)
    header = CRI.match(text)
    if not header or header["part"] == "P":
        return None
    fields = read_job_prefixes(text, header.end(), clock)
    time = time_from(ISO, text, 0, clock)
    return fields if time is None else fields._replace(time=time)


def is_rewritten(raw: bytes, format: LogFormat) -> bool:  # noqa: A002
    """Whether decoding changes the text, so that it is not a part of these bytes."""
    if format == "kmsg" and b"\\x" in raw:
        return True
    return not raw.isascii() or b"\x1b" in raw or b"\r" in raw or b"\0" in raw


def _kmsg_fields(raw: bytes, clock: Clock) -> PrefixFields | None:
    """Those of a record by the kernel itself whose time is known: all of a live log."""
    header = kernel_records.parse_header(raw)
    if header is None or not _is_by_kernel(header) or header.us is None or clock.boot_time is None:
        return None
    return PrefixFields(header.text_at, _time_of(header, clock), kernel=True, device=_device_of(header))


def decode_job_text(text: str, time: float | None, clock: Clock) -> Record:
    """Decode a job's line without its container format (joined parts, a piece between carriage returns)."""
    return _job(clean(text), time, clock)


def clean(text: str) -> str:
    """The text as a terminal shows it, without colours, NULs and line ends."""
    if "\x00" in text:  # first: a NUL may hide in a colour sequence
        text = _NULS.sub("", text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.rstrip("\r\n")


def resembles_kernel_line(raw: bytes) -> bool:
    """Whether a line has a mark of kernel logs."""
    return is_kmsg(raw) or _kernel(clean(_text(raw[:512])), None, Clock(0.0)).kernel


# How the kernel and the drivers of GPUs, networks and disks begin a message.
_MESSAGE = re.compile(
    rb"NVRM: |(?:NMI )?watchdog: |\[drm[\]:]|\[i915\] |EDAC |mce: |AMD-Vi: |DMAR: |BUG: |INFO: (?:task|rcu)"
    rb"|(?:amdgpu|i915|xe|nvidia|nouveau|nvme|mlx5_core|pcieport) (?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: "
)


# `dmesg --time-format iso`: microseconds and a zone. Its comma is ISO 8601's, and no program's log is known to have both.
_DMESG_ISO = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,])\d{6}[+-]\d\d:?\d\d (?=\S)")
# `talosctl dmesg`. Its machine writes into the kernel log too, as `user`: most lines of a healthy node.
_TALOS = re.compile(rb"[\w.:-]{1,255}: (?:kern|user|daemon): +[a-z]{3,7}: \[\d{4}-\d\d-\d\dT")


def begins_as_kernel_message(raw: bytes) -> bool:
    """Whether a line may be the kernel's, copied without its time or printed by `dmesg --time-format iso`."""
    stamp = _DMESG_ISO.match(raw)
    is_by_time = bool(stamp and stamp[1] == b",") or _TALOS.match(raw) is not None
    return is_by_time or _MESSAGE.match(raw, stamp.end() if stamp else 0) is not None


def is_kmsg(raw: bytes) -> bool:
    """Whether a line is a record in the /dev/kmsg format."""
    return kernel_records.parse_header(raw[:256]) is not None


def parse_cri(raw: bytes, clock: Clock) -> ContainerLine:
    """Parse a line of the Container Runtime Interface: `time stream P|F text`."""
    text = _text(raw)
    header = CRI.match(text)
    if not header:
        return ContainerLine(text, None)
    return ContainerLine(text[header.end() :], time_from(ISO, text, 0, clock), header["stream"], header["part"] == "P")


def parse_docker(raw: bytes, clock: Clock) -> ContainerLine:
    """Parse a line of docker's json-file log: `{"log": "text\\n", "stream": …, "time": …}`; without \\n it continues."""
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return ContainerLine(_text(raw), None)
    if not isinstance(entry, dict) or not isinstance(entry.get("log"), str):
        return ContainerLine(_text(raw), None)
    text = entry["log"].encode("utf-8", "backslashreplace").decode()  # JSON can hold lone surrogates, UTF-8 cannot
    time = time_from(ISO, str(entry.get("time", "")), 0, clock)
    return ContainerLine(text.removesuffix("\n"), time, str(entry.get("stream", "")), not text.endswith("\n"))


CONTAINER_FORMATS: dict[str, Callable[[bytes, Clock], ContainerLine]] = {"cri": parse_cri, "docker": parse_docker}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _job(text: str, time: float | None, clock: Clock) -> Record:
    fields = read_job_prefixes(text, 0, clock)
    return _record(text, fields, fields.time if time is None else time)


def _kernel(text: str, time: float | None, clock: Clock) -> Record:
    fields = read_kernel_prefixes(text, clock)
    return _record(text, fields, fields.time if time is None else time)


def _record(text: str, fields: PrefixFields, time: float | None) -> Record:
    mono, rank, host = fields.mono, fields.rank, fields.host
    return Record(
        text=text[fields.text :],
        time=time,
        mono=float(text[mono[0] : mono[1]]) if mono else None,
        rank=text[rank[0] : rank[1]] if rank else None,
        host=text[host[0] : host[1]] if host else None,
        kernel=fields.kernel,
        by_others=fields.by_others,
    )


def _kmsg(raw: bytes, clock: Clock) -> Record:
    header = kernel_records.parse_header(raw)
    if header is None:
        return Record(text=clean(_text(raw)))
    return Record(
        text=clean(_text(kernel_records.unescape(raw[header.text_at :]))),
        time=_time_of(header, clock),
        mono=None if header.us is None else header.us / 1e6,
        device=_device_of(header),
        kernel=_is_by_kernel(header),
        seq=header.seq,
    )


def _time_of(header: kernel_records.Header, clock: Clock) -> float | None:
    if header.us is None or clock.boot_time is None:
        return None
    return plausible_time(clock.boot_time + header.us / 1e6)


def _device_of(header: kernel_records.Header) -> str | None:
    return header.device.removeprefix("+pci:") if header.device else None


def _is_by_kernel(header: kernel_records.Header) -> bool:
    """Facility 0 cannot be written from user space (Documentation/ABI dev-kmsg)."""
    return header.pri >> 3 == 0
