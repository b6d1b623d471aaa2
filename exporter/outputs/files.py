"""The files that outputs name: certificates, headers, URLs and keys. Never shown, bounded, read when they are needed."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from exporter.config.outputs import (
    OutputsConfig,
    ReceiverSettings,
    TlsSettings,
    WebhookConfig,
    header_name,
    header_value,
)
from exporter.core.text.problems import Loc
from exporter.net.client_tls import client_context
from exporter.net.url import Url, parse_url
from exporter.store.safe_open import read_start

MAX_SECRET = 64 << 10  # bytes of a file of headers, of a URL or a key
_KEY_BYTES = range(24, 65)  # of a Standard Webhooks secret


def url_of(settings: ReceiverSettings) -> Url:
    """Where to send. Raises OSError, ValueError."""
    return parse_url(settings.url if settings.url is not None else read_secret(settings.url_file).strip())


def headers_of(settings: ReceiverSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to send with each request. Raises OSError, ValueError: neither repeats a value."""
    found = dict(settings.headers)
    if settings.headers_env:
        if settings.headers_env not in environ:
            raise ValueError(f"the environment has no {settings.headers_env}")
        for pair in filter(str.strip, environ[settings.headers_env].split(",")):
            name, _, value = pair.partition("=")
            found[header_name(name.strip())] = header_value(unquote(value.strip()))
    if settings.headers_file:
        for number, line in enumerate(read_secret(settings.headers_file).splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                name, colon, value = line.partition(":")
                if not colon:
                    raise ValueError(f"{settings.headers_file}: line {number} is not `Name: value`")
                found[header_name(name.strip())] = header_value(value.strip())
    return found


def context_of(tls: TlsSettings) -> ssl.SSLContext:
    """How to check a receiver. Raises OSError, ValueError."""
    return client_context(tls.ca_file, tls.cert_file, tls.key_file)


class Contexts:
    """The context of an output's requests, made anew when a file has changed: the system's authorities take 20 ms to read."""

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._made: tuple[object, ssl.SSLContext] | None = None

    def now(self) -> ssl.SSLContext:
        """Raises OSError, ValueError."""
        stats = [os.stat(path) for path in (self._tls.ca_file, self._tls.cert_file, self._tls.key_file) if path]
        seen = [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
        if self._made is None or self._made[0] != seen:
            self._made = seen, context_of(self._tls)
        return self._made[1]


def key_of(path: Path) -> bytes:
    """The key of a webhook's signature. Raises OSError, ValueError."""
    try:
        key = base64.b64decode(read_secret(path).strip().removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if len(key) not in _KEY_BYTES:
        raise ValueError(f"{path}: no key; write `whsec_` and what `openssl rand -base64 32` prints")
    return key


def read_secret(path: Path | None) -> str:
    """The text of a regular file. Raises OSError, ValueError."""
    assert path is not None
    data = read_start(path, MAX_SECRET + 1)
    if len(data) > MAX_SECRET:
        raise ValueError(f"{path}: longer than {MAX_SECRET} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8") from None


def receivers(outputs: OutputsConfig) -> dict[str, ReceiverSettings | None]:
    """The outputs that send, by name; None where one is off."""
    return {"otlp": outputs.otlp, "webhook": outputs.webhook}


def problems(outputs: OutputsConfig, environ: Mapping[str, str] = os.environ) -> Iterator[tuple[Loc, str]]:
    """What is wrong with the files that the configuration names: at which key, and what to do."""
    for name, settings in receivers(outputs).items():
        if settings is None:
            continue
        of_headers = "headers_file" if settings.headers_file else "headers_env"
        looks: list[tuple[Loc, Callable[[], object]]] = [
            (("url_file",), partial(url_of, settings)),
            ((of_headers,), partial(headers_of, settings, environ)),
        ]
        tls = settings.tls
        if tls.ca_file:
            looks.append((("tls", "ca_file"), partial(context_of, TlsSettings(ca_file=tls.ca_file))))
        if tls.cert_file:
            alone = TlsSettings(cert_file=tls.cert_file, key_file=tls.key_file)
            looks.append((("tls", "cert_file"), partial(context_of, alone)))
        if isinstance(settings, WebhookConfig) and settings.secret_file:
            looks.append((("secret_file",), partial(key_of, settings.secret_file)))
        for loc, look in looks:
            if what := _wrong(look):
                yield ("outputs", name, *loc), what
    if outputs.textfile:
        folder = outputs.textfile.path.parent
        if not folder.is_dir():
            what = f"{folder}: no such folder; make it, for gpufault to write and node_exporter to read"
            yield ("outputs", "textfile", "path"), what


def _wrong(look: Callable[[], object]) -> str:
    try:
        look()
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        return f"{file}{error.strerror}; give a file that gpufault may read"
    except ValueError as error:
        return str(error)
    return ""
