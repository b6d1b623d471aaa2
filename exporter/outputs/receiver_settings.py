"""Reads the files that outputs name: URLs, headers, keys and certificates. Their contents never appear in messages."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from exporter.core.text.problems import Loc
from exporter.net.credentials import client_context, read_secret
from exporter.net.headers import header_name, header_value
from exporter.net.url import Url, parse_url

if TYPE_CHECKING:
    from exporter.config.outputs import OutputsConfig, ReceiverSettings

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


def read_key(path: Path) -> bytes:
    """The key that signs a webhook's requests. Raises OSError, ValueError."""
    try:
        key = base64.b64decode(read_secret(path).strip().removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if len(key) not in _KEY_BYTES:
        raise ValueError(f"{path}: not a key; write `whsec_` followed by the output of `openssl rand -base64 32`")
    return key


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
