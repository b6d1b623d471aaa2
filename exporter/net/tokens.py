"""Read-only tokens that one node accepts (JWT, RFC 7519), signed with a private key that no node has.

The fleet service names in each token the node or the address that it sends it to. A node that is compromised sees tokens for
itself alone, and has public keys alone: neither opens another node.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from exporter.net.url import is_same_node, plain_address

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    PublicKey = EllipticCurvePublicKey | Ed25519PublicKey

ISSUER, SCOPE = "gpufault", "read"
VALID_SECONDS = 300
SKEW_SECONDS = 600  # that the clocks of a node and the service may differ
MAX_TOKEN = 4096  # characters
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


def sign(private_key: str, audience: Sequence[str]) -> str:
    """A token for the holder of one of these names or addresses. private_key: PEM. Raises ValueError."""
    import jwt
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key: Any = load_pem_private_key(private_key.encode(), None)
    except (ValueError, TypeError):
        raise ValueError("no private key in PEM form, or an encrypted one") from None
    now = int(time.time())
    claims = {
        "iss": ISSUER, "scope": SCOPE, "aud": list(audience), "iat": now, "nbf": now, "exp": now + VALID_SECONDS
    }  # fmt: skip
    return jwt.encode(claims, key, algorithm=_algorithm(key.public_key()))


def public_keys(pem: str) -> list[PublicKey]:
    """The keys in a file of public keys and certificates. Raises ValueError."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    keys: list[Any] = []
    for block in _BLOCK.finditer(pem):
        if "PRIVATE" in block[1]:
            raise ValueError("a private key; nodes need the public one alone")
        data = block[0].encode()
        key = load_pem_x509_certificate(data).public_key() if block[1] == "CERTIFICATE" else load_pem_public_key(data)
        _algorithm(key)
        keys.append(key)
    if not keys:
        raise ValueError("no public key or certificate in PEM form")
    return keys


def is_valid(token: str, keys: Collection[PublicKey], node: str, address: str) -> bool:
    """Whether a token of one of the keys is for this node, or for the address that the client has connected to."""
    import jwt

    if len(token) > MAX_TOKEN:
        return False
    for key in keys:
        try:
            claims = jwt.decode(
                token, key, algorithms=[_algorithm(key)], issuer=ISSUER, leeway=SKEW_SECONDS,
                options={"require": ["exp", "iat", "aud", "iss"], "verify_aud": False},
            )  # fmt: skip
        except (jwt.InvalidTokenError, ValueError, TypeError, RecursionError):
            continue
        audience = claims["aud"]
        if claims.get("scope") == SCOPE and isinstance(audience, list):
            return any(isinstance(name, str) and _means(name, node, address) for name in audience)
    return False


def _means(name: str, node: str, address: str) -> bool:
    """Whether a name is the node's, with or without its domain, or its address."""
    return bool(node and is_same_node(name, node)) or plain_address(name) == plain_address(address) != ""


def _algorithm(key: object) -> str:
    """The signature algorithm of a public key. Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if isinstance(key, Ed25519PublicKey):
        return "EdDSA"
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return "ES256"
    raise ValueError("not a key of Ed25519 or P-256; make one with `openssl genpkey -algorithm ed25519`")
