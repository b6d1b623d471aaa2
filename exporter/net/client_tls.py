"""TLS for our own HTTPS requests, with the certificate files that a user names."""

from __future__ import annotations

import ssl
from pathlib import Path

from exporter.store.safe_open import read_start

FilePath = str | Path


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
            what = f"{cert_file}: {reason}; use a certificate and its unencrypted key, both in PEM form"
            raise ValueError(what) from error
    return context
