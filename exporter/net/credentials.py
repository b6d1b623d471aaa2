"""Certificates, keys and passwords of our own requests, from the files that a user names."""

import os
import ssl
from pathlib import Path
from typing import Protocol

from exporter.store.safe_open import read_start

FilePath = str | Path
MAX_SECRET = 64 << 10  # bytes of a file that holds headers, a URL or a key


class TlsFiles(Protocol):
    """The files that a configuration names for TLS."""

    @property
    def ca_file(self) -> Path | None: ...
    @property
    def cert_file(self) -> Path | None: ...
    @property
    def key_file(self) -> Path | None: ...


def client_context(ca_file: FilePath | None, cert_file: FilePath | None, key_file: FilePath | None) -> ssl.SSLContext:
    """A TLS context that verifies the server, and presents our certificate if there is one.

    Raises OSError for a file that cannot be read, ValueError for invalid content; unlike ssl's errors, both name the file.
    """
    for path in (ca_file, cert_file, key_file):
        if path:
            read_start(path, 0)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ValueError(
            f"{ca_file}: no PEM certificate found; use the certificate of a certificate authority"
        ) from error
    if cert_file:
        try:
            context.load_cert_chain(cert_file, key_file, password="")  # else OpenSSL asks for one on the terminal
        except ssl.SSLError as error:
            reason = (error.reason or "no PEM").replace("_", " ").lower()
            message = f"{cert_file}: {reason}; use a certificate and its unencrypted key, both in PEM form"
            raise ValueError(message) from error
    return context


def tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """The TLS context for requests with these files. Raises OSError, ValueError."""
    return client_context(tls.ca_file, tls.cert_file, tls.key_file)


class ContextCache:
    """The TLS context of a client, rebuilt when one of its files changes. Building takes 20 ms."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls
        self._cached: tuple[object, ssl.SSLContext] | None = None

    def get(self) -> ssl.SSLContext:
        """The context for the files as they are now. Raises OSError, ValueError."""
        stats = [os.stat(path) for path in (self._tls.ca_file, self._tls.cert_file, self._tls.key_file) if path]
        version = [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
        if self._cached is None or self._cached[0] != version:
            self._cached = version, tls_context(self._tls)
        return self._cached[1]


def read_secret(path: Path | None) -> str:
    """The text of a file of at most MAX_SECRET bytes. Raises OSError, ValueError."""
    assert path is not None
    data = read_start(path, MAX_SECRET + 1)
    if len(data) > MAX_SECRET:
        raise ValueError(f"{path}: longer than {MAX_SECRET} bytes; use a shorter file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8; use a text file") from None
