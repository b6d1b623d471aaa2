"""How a command's or the fleet's requests check a server, and show who they are: TLS by files that are named on the command
line or in a configuration. Those of outputs, which are read with their secrets, are `exporter.outputs.files`'.
"""

from __future__ import annotations

import errno
import ssl
from pathlib import Path


def client_context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Certificates are always checked. Raises OSError, which says which file it is: ssl's own errors do not."""
    for path in filter(None, (ca_file, cert_file, key_file)):
        Path(path).open("rb").close()
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise OSError(errno.EINVAL, "holds no certificate in PEM form; give an authority's", ca_file) from error
    if cert_file:
        try:
            context.load_cert_chain(cert_file, key_file, password="")  # OpenSSL would ask on the terminal for one
        except ssl.SSLError as error:
            what = "holds no certificate with its key in PEM form, without a password; correct it or --key-file"
            raise OSError(errno.EINVAL, what, cert_file) from error
    return context
