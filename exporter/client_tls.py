"""How our requests check a server, and show who we are: TLS by the files that a command line or a configuration names."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

Named = str | Path


def client_context(ca_file: Named | None, cert_file: Named | None, key_file: Named | None) -> ssl.SSLContext:
    """Certificates are always checked. Raises OSError for a file that cannot be read, ValueError for one that holds
    something else; both say which one it is, as ssl's own errors do not.
    """
    for path in (ca_file, cert_file, key_file):
        if path:
            _can_be_read(path)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ValueError(f"{ca_file}: holds no certificate in PEM form; give that of an authority") from error
    if cert_file:
        try:
            context.load_cert_chain(cert_file, key_file, password="")  # OpenSSL would ask on the terminal for one
        except ssl.SSLError as error:
            reason = (error.reason or "no PEM").replace("_", " ").lower()
            what = f"{cert_file}: {reason}; give a certificate and its key, which is not encrypted, in PEM form"
            raise ValueError(what) from error
    return context


def _can_be_read(path: Named) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its writer
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path}: no regular file; give one in PEM form")
    finally:
        os.close(descriptor)
