"""The control socket in the state folder: HTTP for root and the daemon's own user, whom the kernel identifies.

The web server serves the same paths there as on its addresses. `curl --unix-socket DIR/control.sock http://localhost/…`.
"""

import asyncio
import contextlib
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

from exporter.web.readers import Client

NAME = "control.sock"
SECONDS = 85.0  # a bit longer than a reload may take
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def listen(state_dir: Path) -> socket.socket:
    """The listening socket, for its owner only. Raises OSError."""
    remove(state_dir)  # of a daemon that was killed; the state folder's lock keeps others away
    bound = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(state_dir) as path:
            bound.bind(path)
        os.chmod(state_dir / NAME, 0o600)
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


def remove(state_dir: Path) -> None:
    with contextlib.suppress(OSError):
        (state_dir / NAME).unlink()


def trusted_peer(transport: asyncio.BaseTransport | None) -> Client | None:
    """Root or the daemon's own user at the other end of the control socket; None for everyone else."""
    connection = transport.get_extra_info("socket") if transport else None
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Client(_name(uid), may_read=True, may_change=True) if uid in (0, os.geteuid()) else None


def connect(state_dir: Path) -> socket.socket:
    """A connection to the daemon that owns this state folder. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(SECONDS)
        with _short_path(state_dir) as path:
            connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def post(state_dir: Path, path: str, body: bytes, *, most: int) -> tuple[int, bytes]:
    """Send a request to the daemon that owns this state folder. Returns status and body. Raises OSError, HTTPException."""
    with contextlib.closing(HTTPConnection("localhost", timeout=SECONDS)) as connection:
        connection.sock = connect(state_dir)
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read(most)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


@contextlib.contextmanager
def _short_path(state_dir: Path) -> Iterator[str]:
    """The socket's path through a descriptor of its folder: a socket's own path may have at most 107 bytes."""
    folder = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)
