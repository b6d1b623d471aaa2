"""Reports the state of a service to systemd: ready, alive or stopping. Does nothing without systemd."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send one state, such as `READY=1`, to the socket in NOTIFY_SOCKET (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
    ):
        channel.sendto(state.encode(), address)
