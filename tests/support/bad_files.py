"""What may stand where a file of text is expected: to open or read it without care waits, or never ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def tty(path: Path) -> None:
    path.symlink_to("/dev/ptmx")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def a_folder(path: Path) -> None:
    path.mkdir()


def circle(path: Path) -> None:
    path.symlink_to(path.name)


KINDS: list[Callable[[Path], None]] = [fifo, endless, tty, huge, a_socket, a_folder, circle]
