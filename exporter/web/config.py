"""The web configuration: the exporter-toolkit's file, as text to a frozen WebConfig. Opens nothing, hashes nothing.

Source of the keys: prometheus/exporter-toolkit, docs/web-configuration.md. No message ever shows a value of
`basic_auth_users`: whoever wrote a password there instead of its hash would find it in the log.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from exporter.core.text.problems import Document, InvalidInput
from exporter.core.text.validation import LocatedError, validation_problems

TlsVersion = Literal["TLS12", "TLS13"]

# Go's names, those of crypto/tls.CipherSuites(), to OpenSSL's. Suites of TLS 1.3 are all safe and cannot be chosen
# among, in Go as in Python's ssl: they may stand in the list and change nothing.
CIPHER_SUITES = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}

# Each step doubles the time: 14 takes 1.6 s here, and one check runs at a time.
MAX_BCRYPT_COST = 14
# Of a salt's last character two bits count; where one of the others is set, Python's bcrypt raises at each password.
_BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}", re.ASCII)


def bcrypt_cost(hashed: str) -> int | None:
    """The cost that a bcrypt hash names; None if it is no such hash."""
    found = _BCRYPT.fullmatch(hashed)
    return int(found["cost"]) if found else None


def _hash(value: Any) -> str:
    cost = bcrypt_cost(value) if isinstance(value, str) else None
    if cost is None:
        raise ValueError("not a bcrypt hash; write what `htpasswd -nBC 10 USER` prints behind the colon")
    if not 4 <= cost <= MAX_BCRYPT_COST:
        raise ValueError(f"has cost {cost}; take one from 4 to {MAX_BCRYPT_COST}, such as 10")
    return str(value)


def _user(name: str) -> str:
    if ":" in name:
        raise ValueError("a user's name holds no colon (RFC 7617); give another name")
    return name


def _client_auth(value: Any) -> Any:
    if value in ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert"):
        raise ValueError(f"{value} believes a certificate that nobody signed; write RequireAndVerifyClientCert")
    return value


def _version(value: Any) -> Any:
    if value in ("TLS10", "TLS11"):
        raise ValueError(f"{value} is broken (RFC 8996); write TLS12 or TLS13")
    return value


def _suite(name: str) -> str:
    if name not in CIPHER_SUITES:
        raise ValueError(f"{name!r} is no cipher suite that is offered; take one of {', '.join(CIPHER_SUITES)}")
    return name


def _file(name: str) -> str:
    if not name or "\0" in name:
        raise ValueError("names no file; give its path")
    return name


def _field_value(value: str) -> str:
    if not re.fullmatch(r"[\x20-\x7e]*", value):
        raise ValueError("holds characters that no HTTP header may hold; write it in one line of ASCII")
    return value


File = Annotated[str, AfterValidator(_file)]
Version = Annotated[TlsVersion, BeforeValidator(_version)]
User = Annotated[str, AfterValidator(_user)]
Hash = Annotated[str, BeforeValidator(_hash)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class TlsConfig(_Section):
    cert_file: File = Field(description="PEM, with the intermediate certificates behind the server's own")
    key_file: File = Field(description="PEM, not encrypted; only gpufault should be able to read it")
    client_auth_type: Annotated[
        Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"], BeforeValidator(_client_auth)
    ] = Field(default="NoClientCert", description="or `VerifyClientCertIfGiven`, `RequireAndVerifyClientCert`")
    client_ca_file: File | None = Field(default=None, description="PEM: who signs clients' certificates")
    client_allowed_sans: list[str] = Field(
        default=[], description="a client's certificate must carry one of these DNS names, addresses, e-mails or URIs"
    )
    min_version: Version = Field(default="TLS12", description="or `TLS13`")
    max_version: Version = Field(default="TLS13", description="or `TLS12`")
    cipher_suites: list[Annotated[str, AfterValidator(_suite)]] = Field(
        default=[], description="Go's names, for TLS 1.2; empty: OpenSSL's choice"
    )
    prefer_server_cipher_suites: bool = Field(default=True, description="the order of cipher_suites decides")
    curve_preferences: list[Literal["CurveP256", "CurveP384", "CurveP521", "X25519"]] = Field(
        default=[], max_length=1, description="one at most: Python's ssl holds a server to one; empty: OpenSSL's choice"
    )

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        verifies = self.client_auth_type != "NoClientCert"
        if verifies and not self.client_ca_file:
            raise LocatedError(("client_auth_type",), "needs client_ca_file, who signs clients' certificates; add it")
        if self.client_ca_file and not verifies:
            raise LocatedError(
                ("client_ca_file",), "does nothing without client_auth_type: RequireAndVerifyClientCert; add that"
            )
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            raise LocatedError(
                ("client_allowed_sans",), "needs client_auth_type: RequireAndVerifyClientCert, or nobody is refused"
            )
        if self.min_version > self.max_version:
            raise LocatedError(("min_version",), f"is above max_version {self.max_version}; lower it")
        if self.cipher_suites and self.min_version == "TLS12" and not any(CIPHER_SUITES[s] for s in self.cipher_suites):
            raise LocatedError(
                ("cipher_suites",), "leave TLS 1.2 without any; add one of TLS 1.2, or min_version: TLS13"
            )
        return self


Text = Annotated[str, AfterValidator(_field_value)]


class HeadersConfig(_Section):
    """Headers that replace ours of the same name, on every answer; an empty one is as if it were not there."""

    csp: Text = Field(default="", alias="Content-Security-Policy", description="the landing page needs its own style")
    sts: Text = Field(default="", alias="Strict-Transport-Security")
    content_type: Literal["", "nosniff"] = Field(default="", alias="X-Content-Type-Options")
    frame: Literal["", "deny", "sameorigin"] = Field(default="", alias="X-Frame-Options")
    xss: Text = Field(default="", alias="X-XSS-Protection")


class HttpConfig(_Section):
    http2: bool = Field(default=True, description="may be given, changes nothing: HTTP/1.1 is all that is spoken")
    headers: HeadersConfig = HeadersConfig()


class WebConfig(_Section):
    """Everything that the file can say. What is left out is off: no TLS, no users."""

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: dict[User, Hash] = Field(
        default={}, max_length=1000, repr=False, description="name to bcrypt hash (`htpasswd -nBC 10 USER`)"
    )

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are set, by name."""
        return {
            name: value for name, value in self.http_server_config.headers.model_dump(by_alias=True).items() if value
        }


def load(document: Document) -> WebConfig:
    """Read a parsed file. Raises InvalidInput with every problem."""
    try:
        return WebConfig.model_validate({} if document.data is None else document.data)
    except ValidationError as error:
        raise InvalidInput(validation_problems(document, error)) from None
