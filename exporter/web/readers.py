"""Who may read what jobs printed, and the journal. The only place with this rule.

Everyone who passes `exporter.web.guard` may read titles, causes and counts. What a job printed is for authenticated
clients and for clients on this host, the journal for authenticated clients only. A client is authenticated if users are
configured, since the guard has checked its password, or if it showed a verified certificate. On a trusted network
(`--web.readers=everyone`) every client may read all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AUTHENTICATED, EVERYONE = "authenticated", "everyone"  # values of --web.readers
HAS_PASSWORD = "gpufault.has_password"  # in a request's scope, if the guard has checked a password  # noqa: S105
TRANSPORT = "gpufault.transport"  # in the state of a request's scope: the transport of its connection

# A proxy on this host sends requests of other hosts. Browsers send the name in the address bar, also one that a foreign
# site resolves to this host, so the Host header has to be a name of the loopback interface too.
_FORWARDED = {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}


@dataclass(frozen=True, slots=True)
class Readers:
    """The rule. everyone: the network is trusted."""

    everyone: bool = False

    def may_read_journal(self, scope: Mapping[str, Any]) -> bool:
        """Whether the client of a request may read the journal."""
        return self.everyone or is_authenticated(scope)

    def may_read_lines(self, scope: Mapping[str, Any]) -> bool:
        """Whether the client of a request may read what jobs printed."""
        return self.may_read_journal(scope) or is_on_this_host(scope)


AUTHENTICATED_ONLY = Readers()


def is_authenticated(scope: Mapping[str, Any]) -> bool:
    """Whether the client of a request has given a correct password or a verified certificate."""
    return bool(scope.get(HAS_PASSWORD)) or _has_certificate(scope)


def is_on_this_host(scope: Mapping[str, Any]) -> bool:
    """Whether a request comes over loopback, from a client on this host rather than from a proxy."""
    headers = [(name, value) for name, value in scope["headers"] if name in _FORWARDED or name == b"host"]
    if [name for name, _ in headers] != [b"host"] or not scope.get("client"):
        return False
    return _is_loopback(scope["client"][0]) and _is_loopback(_host_of(headers[0][1].decode("latin-1")))


def _has_certificate(scope: Mapping[str, Any]) -> bool:
    """Whether the client showed a certificate. TLS has verified it: others end the handshake."""
    transport = scope.get("state", {}).get(TRANSPORT)
    return transport is not None and bool(transport.get_extra_info("peercert"))


def _host_of(header: str) -> str:
    """The name or address in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
