"""Basic authentication: whether a name and password are right, in a time that tells nothing else.

A refusal costs the same bcrypt whoever is named. What was right once is known by a keyed digest from then on, so that
a scrape costs a microsecond; what was wrong is never remembered. Speaks no HTTP but the one header (RFC 7617).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
import weakref
from collections.abc import Mapping
from enum import Enum

from exporter.web.config import bcrypt_cost

BCRYPT_BYTES = 72  # bcrypt reads no further; htpasswd and Go's package cut longer ones off too

# One address may have so many checks waiting: at cost 10 that is a second's work. Two Prometheus behind one address,
# each with a few paths, stay below it.
MAX_WAITING = 16


class Answer(Enum):
    YES = "yes"
    NO = "no"
    LATER = "later"


class Users:
    """The users of one configuration. Made anew for each; `earlier` hands on what those who stay have proved."""

    def __init__(self, hashes: Mapping[str, str], earlier: Users | None = None) -> None:
        self._hashes = dict(hashes)
        self._cost = max((bcrypt_cost(hashed) or 0 for hashed in hashes.values()), default=0)
        self._key: bytes = earlier._key if earlier else secrets.token_bytes(32)
        kept: Mapping[str, bytes] = earlier._proved if earlier else {}
        self._proved: dict[str, bytes] = {hashed: kept[hashed] for hashed in hashes.values() if hashed in kept}

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def knows(self, name: str, password: bytes) -> bool:
        """Whether these were right before. Costs a microsecond."""
        proved = self._proved.get(self._hashes.get(name, ""))
        return proved is not None and hmac.compare_digest(proved, self._digest(password))

    def check(self, name: str, password: bytes) -> bool:
        """Whether these are right. Costs a bcrypt; blocks, without holding Python's lock."""
        import bcrypt  # 0.4 MiB that a daemon without users does without

        cut = password[:BCRYPT_BYTES]
        hashed = self._hashes.get(name, _decoy(self._cost))
        if bcrypt.checkpw(cut, hashed.encode()) and name in self._hashes:
            self._proved[hashed] = self._digest(password)
            return True
        # 2^c + 2^c + 2^(c+1) + … + 2^(max-1) = 2^max: a user with a cheap hash is refused as late as nobody's name.
        for cost in range(bcrypt_cost(hashed) or self._cost, self._cost):
            bcrypt.checkpw(cut, _decoy(cost).encode())
        return False

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password[:BCRYPT_BYTES], key=self._key).digest()


class Door:
    """Lets checks through one at a time, addresses in turn: a flood from one delays the others by one check each."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()  # asyncio's locks are first come, first served
        self._of_address: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._waiting: dict[str, int] = {}

    async def ask(self, users: Users, address: str, authorization: str | None) -> Answer:
        """Whether a request with this Authorization header may pass."""
        credentials = credentials_of(authorization)
        if credentials is None:
            return Answer.NO
        if users.knows(*credentials):
            return Answer.YES
        whence = network_of(address)
        if self._waiting.get(whence, 0) >= MAX_WAITING:
            return Answer.LATER
        self._waiting[whence] = self._waiting.get(whence, 0) + 1
        turn = self._of_address.setdefault(whence, asyncio.Lock())
        try:
            async with turn, self._one_at_a_time:
                right = users.knows(*credentials) or await asyncio.to_thread(users.check, *credentials)
        finally:
            self._waiting[whence] -= 1
            if not self._waiting[whence]:
                del self._waiting[whence]
        return Answer.YES if right else Answer.NO


def credentials_of(authorization: str | None) -> tuple[str, bytes] | None:
    """Name and password of an Authorization header; None if it holds none."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def network_of(address: str) -> str:
    """Whom an address stands for: of IPv6 anyone has a /64 at hand."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def _decoy(cost: int) -> str:
    """A hash that no password has, as far as anyone can find out."""
    return f"$2b${cost:02}${'.' * 53}"
