"""The TLS context of the web server, and the check of client certificates by name."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.text.problems import LocatedError
from exporter.store.safe_open import read_start

if TYPE_CHECKING:
    from exporter.web.config import TlsConfig

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


def server_context(config: TlsConfig, folder: Path) -> ssl.SSLContext:
    """The TLS context for new connections; file names are relative to `folder`. Raises LocatedError at the wrong key."""
    from exporter.web.config import CIPHER_SUITES, CURVES  # here: pydantic takes much memory

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS[config.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION  # renegotiation costs a server much more CPU than a client
    context.options |= ssl.OP_NO_COMPRESSION
    context.num_tickets = (
        2 if config.client_auth_type == "NoClientCert" else 0
    )  # a ticket stays valid after its CA was removed
    if not config.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if suites := [CIPHER_SUITES[name] for name in config.cipher_suites if CIPHER_SUITES[name]]:
        context.set_ciphers(":".join(suites))
    for curve in config.curve_preferences:
        context.set_ecdh_curve(CURVES[curve])
    context.set_alpn_protocols(["http/1.1"])
    for key in ("cert_file", "key_file", "client_ca_file"):
        if name := getattr(config, key):
            _check_readable(key, folder / name)
    certificate, private_key = folder / config.cert_file, folder / config.key_file
    # Without a password argument, OpenSSL asks for the password of an encrypted key on the terminal.
    pair = "a certificate and its unencrypted key"
    _load("cert_file", certificate, pair, lambda: context.load_cert_chain(certificate, private_key, password=""))
    if config.client_ca_file:
        authorities = folder / config.client_ca_file
        _load("client_ca_file", authorities, "CA certificates", lambda: context.load_verify_locations(authorities))
    context.verify_mode = _VERIFY[config.client_auth_type]
    return context


def _check_readable(key: str, path: Path) -> None:
    try:
        read_start(path, 0)
    except OSError as error:
        message = f"{path}: {error.strerror}; use a file that gpufault can read"
        raise LocatedError(("tls_server_config", key), message) from None


def _load(key: str, path: Path, expected: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError) as error:
        reason = (getattr(error, "reason", None) or "no PEM").replace("_", " ").lower()
        message = f"{path}: {reason}; use {expected} in PEM form"
        raise LocatedError(("tls_server_config", key), message) from None


def certificate_filter(names: Sequence[str]) -> Callable[[object], bool]:
    """A function that accepts client certificates with one of `names`; with no names, it accepts every client."""
    allowed = frozenset(names)
    return lambda certificate: not allowed or bool(allowed & alternative_names(certificate))


def alternative_names(certificate: object) -> frozenset[str]:
    """The subject alternative names, in Go's notation, of a certificate from `SSLSocket.getpeercert`."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    return frozenset(_address(value) if kind == "IP Address" else value for kind, value in names)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text
