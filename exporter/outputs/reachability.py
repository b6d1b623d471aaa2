"""Whether each output can be reached from here: what `gpufault doctor` tells. Sends no incident to anybody."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

from exporter.config.outputs import OtlpConfig, OutputsConfig, ReceiverSettings
from exporter.net.url import Url
from exporter.outputs import files
from exporter.outputs.http import NoAnswer, post, reach
from exporter.outputs.otlp import OtlpForm
from exporter.outputs.responses import judged


class Seen(NamedTuple):
    """What was found out of one output."""

    state: Literal["ok", "note", "bad"]
    name: str
    told: str


def look(outputs: OutputsConfig, node: str) -> Iterator[Seen]:
    """Try each output. Waits for their receivers, up to `timeout` each."""
    wrong: dict[str, list[str]] = {}
    for loc, what in files.problems(outputs):
        wrong.setdefault(str(loc[1]), []).append(f"{'.'.join(map(str, loc[2:]))}: {what}")
    for name, settings in files.receivers(outputs).items():
        if settings is None:
            continue
        if name in wrong:
            yield from (Seen("bad", name, what) for what in wrong[name])
            continue
        url = files.url_of(settings)
        headers = files.headers_of(settings)
        try:
            yield Seen(*_tried(name, settings, url, headers, node))
        except NoAnswer as error:
            yield Seen("bad", name, f"{url.origin}: {error}")
        if headers and not url.tls and not _is_loopback(url.host):
            yield Seen("note", name, "headers go over the network as everybody may read them; write https://")
    if outputs.textfile:
        folder = outputs.textfile.path.parent
        if os.access(folder, os.W_OK | os.X_OK):
            yield Seen("ok", "textfile", f"{folder} can be written")
        else:
            told = f"{folder} cannot be written by uid {os.geteuid()}; chown it, or under systemd add ReadWritePaths="
            yield Seen("bad", "textfile", told)


def _tried(
    name: str, settings: ReceiverSettings, url: Url, headers: dict[str, str], node: str
) -> tuple[Literal["ok", "bad"], str, str]:
    context = files.context_of(settings.tls) if url.tls else None
    if not isinstance(settings, OtlpConfig):  # whatever it receives, it may page somebody for
        reach(url, context=context, seconds=settings.timeout)
        return "ok", name, f"{url.origin} can be connected to; nothing was sent"
    body, own = OtlpForm(node, settings.resource, encoding=settings.encoding).request([], time.time())
    answer = post(url, body, headers | own, context=context, seconds=settings.timeout)
    taken = judged(answer.status).verdict == "sent"
    told = f"{url.origin} answered {answer.status} to a request without incidents"
    return "ok" if taken else "bad", name, told if taken else f"{told}; look at url, headers and encoding"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
