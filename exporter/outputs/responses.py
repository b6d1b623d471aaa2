"""Classifies HTTP responses of receivers, and computes how long to wait before a retry. Pure functions."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

# sent: accepted. retry: the receiver is down or busy. refused: the receiver will never accept this data, so it is dropped.
# misconfigured: the configuration is wrong, not the data; retried until somebody fixes it.
Outcome = Literal["sent", "retry", "refused", "misconfigured"]

# Reasons in gpufault_output_failures_total.
SENDING_FAILURES = (
    "connect", "tls", "timeout", "protocol", "settings", "http_3xx", "http_4xx", "http_429", "http_5xx", "journal", "bug",
)  # fmt: skip
WRITING_FAILURES = ("disk", "bug")
# Reasons in gpufault_output_records_dropped_total: the journal deleted the record before it was sent, the receiver refused
# it, or its line is too long.
DROPS = ("journal", "refused", "unreadable")

LONGEST_RETRY_AFTER = 3600.0  # so that a receiver cannot stop an output

# Bad data. OTLP 1.x forbids retries after 400; in HTTP, 413 and 422 mean the same.
_REFUSED = frozenset({400, 413, 422})
_RETRY = frozenset({408, 425, 429})


class Classified(NamedTuple):
    """What a response means. `reason`: a metric label, "" if the request was accepted."""

    outcome: Outcome
    reason: str


def classify(status: int) -> Classified:
    """What an HTTP status means for the data that was sent.

    Everything except success and bad data is retried, though OTLP retries only after 429, 502, 503 and 504: the queue is
    on disk, and an expired token must not lose a day of crashes.
    """
    if 200 <= status < 300:
        return Classified("sent", "")
    reason = "http_429" if status == 429 else f"http_{status // 100}xx"
    if status >= 500 or status in _RETRY:
        return Classified("retry", reason)
    return Classified("refused" if status in _REFUSED else "misconfigured", reason)


def retry_delay(failures: int, first: float, most: float, spread: float) -> float:
    """Seconds to wait after `failures` failures in a row: doubles from `first` to `most`.

    spread: a random number from 0 to 1, so that the nodes of a fleet do not retry at the same time.
    """
    delay = min(most, first * 2.0 ** min(failures - 1, 60))
    return delay * (0.5 + spread / 2)


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3), bounded; 0 if it is missing or invalid."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:9]), LONGEST_RETRY_AFTER)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
