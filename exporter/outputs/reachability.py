"""Checks that each output can be reached, for `gpufault doctor`. Sends no incidents."""

import ipaddress
import os
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

from exporter.config.outputs import OtlpConfig, OutputsConfig, ReceiverSettings
from exporter.net.credentials import tls_context
from exporter.net.http import RequestFailed, check_connection, request
from exporter.net.url import Url
from exporter.outputs import receiver_settings
from exporter.outputs.otlp import OtlpFormat
from exporter.outputs.responses import classify


class CheckResult(NamedTuple):
    """The result of one check of `gpufault doctor`. note: it works, with a remark."""

    state: Literal["ok", "note", "bad"]
    name: str
    message: str


def check_outputs(outputs: OutputsConfig, node: str) -> Iterator[CheckResult]:
    """Check each output. Waits for each receiver, at most its `timeout`."""
    problems: dict[str, list[str]] = {}
    for loc, problem in receiver_settings.problems(outputs):
        problems.setdefault(str(loc[1]), []).append(f"{'.'.join(map(str, loc[2:]))}: {problem}")
    for name, settings in receiver_settings.receivers(outputs).items():
        if settings is None:
            continue
        if name in problems:
            yield from (CheckResult("bad", name, problem) for problem in problems[name])
            continue
        url = receiver_settings.read_url(settings)
        headers = receiver_settings.read_headers(settings)
        try:
            yield _check_receiver(name, settings, url, headers, node)
        except RequestFailed as error:
            yield CheckResult("bad", name, f"{url.origin}: {error}")
        if headers and not url.tls and not _is_loopback(url.host):
            yield CheckResult("note", name, "headers are sent without encryption; use https://")
    if outputs.textfile:
        folder = outputs.textfile.path.parent
        if os.access(folder, os.W_OK | os.X_OK):
            yield CheckResult("ok", "textfile", f"{folder} can be written")
        else:
            message = (
                f"{folder} cannot be written by uid {os.geteuid()}; chown it, or under systemd add ReadWritePaths="
            )
            yield CheckResult("bad", "textfile", message)


def _check_receiver(name: str, settings: ReceiverSettings, url: Url, headers: dict[str, str], node: str) -> CheckResult:
    context = tls_context(settings.tls) if url.tls else None
    if not isinstance(settings, OtlpConfig):  # a webhook may page somebody for any request
        check_connection(url, context=context, seconds=settings.timeout)
        return CheckResult("ok", name, f"connected to {url.origin}; nothing was sent")
    body, own_headers = OtlpFormat(node, settings.resource, encoding=settings.encoding).request([], time.time())
    response = request("POST", url, headers | own_headers, body, context=context, seconds=settings.timeout)
    message = f"{url.origin} answered {response.status} to a request without incidents"
    if classify(response.status).outcome == "sent":
        return CheckResult("ok", name, message)
    return CheckResult("bad", name, f"{message}; check url, headers and encoding")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
