"""The section `outputs` of the configuration. Opens no files; `files.problems` checks the files that it names."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from exporter.config.types import AbsolutePath, Seconds, Section
from exporter.core.text.problems import LocatedError
from exporter.net.headers import header_name, header_value
from exporter.net.url import parse_url


def _url(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a URL; write https://HOST:PORT/PATH")
    parse_url(value)
    return value


def _mode(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("0[0-7]{3}", value):
        raise ValueError('not a file mode; write it in quotes, such as "0644"')
    return value


class TlsSettings(Section):
    ca_file: AbsolutePath | None = Field(
        default=None, description="PEM: who signs the receiver's certificate; null: the system's"
    )
    cert_file: AbsolutePath | None = Field(default=None, description="PEM: the certificate to show to the receiver")
    key_file: AbsolutePath | None = Field(default=None, description="PEM: its key, not encrypted")

    @model_validator(mode="after")
    def _a_certificate_and_its_key(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            given, other = ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            raise LocatedError((given,), f"needs {other} beside it; add it")
        return self


class RetrySettings(Section):
    first: Seconds = Field(default=1.0, description="the pause after a first failure; each further one doubles it")
    most: Seconds = Field(default=60.0, description="the longest pause, but for one that the receiver asks for")


class ReceiverSettings(Section):
    """The settings that both kinds of receivers share."""

    url: Annotated[str, BeforeValidator(_url)] | None = Field(
        default=None, repr=False, description="`https://HOST:PORT/PATH`; this or `url_file`"
    )
    url_file: AbsolutePath | None = Field(
        default=None, description="a file that holds the URL: one with a token in it is a secret"
    )
    headers: dict[Annotated[str, AfterValidator(header_name)], Annotated[str, BeforeValidator(header_value)]] = Field(
        default={}, max_length=50, repr=False, description="sent with each request"
    )
    headers_file: AbsolutePath | None = Field(
        default=None, description="a file of `Name: value` lines, read anew for each request: tokens may rotate"
    )
    headers_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$",
        description="an environment variable that holds `name=value,name=value`, as OTEL_EXPORTER_OTLP_HEADERS does",
    )
    tls: TlsSettings = TlsSettings()
    timeout: Seconds = Field(
        default=10.0, le=300.0, description="for one request, from the connection to the whole answer"
    )
    start: Literal["end", "beginning"] = Field(
        default="end", description="where an output that is new begins in the journal: now, or with all that it holds"
    )
    retry: RetrySettings = RetrySettings()
    batch: int = Field(default=1, ge=1, le=1000, description="the most incidents in one request")

    @model_validator(mode="after")
    def _one_url(self) -> Self:
        if self.url is not None and self.url_file is not None:
            raise LocatedError(("url_file",), "stands beside url; remove one of them")
        if self.url is None and self.url_file is None:
            raise ValueError("has no url; add it, or url_file")
        return self


class OtlpConfig(ReceiverSettings):
    """OTLP logs over HTTP."""

    encoding: Literal["protobuf", "json"] = Field(default="protobuf", description="or `json`")
    batch: int = Field(default=100, ge=1, le=1000, description="the most incidents in one request")
    resource: dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,99}$")], Annotated[str, Field(min_length=1, max_length=256)]
    ] = Field(
        default={},
        max_length=32,
        description="attributes of the resource beside `host.name` and `service.name`, such as `k8s.cluster.name`",
    )


class WebhookConfig(ReceiverSettings):
    """JSON to any HTTP server."""

    secret_file: AbsolutePath | None = Field(
        default=None, description="the key of the signature, `whsec_` and base64; without it nothing is signed"
    )


def _prom(path: Any) -> Any:
    if path.suffix != ".prom" or path.name.startswith("."):
        raise ValueError("does not end in .prom, so node_exporter passes it over; name it for example gpufault.prom")
    return path


class TextfileConfig(Section):
    """What /metrics shows, for node_exporter's textfile collector."""

    path: Annotated[AbsolutePath, AfterValidator(_prom)] = Field(
        description="ends in `.prom`, in the folder of `--collector.textfile.directory`"
    )
    interval: Seconds = Field(default=15.0, ge=1.0, description="how often it is written")
    mode: Annotated[str, BeforeValidator(_mode)] = Field(default="0644", description="who may read it")


class OutputsConfig(Section):
    otlp: OtlpConfig | None = None
    webhook: WebhookConfig | None = None
    textfile: TextfileConfig | None = None
    npd: bool = Field(
        default=False,
        description="`problem_counter` and `problem_gauge` on /metrics, as node-problem-detector names them",
    )
