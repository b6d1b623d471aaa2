"""HTTP requests of commands to this node's daemon, and the flags for its users and TLS."""

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any

from exporter.cli import options as flags
from exporter.store.safe_open import read_text

MAX_JSON_BYTES = 64 << 20  # of a list of incidents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for a daemon with users, with TLS, or with certificates of clients."""
    for name, help_text in (
        ("user", "user name for basic authentication"),
        ("password-file", "file with the password"),
        ("ca-file", "CA that signs the daemon's certificate"),
        ("cert-file", "client certificate"),
        ("key-file", "private key of the client certificate, if it is in another file"),
    ):
        flags.add(parser, f"--{name}", metavar="FILE" if name.endswith("file") else name.upper(), help=help_text)


def ask(url: str, options: argparse.Namespace, *, timeout: float, most: int, body: bytes | None = None) -> bytes:
    """Send a request (POST if there is a body) and return up to `most` bytes of the response.

    Raises UsageError before the request, HTTPError or OSError if it fails.
    """
    import urllib.request

    from exporter.net.credentials import client_context
    from exporter.net.redirects import NoRedirects

    if not url.startswith(("http://", "https://")):
        raise flags.UsageError(f"{url!r} is not an http:// or https:// address")
    try:
        request = urllib.request.Request(url, data=body, headers=_headers(options))  # noqa: S310 (the scheme is checked)
        no_proxy = urllib.request.ProxyHandler({})  # a job's is not for us
        handlers: list[urllib.request.BaseHandler] = [no_proxy, NoRedirects()]
        if url.startswith("https://"):
            context = client_context(options.ca_file, options.cert_file, options.key_file)
            handlers.append(urllib.request.HTTPSHandler(context=context))
    except OSError as error:
        raise flags.UsageError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise flags.UsageError(str(error)) from error
    with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
        return bytes(answer.read(most))


def ask_json(url: str, options: argparse.Namespace, *, timeout: float) -> Any:
    """The JSON that a GET returns. Raises UsageError, OSError, ValueError."""
    return json.loads(ask(url, options, timeout=timeout, most=MAX_JSON_BYTES))


def incidents(
    url: str, options: argparse.Namespace, start: float, limit: int, timeout: float, **filters: str
) -> dict[str, Any]:
    """The newest incidents since a time, as a node's daemon or a fleet service answers. Raises as `ask_json`."""
    from urllib.error import HTTPError
    from urllib.parse import urlencode

    base = f"{url.rstrip('/')}/api/v1/incidents"
    try:
        query = urlencode({"since": f"{start:.0f}", "limit": limit, **filters})
        answer = ask_json(f"{base}?{query}", options, timeout=timeout)
    except HTTPError as error:
        if error.code != 400:
            raise
        # A fleet service has other parameters.
        query = urlencode({"start": f"{start:.0f}", "end": f"{time.time() + 60:.0f}", "limit": limit, **filters})
        answer = ask_json(f"{base}?{query}", options, timeout=timeout)
    if not isinstance(answer, dict) or not isinstance(answer.get("incidents"), list):
        raise ValueError("not an answer of a fleet service or a node daemon")
    return answer


def failure_of(error: OSError) -> str:
    """Why a request failed, without the wrapping of urllib."""
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def _headers(options: argparse.Namespace) -> dict[str, str]:
    import base64

    if options.user is None:
        return {}
    password = _password(Path(options.password_file)) if options.password_file else ""
    return {"Authorization": "Basic " + base64.b64encode(f"{options.user}:{password}".encode()).decode()}


def _password(path: Path) -> str:
    """The password in a file, read anew each time; of a pipe, such as /dev/stdin, only once."""
    return read_text(path).strip() if path.is_file() else _read_pipe(path)


@functools.cache
def _read_pipe(path: Path) -> str:
    return read_text(path, pipes=True).strip()
