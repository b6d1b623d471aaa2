r"""Kernel log records in their canonical form: one line per record, as in /dev/kmsg, with the device as a field.

    3,1042,567890123,-,d=+pci:0000:c1:00.0;amdgpu 0000:c1:00.0: [gfxhub] page fault\x0a  in process …

Fields: priority (facility * 8 + level), sequence number, microseconds of the kernel's clock, flags, then `name=value`.
A missing field is empty. Source: Documentation/ABI/testing/dev-kmsg and kernel/printk/printk.c. Trust and times are
decided elsewhere.
"""

import re
from collections.abc import Iterator

from exporter.core.values import dataclass

_DIGITS = rb"[0-9]{1,20}"  # 64 bits; int() refuses very long forged numbers
_HEADER = re.compile(
    rb"(?P<pri>%b),(?P<seq>(?:%b)?),(?P<us>(?:%b)?),(?P<flags>[^,;\n]*)(?P<more>[^;\n]*);" % ((_DIGITS,) * 3)
)
_DEVICE_LINE = re.compile(rb"^ DEVICE=([^;\n]+)$", re.MULTILINE)
_DEVICE_FIELD = re.compile(rb",d=(.+)\Z")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_ESCAPED = re.compile(rb"[^ -\[\]-~]")

# `<4>[  123.456789][  T421] text` and the following lines without a prefix: CONFIG_PRINTK_CALLER adds the second
# bracket, printk.time=0 omits the first.
_SYSLOG_RECORD = re.compile(
    rb"^<(?P<pri>[0-9]{1,10})>"
    rb"(?:\[ *(?P<s>[0-9]{1,12})\.(?P<us>[0-9]{6})\](?:\[ *(?P<caller>[TC][0-9]+)\])? ?)?"
    rb"(?P<text>[^\n]*(?:\n(?!<[0-9]{1,10}>)[^\n]*)*)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a record; `text_at` is the index of the text in the line."""

    pri: int
    seq: int | None
    us: int | None
    flags: str
    device: str | None  # as the kernel names it: `+pci:0000:c1:00.0`, `c189:3`, `n2`
    text_at: int


def fold(record: bytes) -> bytes:
    """Convert one read of /dev/kmsg (first line, then ` KEY=value` lines) to its canonical line with newline."""
    first, _, properties = record.partition(b"\n")
    device = _DEVICE_LINE.search(properties)
    if device and (header := _HEADER.match(first)):
        at = header.end() - 1
        first = b"%b,d=%b%b" % (first[:at], device[1], first[at:])
    return first + b"\n"


def parse_header(line: bytes) -> Header | None:
    """The header of a canonical line, or None."""
    match = _HEADER.match(line)
    if not match:
        return None
    device = _DEVICE_FIELD.search(match["more"])
    return Header(
        pri=int(match["pri"]),
        seq=_number(match["seq"]),
        us=_number(match["us"]),
        flags=match["flags"].decode("ascii", "backslashreplace"),
        device=device[1].decode("utf-8", "backslashreplace") if device else None,
        text_at=match.end(),
    )


def compose(*, pri: int, us: int | None, text: bytes, device: str = "", caller: str = "") -> bytes:
    """A canonical line without a sequence number; `text` is as the kernel wrote it."""
    more = (f",caller={caller}" if caller else "") + (f",d={device}" if device else "")
    return b"%d,,%b,-%b;%b\n" % (pri, b"" if us is None else b"%d" % us, more.encode(), escape(text))


def from_syslog(text: bytes, start: int = 0) -> Iterator[bytes]:
    """The canonical lines of a syslog(2) READ_ALL text. A line without prefix belongs to the record before it."""
    for match in _SYSLOG_RECORD.finditer(text, start):
        yield _from_syslog_record(match)


def chain(digest: str, line: bytes) -> str:
    """The digest of a run of lines, from the digest of the run without its last line."""
    import hashlib  # takes 2 ms, and only a start on a kernel's log needs it

    return hashlib.blake2b(digest.encode() + line, digest_size=8).hexdigest()


def find_in_syslog(text: bytes, us: int, digest: str) -> int | None:
    """The position in a READ_ALL text after the line seen last, or None if that line is gone.

    The line seen last is the end of a run of lines with timestamp `us` whose chained digest is `digest`. Only lines with
    that timestamp are parsed.
    """
    stamp = b">[%5d.%06d]" % divmod(us, 1_000_000)
    run, run_end, at = "", -1, text.find(stamp)
    while at >= 0:
        start = text.rfind(b"\n", 0, at) + 1
        match = _SYSLOG_RECORD.match(text, start)
        if match and match.end("us") == at + len(stamp) - 1:
            run = chain(run if start == run_end else "", _from_syslog_record(match))
            run_end = match.end() + 1
            if run == digest:
                return match.end()
        at = text.find(stamp, at + len(stamp))
    return None


def escape(text: bytes) -> bytes:
    r"""Bytes as in /dev/kmsg: backslashes and all but printable ASCII as `\x09`."""
    return _ESCAPED.sub(lambda match: b"\\x%02x" % match[0][0], text)


def unescape(text: bytes) -> bytes:
    """The bytes as the kernel wrote them."""
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text)


def _from_syslog_record(match: re.Match[bytes]) -> bytes:
    return compose(
        pri=int(match["pri"]),
        us=int(match["s"]) * 1_000_000 + int(match["us"]) if match["s"] else None,
        text=match["text"].removesuffix(b"\n"),
        caller=(match["caller"] or b"").decode(),
    )


def _number(digits: bytes) -> int | None:
    return int(digits) if digits else None
