"""The control socket in the state folder: through it, root or the daemon's user clears node faults.

One request per connection: a line of JSON, answered by a line of JSON. The kernel identifies the peer (SO_PEERCRED).
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exporter.core.diagnosis.clear_request import ClearRequest, InvalidRequest

NAME = "control.sock"
MAX_REQUEST = 8192  # bytes
SECONDS = 35.0  # a bit longer than the main loop may take
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid

Clear = Callable[[ClearRequest], list[dict[str, Any]]]


class ControlSocket:
    """The listening socket, served by its own thread. Raises OSError if it cannot be created."""

    def __init__(self, state_dir: Path, clear: Clear) -> None:
        self._state_dir = state_dir
        self._remove()  # of a daemon that was killed; the state folder's lock keeps others away
        with _short_path(state_dir) as path:
            self._server = _Server(path, clear)
        os.chmod(state_dir / NAME, 0o600)
        threading.Thread(target=self._server.serve_forever, name="control", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            (self._state_dir / NAME).unlink()


def request(state_dir: Path, gpu: str, reason: str) -> list[dict[str, Any]]:
    """Send a request to the daemon that owns this state folder. Returns the cleared faults. Raises InvalidRequest, OSError."""
    with socket.socket(socket.AF_UNIX) as connection, _short_path(state_dir) as path:
        connection.settimeout(SECONDS)
        connection.connect(path)
        connection.sendall(json.dumps({"gpu": gpu, "reason": reason}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            answer = json.loads(lines.readline() or b'{"problem": "the daemon gave no answer; see its log"}')
    if "problem" in answer:
        raise InvalidRequest(answer["problem"])
    cleared: list[dict[str, Any]] = answer["cleared"]
    return cleared


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, clear: Clear) -> None:
        self.clear = clear
        super().__init__(path, _Handler)

    def handle_error(self, *_: object) -> None:
        """Do nothing: a client that disconnects early is not worth a log message."""


class _Handler(socketserver.StreamRequestHandler):
    timeout = SECONDS
    server: _Server

    def handle(self) -> None:
        self.wfile.write(json.dumps(self._answer()).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        asked = self.rfile.readline(MAX_REQUEST)  # also of a client that is refused: it could not read why otherwise
        _, uid, _ = _CREDENTIALS.unpack(
            self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid not in (0, os.geteuid()):
            return {"problem": "only root and the daemon's own user may clear faults"}
        try:
            data = json.loads(asked)
            return {"cleared": self.server.clear(ClearRequest.from_json(data, _name(uid)))}
        except (ValueError, RecursionError):
            return {"problem": "not a line of JSON"}
        except InvalidRequest as error:
            return {"problem": str(error)}
        except TimeoutError:
            return {"problem": "the main loop did not answer in time; see the daemon's log"}


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
