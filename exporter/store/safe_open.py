"""Opens files safely: those that a user names, and private ones of ours.

A named file is read without waiting for a FIFO's writer, never a device, and never more than fits in memory. Ours can be
read by their owner only, whatever the umask: they hold text from job logs.
"""

import errno
import os
import stat
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600  # of private files
MAX_BYTES = 16 << 20  # of a file that is read as a whole: four bytes for each character that a parser takes


def read_start(path: str | Path, max_bytes: int, *, pipes: bool = False) -> bytes:
    """The first `max_bytes` bytes of a regular file; 0 only checks that it can be read. Raises OSError.

    pipes: also of a pipe, such as /dev/stdin or `<(command)`, and of a terminal: for commands, whose user can end them.
    """
    if pipes and _is_pipe(os.stat(path).st_mode, path):
        with open(path, "rb") as pipe:
            return pipe.read(max_bytes)
    _require_regular(os.stat(path).st_mode, path)  # to open a device does something to it
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        _require_regular(os.fstat(file.fileno()).st_mode, path)
        return file.read(max_bytes)


def read_text(path: str | Path, *, errors: str = "backslashreplace", pipes: bool = False) -> str:
    """The whole text of a file in UTF-8. Raises OSError, and UnicodeDecodeError with `errors="strict"`."""
    data = read_start(path, MAX_BYTES + 1, pipes=pipes)
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES >> 20} MiB", str(path))
    return data.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def _is_pipe(mode: int, path: str | Path) -> bool:
    return stat.S_ISFIFO(mode) or (stat.S_ISCHR(mode) and str(path) in ("/dev/stdin", "/dev/tty"))


def _require_regular(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents. An existing one keeps its mode. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_private(path: Path, flags: int) -> int:
    """Open a file, creating it if missing, and return its descriptor. Raises OSError, also if `path` is a symbolic link."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)  # an existing file may be readable by others
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
