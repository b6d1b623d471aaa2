"""Reads the files that outputs name: URLs, headers, keys and certificates. Their contents never appear in messages."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from exporter.core.text.problems import Loc
from exporter.net.client_tls import client_context
from exporter.net.headers import header_name, header_value
from exporter.net.url import Url, parse_url
from exporter.store.safe_open import read_start

if TYPE_CHECKING:
    from exporter.config.outputs import OutputsConfig, ReceiverSettings, TlsSettings

MAX_SECRET = 64 << 10  # bytes of a file that holds headers, a URL or a key
_KEY_BYTES = range(24, 65)  # allowed by Standard Webhooks


def read_url(settings: ReceiverSettings) -> Url:
    """The receiver's URL, from the configuration or its file. Raises OSError, ValueError."""
    return parse_url(settings.url if settings.url is not None else read_secret(settings.url_file).strip())


def read_headers(settings: ReceiverSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of each request; the file overrides the environment, which overrides the configuration.

    Raises OSError or ValueError, whose messages contain no value.
    """
    headers = dict(settings.headers)
    if settings.headers_env:
        if settings.headers_env not in environ:
            raise ValueError(f"the environment variable {settings.headers_env} is not set")
        for pair in filter(str.strip, environ[settings.headers_env].split(",")):
            name, _, value = pair.partition("=")
            headers[header_name(name.strip())] = header_value(unquote(value.strip()))
    if settings.headers_file:
        for number, line in enumerate(read_secret(settings.headers_file).splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                name, colon, value = line.partition(":")
                if not colon:
                    raise ValueError(f"{settings.headers_file}: line {number} is not `Name: value`")
                headers[header_name(name.strip())] = header_value(value.strip())
    return headers


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """The TLS context for requests to a receiver. Raises OSError, ValueError."""
    return client_context(tls.ca_file, tls.cert_file, tls.key_file)


class ContextCache:
    """The TLS context of an output, rebuilt when one of its files changes. Building takes 20 ms."""

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._cached: tuple[object, ssl.SSLContext] | None = None

    def get(self) -> ssl.SSLContext:
        """The context for the files as they are now. Raises OSError, ValueError."""
        stats = [os.stat(path) for path in (self._tls.ca_file, self._tls.cert_file, self._tls.key_file) if path]
        version = [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
        if self._cached is None or self._cached[0] != version:
            self._cached = version, tls_context(self._tls)
        return self._cached[1]


def read_key(path: Path) -> bytes:
    """The key that signs a webhook's requests. Raises OSError, ValueError."""
    try:
        key = base64.b64decode(read_secret(path).strip().removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if len(key) not in _KEY_BYTES:
        raise ValueError(f"{path}: not a key; write `whsec_` followed by the output of `openssl rand -base64 32`")
    return key


def read_secret(path: Path | None) -> str:
    """The text of a file of at most MAX_SECRET bytes. Raises OSError, ValueError."""
    assert path is not None
    data = read_start(path, MAX_SECRET + 1)
    if len(data) > MAX_SECRET:
        raise ValueError(f"{path}: longer than {MAX_SECRET} bytes; use a shorter file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8; use a text file") from None


def receivers(outputs: OutputsConfig) -> dict[str, ReceiverSettings | None]:
    """The settings of the outputs that send incidents, by name; None for one that is off."""
    return {"otlp": outputs.otlp, "webhook": outputs.webhook}


def problems(outputs: OutputsConfig, environ: Mapping[str, str] = os.environ) -> Iterator[tuple[Loc, str]]:
    """Problems with the files that the configuration names: the key, and what to do."""
    for name, settings in receivers(outputs).items():
        if settings is None:
            continue
        headers_key = "headers_file" if settings.headers_file else "headers_env"
        checks: list[tuple[Loc, Callable[[], object]]] = [
            (("url_file",), partial(read_url, settings)),
            ((headers_key,), partial(read_headers, settings, environ)),
        ]
        tls = settings.tls
        if tls.ca_file:
            checks.append((("tls", "ca_file"), partial(client_context, tls.ca_file, None, None)))
        if tls.cert_file:
            checks.append((("tls", "cert_file"), partial(client_context, None, tls.cert_file, tls.key_file)))
        if name == "webhook" and outputs.webhook and outputs.webhook.secret_file:
            checks.append((("secret_file",), partial(read_key, outputs.webhook.secret_file)))
        for loc, check in checks:
            if problem := _problem_of(check):
                yield ("outputs", name, *loc), problem
    if outputs.textfile:
        folder = outputs.textfile.path.parent
        if not folder.is_dir():
            problem = f"{folder}: no such folder; create it, writable by gpufault and readable by node_exporter"
            yield ("outputs", "textfile", "path"), problem


def _problem_of(check: Callable[[], object]) -> str:
    try:
        check()
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        return f"{file}{error.strerror}; use a file that gpufault can read"
    except ValueError as error:
        return str(error)
    return ""
