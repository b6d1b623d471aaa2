"""Reads hashes of passwords, as `htpasswd` and the exporter-toolkit write them."""

from __future__ import annotations

import re

# Only two bits of the salt's last character count. If another one is set, Python's bcrypt raises at each check.
_BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}", re.ASCII)


def bcrypt_cost(hashed: str) -> int | None:
    """The cost of a bcrypt hash; None if the text is not a bcrypt hash."""
    match = _BCRYPT.fullmatch(hashed)
    return int(match["cost"]) if match else None
