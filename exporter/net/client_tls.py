"""How our requests check a server, and show who we are: TLS by the files that a command line or a configuration names."""

from __future__ import annotations

import ssl
from pathlib import Path

from exporter.store.safe_open import start_of

Named = str | Path


def client_context(ca_file: Named | None, cert_file: Named | None, key_file: Named | None) -> ssl.SSLContext:
    """Certificates are always checked. Raises OSError for a file that cannot be read, ValueError for one that holds
    something else; both say which one it is, as ssl's own errors do not.
    """
    for path in (ca_file, cert_file, key_file):
        if path:
            start_of(path, 0)
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
