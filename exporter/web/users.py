"""Basic authentication (RFC 7617) against bcrypt hashes, without revealing by its time which users exist.

A refusal takes the same time for every user name. A correct password is remembered as a keyed digest, so that later
requests take a microsecond; wrong passwords are never remembered.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import secrets
import weakref
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

BCRYPT_BYTES = 72  # bcrypt ignores the rest of a password; htpasswd and Go's package truncate it too

# Pending checks of all addresses together. Each takes 60 ms at cost 10 and occupies a connection; the other half of the
# connections stays free for clients whose password is verified already.
MAX_PENDING = 64
MAX_SHARED = 32  # requests that wait for a pending check of the same name and password

# Only two bits of the salt's last character count. If another one is set, Python's bcrypt raises at each check.
_BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}", re.ASCII)


def bcrypt_cost(hashed: str) -> int | None:
    """The cost of a bcrypt hash; None if the text is not a bcrypt hash."""
    match = _BCRYPT.fullmatch(hashed)
    return int(match["cost"]) if match else None


class Decision(Enum):
    """Whether a request is allowed. BUSY: too many checks are pending."""

    ALLOWED = "allowed"
    DENIED = "denied"
    BUSY = "busy"


class Users:
    """The users of one configuration, and the passwords verified so far."""

    def __init__(self, hashes: Mapping[str, str], previous: Users | None = None) -> None:
        """previous: of the previous configuration; passwords of unchanged users stay verified."""
        self._hashes = dict(hashes)
        self._cost = max((bcrypt_cost(hashed) or 0 for hashed in hashes.values()), default=0)
        self._key: bytes = previous._key if previous else secrets.token_bytes(32)
        verified: Mapping[str, bytes] = previous._verified if previous else {}
        self._verified: dict[str, bytes] = {
            hashed: verified[hashed] for hashed in hashes.values() if hashed in verified
        }

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def is_verified(self, name: str, password: bytes) -> bool:
        """Whether `check` has accepted these before. Takes a microsecond."""
        verified = self._verified.get(self._hashes.get(name, ""))
        return verified is not None and hmac.compare_digest(verified, self._digest(password))

    def check(self, name: str, password: bytes) -> bool:
        """Whether the password is correct. Blocks for one bcrypt, without holding Python's lock."""
        import bcrypt  # imported here: a daemon without users saves 0.4 MiB

        cut = password[:BCRYPT_BYTES]
        hashed = self._hashes.get(name, _decoy(self._cost))
        if bcrypt.checkpw(cut, hashed.encode()) and name in self._hashes:
            self._verified[hashed] = self._digest(password)
            return True
        # 2^c + 2^c + 2^(c+1) + … + 2^(max-1) = 2^max: refusing a user with a cheap hash takes as long as an unknown one.
        for cost in range(bcrypt_cost(hashed) or self._cost, self._cost):
            bcrypt.checkpw(cut, _decoy(cost).encode())
        return False

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password[:BCRYPT_BYTES], key=self._key).digest()


class Authenticator:
    """Decides which requests are allowed. Checks one password at a time, and addresses take turns.

    So a flood of wrong passwords from one address delays each other address by one check. Requests of one address with the
    same name and password share a check. Each address may have one pending check, and up to three times as many as there
    are free places: 48 if no other address has any. So a correct password is checked after at most 48 others, even during
    a flood from its own address with fewer than 48 different passwords.
    """

    def __init__(self) -> None:
        self._check_lock = asyncio.Lock()  # asyncio's locks are first come, first served
        self._network_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._pending: dict[_Check, asyncio.Task[bool]] = {}
        self._shared = 0

    async def decide(self, users: Users, address: str, authorization: str | None) -> Decision:
        """Decide on a request from `address` with this Authorization header."""
        credentials = parse_credentials(authorization)
        if credentials is None:
            return Decision.DENIED
        if users.is_verified(*credentials):
            return Decision.ALLOWED
        check = _Check(users, network_of(address), *credentials)
        if task := self._pending.get(check):
            return await self._share(task)
        pending = sum(other.network == check.network for other in self._pending)
        if pending and pending >= 3 * (MAX_PENDING - len(self._pending)):
            return Decision.BUSY
        task = self._pending[check] = asyncio.create_task(self._run(check))
        task.add_done_callback(lambda _: self._pending.pop(check))
        return await _decision_of(task)

    async def _share(self, task: asyncio.Task[bool]) -> Decision:
        if self._shared >= MAX_SHARED:
            return Decision.BUSY
        self._shared += 1
        try:
            return await _decision_of(task)
        finally:
            self._shared -= 1

    async def _run(self, check: _Check) -> bool:
        credentials = check.name, check.password
        async with self._network_locks.setdefault(check.network, asyncio.Lock()), self._check_lock:
            return check.users.is_verified(*credentials) or await asyncio.to_thread(check.users.check, *credentials)


class _Check(NamedTuple):
    """A check of a name and password that one network asked for."""

    users: Users
    network: str
    name: str
    password: bytes


async def _decision_of(task: asyncio.Task[bool]) -> Decision:
    return Decision.ALLOWED if await asyncio.shield(task) else Decision.DENIED


def parse_credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """Name and password of an Authorization header; None if it is missing or invalid."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def network_of(address: str) -> str:
    """The network that counts as one client: an IPv4 address, or an IPv6 /64, which any host may use as a whole."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def _decoy(cost: int) -> str:
    """A bcrypt hash that no known password matches."""
    return f"$2b${cost:02}${'.' * 53}"
