"""The web configuration file, in the format of Prometheus' exporter-toolkit, parsed into a frozen WebConfig.

Source of the keys: prometheus/exporter-toolkit, docs/web-configuration.md. No message contains a value of
`basic_auth_users`: it may be a password that was written instead of its hash.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from exporter.core.text.problems import Document, InvalidInput, LocatedError
from exporter.core.text.validation import validation_problems
from exporter.web.users import bcrypt_cost

TlsVersion = Literal["TLS12", "TLS13"]

# Go's names of cipher suites (crypto/tls.CipherSuites()) to OpenSSL's. Those of TLS 1.3 are accepted but have no effect:
# neither Go nor Python's ssl can select among them.
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

# Each step doubles the time: cost 14 takes 1.6 s, and passwords are checked one at a time.
MAX_BCRYPT_COST = 14


def _hash(value: Any) -> str:
    cost = bcrypt_cost(value) if isinstance(value, str) else None
    if cost is None:
        raise ValueError("not a bcrypt hash; use what `htpasswd -nBC 10 USER` prints after the colon")
    if not 4 <= cost <= MAX_BCRYPT_COST:
        raise ValueError(f"unsupported bcrypt cost {cost}; use 4 to {MAX_BCRYPT_COST}, such as 10")
    return str(value)


def _user(name: str) -> str:
    if ":" in name:
        raise ValueError("a user name cannot contain a colon (RFC 7617); use another name")
    return name


def _client_auth(value: Any) -> Any:
    if value in ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert"):
        raise ValueError(f"{value} accepts unverified certificates; use RequireAndVerifyClientCert")
    return value


def _version(value: Any) -> Any:
    if value in ("TLS10", "TLS11"):
        raise ValueError(f"{value} is insecure (RFC 8996); use TLS12 or TLS13")
    return value


def _suite(name: str) -> str:
    if name not in CIPHER_SUITES:
        raise ValueError(f"unsupported cipher suite {name!r}; use one of {', '.join(CIPHER_SUITES)}")
    return name


def _file(name: str) -> str:
    if not name or "\0" in name:
        raise ValueError("not a path; use the path of a file")
    return name


def _field_value(value: str) -> str:
    if not re.fullmatch(r"[\x20-\x7e]*", value):
        raise ValueError("contains characters that are not allowed in HTTP headers; use one line of ASCII")
    return value


File = Annotated[str, AfterValidator(_file)]
Version = Annotated[TlsVersion, BeforeValidator(_version)]
User = Annotated[str, AfterValidator(_user)]
Hash = Annotated[str, BeforeValidator(_hash)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class TlsConfig(_Section):
    cert_file: File = Field(description="PEM: the server's certificate, then the intermediate ones")
    key_file: File = Field(description="PEM, not encrypted; should be readable only by gpufault")
    client_auth_type: Annotated[
        Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"], BeforeValidator(_client_auth)
    ] = Field(default="NoClientCert", description="or `VerifyClientCertIfGiven`, `RequireAndVerifyClientCert`")
    client_ca_file: File | None = Field(
        default=None, description="PEM: the authorities that sign clients' certificates"
    )
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
        default=[], max_length=1, description="at most one, a limit of Python's ssl; empty: OpenSSL's choice"
    )

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        verifies = self.client_auth_type != "NoClientCert"
        if verifies and not self.client_ca_file:
            raise LocatedError(
                ("client_auth_type",),
                "requires client_ca_file, the authorities that sign clients' certificates; add it",
            )
        if self.client_ca_file and not verifies:
            raise LocatedError(
                ("client_ca_file",), "has no effect without client_auth_type: RequireAndVerifyClientCert; add it"
            )
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            raise LocatedError(
                ("client_allowed_sans",), "requires client_auth_type: RequireAndVerifyClientCert; add it"
            )
        if self.min_version > self.max_version:
            raise LocatedError(("min_version",), f"is above max_version {self.max_version}; lower it")
        if self.cipher_suites and self.min_version == "TLS12" and not any(CIPHER_SUITES[s] for s in self.cipher_suites):
            raise LocatedError(("cipher_suites",), "contains no suite for TLS 1.2; add one, or set min_version: TLS13")
        return self


Text = Annotated[str, AfterValidator(_field_value)]


class HeadersConfig(_Section):
    """Response headers that replace the default ones; an empty value keeps the default."""

    csp: Text = Field(default="", alias="Content-Security-Policy", description="the landing page needs its own style")
    sts: Text = Field(default="", alias="Strict-Transport-Security")
    content_type: Literal["", "nosniff"] = Field(default="", alias="X-Content-Type-Options")
    frame: Literal["", "deny", "sameorigin"] = Field(default="", alias="X-Frame-Options")
    xss: Text = Field(default="", alias="X-XSS-Protection")


class HttpConfig(_Section):
    http2: bool = Field(default=True, description="accepted, no effect: only HTTP/1.1 is supported")
    headers: HeadersConfig = HeadersConfig()


class WebConfig(_Section):
    """The whole file. Missing sections are off: no TLS, no users."""

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: dict[User, Hash] = Field(
        default={}, max_length=1000, repr=False, description="name to bcrypt hash (`htpasswd -nBC 10 USER`)"
    )

    token_keys_file: File | None = Field(
        default=None,
        description="PEM: public keys or certificates, several while they are replaced, of fleet services whose tokens read",
    )
    administrators: list[str] = Field(
        default=[],
        max_length=1000,
        description="users, or names in clients' certificates, that may reload and clear faults; the others only read",
    )

    @model_validator(mode="after")
    def _check_administrators(self) -> Self:
        has_certificates = self.tls_server_config is not None and self.tls_server_config.client_ca_file is not None
        for at, name in enumerate(self.administrators):
            if name not in self.basic_auth_users and not has_certificates:
                raise LocatedError(("administrators", at), "not a name of basic_auth_users; add the user")
        return self

    @property
    def headers(self) -> dict[str, str]:
        """The configured response headers, by name."""
        return {
            name: value for name, value in self.http_server_config.headers.model_dump(by_alias=True).items() if value
        }


def load(document: Document) -> WebConfig:
    """Validate a parsed file. Raises InvalidInput with all problems."""
    try:
        return WebConfig.model_validate({} if document.data is None else document.data)
    except ValidationError as error:
        raise InvalidInput(validation_problems(document, error, WebConfig)) from None
