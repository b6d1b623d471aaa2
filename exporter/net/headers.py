"""Headers of requests that users configure: names and values that may be sent."""

import re
from typing import Any

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")  # RFC 9110, 5.6.2
_FIELD_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
# What the request says of itself, and would contradict.
OURS = frozenset({"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection"})


def header_name(name: str) -> str:
    """A header's name. Raises ValueError."""
    if not _TOKEN.match(name):
        raise ValueError("not a name of an HTTP header; write for example X-Scope-OrgID")
    if name.lower() in OURS:
        raise ValueError(f"{name} is set by gpufault itself; remove it")
    return name


def header_value(value: Any) -> str:
    """A header's value. Raises ValueError, which does not repeat it."""
    if not isinstance(value, str) or not _FIELD_VALUE.match(value) or len(value) > 8192:
        raise ValueError("not a value of an HTTP header; write one line of ASCII in quotes")
    return value
