"""Amounts of memory as programs print them."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"(?P<number>\d[\d,]*(?:\.\d+)?) ?(?P<unit>[KMGT]?i?B?|bytes?)", re.IGNORECASE)
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def byte_count(text: str) -> float | None:
    """Bytes of `2.50 GiB`, `512M`, `4,096 bytes` or `4096`; units are powers of 1024. None for other text."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return None
    number = float(found["number"].replace(",", ""))
    return number * float(1024 ** _POWERS[found["unit"][:1].lower()])
