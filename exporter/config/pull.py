"""The section `pull` of the fleet service's configuration: which node daemons to pull journals from, and how."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from exporter.config.outputs import TlsSettings
from exporter.config.types import AbsolutePath, Glob, Seconds, Section
from exporter.core.text.problems import LocatedError
from exporter.net.url import parse_url


def _url(value: str) -> str:
    parse_url(value)
    return value


class PrometheusTargetsConfig(Section):
    """A Prometheus that scrapes the node daemons: its active targets are pulled."""

    url: Annotated[str, AfterValidator(_url)] = Field(description="such as https://prometheus.example:9090")
    job: str = Field(default="gpufault", description="the label `job` of the node daemons' targets")
    user: str | None = Field(default=None, description="for basic authentication")
    password_file: AbsolutePath | None = Field(default=None, description="file with the password")
    bearer_token_file: AbsolutePath | None = Field(default=None, description="file with a token instead")
    ca_file: AbsolutePath | None = Field(default=None, description="PEM: who signs its certificate; null: the system's")


class PullConfig(Section):
    """Journals pulled from node daemons. At least one of `files`, `dns` and `prometheus`."""

    files: list[Glob] = Field(
        default=[], description="globs of target files in Prometheus' file_sd format, JSON or YAML"
    )
    dns: list[str] = Field(
        default=[], description="HOST:PORT; each address of the host is a node, named as `dns_names` says"
    )
    dns_names: Literal["reverse", "daemon", "kubernetes"] = Field(
        default="reverse",
        description="what names the node of an address: its reverse lookup, the daemon there, or Kubernetes' list of pods",
    )
    prometheus: PrometheusTargetsConfig | None = None
    node_label: str = Field(
        default="node",
        min_length=1,
        description="the target's label that names the node; without it, the target's host",
    )
    scheme: Literal["http", "https"] = Field(default="http", description="of targets without the label `__scheme__`")
    interval: Seconds = Field(default=30.0, description="from the end of a node's pull to its next one")
    timeout: Seconds = Field(default=30.0, description="for one request, from the connection to the whole answer")
    concurrency: int = Field(
        default=32, ge=1, le=256, description="nodes that are pulled at a time; each takes up to 16 MiB"
    )
    token_key_file: AbsolutePath | None = Field(
        default=None,
        description="PEM: key that signs a read-only token for each node; nodes have the public one (`token_keys_file`)",
    )
    user: str | None = Field(
        default=None, description="for basic authentication instead; each node sees a password that opens all others"
    )
    password_file: AbsolutePath | None = Field(default=None, description="file with the password")
    tls: TlsSettings = TlsSettings()
    server_name: str | None = Field(
        default=None,
        min_length=1,
        description="name in the nodes' certificates; null: the target's host. On Kubernetes, where that is an address",
    )

    @model_validator(mode="after")
    def _some_source(self) -> Self:
        if not (self.files or self.dns or self.prometheus):
            raise LocatedError((), "names no node; add files, dns or prometheus")
        if self.user is not None and self.token_key_file is not None:
            raise LocatedError(("user",), "has no effect beside token_key_file; remove one of them")
        return self

    @property
    def source(self) -> str:
        """A description of where the nodes' names come from, for messages."""
        names = [*self.files, *self.dns, *([self.prometheus.url] if self.prometheus else [])]
        return f"journals of the nodes in {', '.join(names)}"
