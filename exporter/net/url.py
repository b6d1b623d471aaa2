"""URLs, names and addresses of the servers and nodes that we send requests to."""

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_PRINTABLE = re.compile(r"[\x21-\x7e]+\Z")  # RFC 3986 allows no other characters
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}\Z")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A parsed http or https URL. `target` is its path and query, as in the request line.

    The target may contain a secret, so messages show only `origin`.
    """

    tls: bool
    host: str
    port: int
    target: str = field(repr=False)

    @property
    def origin(self) -> str:
        """Scheme, host and port: the part that messages may show."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse a URL. Raises ValueError; its message does not contain the URL."""
    if not _PRINTABLE.match(text):
        raise ValueError("not a URL; write https://HOST:PORT/PATH, in ASCII and without spaces")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("not a URL; write https://HOST:PORT/PATH") from None
    if parts.scheme not in _PORTS:
        raise ValueError("starts with neither https:// nor http://; write https://HOST:PORT/PATH")
    if not (_IPV6 if ":" in host else _NAME).match(host) or port == 0:
        raise ValueError("host missing or invalid; write https://HOST:PORT/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("contains a user name or password; put them into headers_file, as `Authorization: Basic …`")
    if parts.fragment:
        raise ValueError("contains a fragment (#…), which is never sent; remove it")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(tls=parts.scheme == "https", host=host, port=port or _PORTS[parts.scheme], target=target)


def is_same_node(name: str, node: str) -> bool:
    """Whether two names mean one node: the same, or one is the other without its domain."""
    return name == node or name.startswith(f"{node}.") or node.startswith(f"{name}.")


def plain_address(text: str) -> str:
    """An address in one form, without its zone, IPv4 as such; empty if it is not one."""
    try:
        ip = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)
