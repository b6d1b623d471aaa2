"""TLS as a WebConfig asks for it: an SSLContext, and who of those that it let in is meant."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from exporter.core.text.validation import LocatedError
from exporter.store.safe_open import read_start
from exporter.web.config import CIPHER_SUITES, CURVES, TlsConfig

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


def context_of(config: TlsConfig, folder: Path) -> ssl.SSLContext:
    """The context for new connections; relative names are below `folder`. Raises LocatedError, at the key in question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS[config.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could make us work again and again on one connection
    context.options |= ssl.OP_NO_COMPRESSION
    context.num_tickets = 2 if config.client_auth_type == "NoClientCert" else 0  # a ticket outlives a withdrawn CA
    if not config.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if suites := [CIPHER_SUITES[name] for name in config.cipher_suites if CIPHER_SUITES[name]]:
        context.set_ciphers(":".join(suites))
    for curve in config.curve_preferences:
        context.set_ecdh_curve(CURVES[curve])
    context.set_alpn_protocols(["http/1.1"])
    for key in ("cert_file", "key_file", "client_ca_file"):
        if name := getattr(config, key):
            _can_be_read(key, folder / name)
    certificate, private_key = folder / config.cert_file, folder / config.key_file
    # Without a password of ours, OpenSSL would ask on the terminal for that of an encrypted key.
    _load("cert_file", certificate, lambda: context.load_cert_chain(certificate, private_key, password=""))
    if config.client_ca_file:
        authorities = folder / config.client_ca_file
        _load("client_ca_file", authorities, lambda: context.load_verify_locations(authorities))
    context.verify_mode = _VERIFY[config.client_auth_type]
    return context


def _can_be_read(key: str, path: Path) -> None:
    try:
        read_start(path, 0)
    except OSError as error:
        what = f"{path}: {error.strerror}; give a file that gpufault may read"
        raise LocatedError(("tls_server_config", key), what) from None


def _load(key: str, path: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError) as error:
        reason = (getattr(error, "reason", None) or "no PEM").replace("_", " ").lower()
        what = f"{path}: {reason}; give PEM that belongs together: a certificate and its key, which is not encrypted"
        raise LocatedError(("tls_server_config", key), what) from None


def allows(names: Sequence[str]) -> Callable[[object], bool]:
    """Whether a peer's certificate carries one of `names`; without names, any does, and none at all."""
    allowed = frozenset(names)
    return lambda certificate: not allowed or bool(allowed & names_of(certificate))


def names_of(certificate: object) -> frozenset[str]:
    """The subject alternative names of a peer's certificate, as `SSLSocket.getpeercert` gives it, as Go writes them."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    return frozenset(_address(value) if kind == "IP Address" else value for kind, value in names)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text
