"""What an answer means for what was sent, and how long to wait before it is sent again. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

# sent: done with. again: later, the receiver is away or busy. refused: the receiver will never take this; it goes.
# held: the configuration is at fault, not what was sent; it waits until somebody fixes that.
Verdict = Literal["sent", "again", "refused", "held"]

# Labels of gpufault_output_failures_total.
SENDING_FAILURES = (
    "connect", "tls", "timeout", "protocol", "settings", "http_3xx", "http_4xx", "http_429", "http_5xx", "journal", "bug",
)  # fmt: skip
WRITING_FAILURES = ("disk", "bug")
# Of gpufault_output_records_dropped_total: the journal's bound came before them, the receiver refused them, or
# they were too long for a record.
DROPS = ("journal", "refused", "unreadable")

LONGEST_RETRY_AFTER = 3600.0  # a receiver may ask for a pause, not for silence

# Bad data. OTLP 1.x says that 400 is never sent again; of HTTP, 413 and 422 say the same.
_REFUSED = frozenset({400, 413, 422})
_AGAIN = frozenset({408, 425, 429})


class Judged(NamedTuple):
    verdict: Verdict
    reason: str  # a label, "" if it was sent


def judged(status: int) -> Judged:
    """What a status means. Whatever is neither success nor bad data is tried again: the queue is on disk, and a token
    that has run out must not cost a day of crashes. OTLP names only 429, 502, 503 and 504 as worth a second attempt.
    """
    if 200 <= status < 300:
        return Judged("sent", "")
    reason = "http_429" if status == 429 else f"http_{status // 100}xx"
    if status >= 500 or status in _AGAIN:
        return Judged("again", reason)
    return Judged("refused" if status in _REFUSED else "held", reason)


def pause(failures: int, first: float, most: float, dice: float) -> float:
    """Seconds to wait after so many failures in a row: doubling, and spread, so that a fleet does not come back as one.

    dice: from 0 to 1.
    """
    whole = min(most, first * 2.0 ** min(failures - 1, 60))
    return whole * (0.5 + dice / 2)


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3), bounded; 0 without one that can be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:9]), LONGEST_RETRY_AFTER)
    try:
        asked = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(asked, 0.0), LONGEST_RETRY_AFTER)
