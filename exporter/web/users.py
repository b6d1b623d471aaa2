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
from typing import NamedTuple

from exporter.web.config import bcrypt_cost

BCRYPT_BYTES = 72  # bcrypt reads no further; htpasswd and Go's package cut longer ones off too

# Checks that may wait, of all addresses. Each takes 60 ms at cost 10 and holds a connection; the other half of the
# connections is left for clients whose password is known.
MAX_WAITING = 64
MAX_FOLLOWING = 32  # requests that wait for a check of the same name and password


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
        # 2^c + 2^c + 2^(c+1) + … + 2^(max-1) = 2^max: a user with a cheap hash is refused as late as an unknown one.
        for cost in range(bcrypt_cost(hashed) or self._cost, self._cost):
            bcrypt.checkpw(cut, _decoy(cost).encode())
        return False

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password[:BCRYPT_BYTES], key=self._key).digest()


class Authenticator:
    """Checks passwords one at a time, addresses in turn: a flood from one delays the others by one check each.

    Requests of one address with the same name and password share a check. An address may always have one check waiting,
    and up to three times the room that is left: 48 when no other address waits. So a right password passes within 48
    checks during a flood from its own address, as long as the flood keeps fewer than 48 different passwords waiting.
    """

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()  # asyncio's locks are first come, first served
        self._of_address: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._checks: dict[_Asked, asyncio.Task[bool]] = {}
        self._following = 0

    async def ask(self, users: Users, address: str, authorization: str | None) -> Answer:
        """Whether a request with this Authorization header may pass."""
        credentials = credentials_of(authorization)
        if credentials is None:
            return Answer.NO
        if users.knows(*credentials):
            return Answer.YES
        asked = _Asked(users, network_of(address), *credentials)
        check = self._checks.get(asked)
        if check is not None:
            return await self._follow(check)
        waiting = sum(other.whence == asked.whence for other in self._checks)
        if waiting and waiting >= 3 * (MAX_WAITING - len(self._checks)):
            return Answer.LATER
        check = self._checks[asked] = asyncio.create_task(self._check(asked))
        check.add_done_callback(lambda _: self._checks.pop(asked))
        return await _answer_of(check)

    async def _follow(self, check: asyncio.Task[bool]) -> Answer:
        if self._following >= MAX_FOLLOWING:
            return Answer.LATER
        self._following += 1
        try:
            return await _answer_of(check)
        finally:
            self._following -= 1

    async def _check(self, asked: _Asked) -> bool:
        credentials = asked.name, asked.password
        async with self._of_address.setdefault(asked.whence, asyncio.Lock()), self._one_at_a_time:
            return asked.users.knows(*credentials) or await asyncio.to_thread(asked.users.check, *credentials)


class _Asked(NamedTuple):
    users: Users
    whence: str
    name: str
    password: bytes


async def _answer_of(check: asyncio.Task[bool]) -> Answer:
    return Answer.YES if await asyncio.shield(check) else Answer.NO


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
