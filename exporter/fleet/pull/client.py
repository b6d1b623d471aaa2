"""One node daemon over HTTP, and its journal. Its answers are checked: a daemon may be broken, or lie."""

import base64
import json
import ssl
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.config.pull import PullConfig
from exporter.net.credentials import read_secret
from exporter.net.http import RequestFailed, request
from exporter.net.tokens import sign
from exporter.net.url import parse_url
from exporter.store.journal import MAX_RANGE_BYTES, Segment

PATH = "/api/v1/journal"
MAX_LIST_BYTES = 1 << 20
MAX_SEGMENTS = 10_000
MAX_NUMBER = 1 << 40
MAX_NAME_CHARS = 253
_FRAMING_BYTES = 64 << 10  # that gzip may add to a range


class PullFailed(Exception):
    """A request without a usable answer. `reason` is a metric label; the message contains no secret."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class NotFound(PullFailed):
    """404."""


class SegmentGone(Exception):
    """The segment was deleted since it was listed."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """How to ask nodes. headers: of each request, such as Authorization. server_name: what each certificate names."""

    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    context: ssl.SSLContext | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentList:
    """A node's segments, ascending. tag: asks next time whether anything has changed."""

    segments: tuple[Segment, ...]
    tag: str


def list_segments(base: str, access: NodeAccess, tag: str = "") -> SegmentList | None:
    """The node's segments; None if they are as they were when `tag` was given. Raises PullFailed."""
    body, tag = _ask(f"{base}{PATH}", access, MAX_LIST_BYTES, {"If-None-Match": tag} if tag else {})
    if body is None:
        return None
    try:
        entries = json.loads(body)["segments"]
        segments = tuple(Segment(_number(one["segment"]), _number(one["bytes"])) for one in entries[: MAX_SEGMENTS + 1])
    except (ValueError, TypeError, LookupError, RecursionError):
        raise PullFailed("answer", "the list of segments is not readable") from None
    numbers = [one.number for one in segments]
    if len(segments) > MAX_SEGMENTS or numbers != sorted(set(numbers)):
        raise PullFailed("answer", "the list of segments is not readable")
    return SegmentList(segments, tag)


def node_name(base: str, access: NodeAccess) -> str:
    """What the daemon calls its node. Raises PullFailed."""
    try:
        name = json.loads(ask(f"{base}{PATH}", access, MAX_LIST_BYTES))["node"]
    except (ValueError, TypeError, LookupError, RecursionError):
        name = None
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise PullFailed("answer", "the answer has no name of a node")
    return name


def read_range(base: str, access: NodeAccess, number: int, offset: int) -> bytes:
    """Complete lines of a segment from an offset on, at most MAX_RANGE_BYTES. Raises SegmentGone, PullFailed."""
    url = f"{base}{PATH}/{number}?offset={offset}&bytes={MAX_RANGE_BYTES}"
    try:
        data = ask(url, access, MAX_RANGE_BYTES)
    except NotFound:
        raise SegmentGone from None
    if (not data.endswith(b"\n") and b"\n" in data) or (
        len(data) < MAX_RANGE_BYTES and data and not data.endswith(b"\n")
    ):
        raise PullFailed("answer", "a range that does not end with a line")
    return data


def ask(url: str, access: NodeAccess, most: int) -> bytes:
    """The body of the answer to a GET, of at most so many bytes. Raises PullFailed."""
    body, _ = _ask(url, access, most, {})
    if body is None:
        raise PullFailed("answer", "304 to a request without a condition")
    return body


def _ask(url: str, access: NodeAccess, most: int, headers: Mapping[str, str]) -> tuple[bytes | None, str]:
    """The body, unpacked, and the entity tag; None for 304."""
    asked = {**access.headers, **headers, "Accept-Encoding": "gzip"}
    try:
        response = request(
            "GET", parse_url(url), asked, context=access.context, seconds=access.seconds, max_body=most + _FRAMING_BYTES,
            server_name=access.server_name,
        )  # fmt: skip
    except RequestFailed as error:
        raise PullFailed(error.reason, str(error)) from None
    if response.status == 304:
        return None, ""
    if response.status != 200:
        failure = NotFound if response.status == 404 else PullFailed
        raise failure(_reason(response.status), _hint(response.status))
    body = response.body
    if response.headers.get("content-encoding", "").lower() == "gzip":
        body = _unpack(body, most)
    if len(body) > most:
        raise PullFailed("answer", f"an answer of more than {most >> 20} MiB")
    return body, response.headers.get("etag", "")[:128]


def _unpack(body: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise PullFailed("answer", "damaged gzip") from None
    if not unpacker.eof or unpacker.unused_data:
        raise PullFailed("answer", "gzip that is cut off or too long")
    return data


def _reason(status: int) -> str:
    return "refused" if status in (401, 403) else f"http_{status // 100}xx"


def _hint(status: int) -> str:
    hints = {
        401: "401: the token, or user name and password, are missing or wrong; see pull.token_key_file",
        403: "403: the daemon serves its journal to authenticated clients only; see --web.readers",
        404: "404: no journal there; upgrade the daemon, or check the target's port",
    }
    return hints.get(status, f"answered {status}")


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError(value)
    return int(value)


def node_headers(config: PullConfig, audience: Sequence[str]) -> dict[str, str]:
    """The headers of a request to one node. audience: its name if that is proven, its address. Raises OSError, ValueError."""
    if config.token_key_file is None:
        return basic_auth(config.user, config.password_file)
    try:
        return {"Authorization": f"Bearer {sign(read_secret(config.token_key_file), audience)}"}
    except ValueError as error:
        raise ValueError(f"{config.token_key_file}: {error}") from None


def basic_auth(user: str | None, password_file: Path | None) -> dict[str, str]:
    """The header of basic authentication, if there is a user. Raises OSError, ValueError."""
    if user is None:
        return {}
    password = secret(password_file) if password_file else ""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def secret(path: Path) -> str:
    """The text of a file with a secret. Raises OSError, ValueError."""
    return read_secret(path).strip()
