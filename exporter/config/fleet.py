"""The configuration of the fleet service: YAML text to a frozen FleetConfig. The file is optional; flags override it."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from exporter.config.pull import PullConfig
from exporter.config.types import AbsolutePath, Seconds, Section
from exporter.core.text.problems import LocatedError
from exporter.core.text.validation import read_as

DEFAULT_FILE = Path("/etc/gpufault/fleet.yaml")
DAY = 86400.0


class PrometheusConfig(Section):
    """Prometheus, Thanos, Mimir or VictoriaMetrics that scrapes the node daemons. Secrets are in separate files."""

    url: str = Field(pattern=r"^https?://", description="of the API, such as https://prometheus.example:9090")
    selector: str | None = Field(default=None, description='matchers of the daemons\' targets; null: `job="gpufault"`')
    node_label: str | None = Field(default=None, description="the label that names a node; null: `instance`")
    busy_query: str | None = Field(
        default=None, description="GPU-busy hours by that label, with `$range` for the span; null: hours up count"
    )
    tenant: str | None = Field(default=None, description="sent as X-Scope-OrgID (Mimir)")
    user: str | None = Field(default=None, description="for basic authentication")
    password_file: AbsolutePath | None = Field(default=None, description="with the password")
    bearer_token_file: AbsolutePath | None = Field(default=None, description="with a token instead")
    ca_file: AbsolutePath | None = Field(default=None, description="that the server's certificate is checked with")
    cert_file: AbsolutePath | None = Field(default=None, description="with the client's certificate")
    key_file: AbsolutePath | None = Field(default=None, description="with its key, if it is not in the same file")


class RefreshConfig(Section):
    interval: Seconds = Field(
        default=3600.0, description="from the end of one refresh to the next; after a failure sooner, from a minute on"
    )
    timeout: Seconds = Field(default=1800.0, description="a refresh that takes longer is ended")


class StoreConfig(Section):
    file: AbsolutePath | None = Field(
        default=None, description="the history of the journals (DuckDB); null: a temporary one, read anew at each start"
    )
    history: Seconds = Field(
        default=90 * DAY, description="how long it is kept: time in which the service runs, from a record's arrival"
    )
    interval: Seconds = Field(default=30.0, description="between two looks for new records")


class FleetSignaturesConfig(Section):
    dirs: list[AbsolutePath] = Field(default=[], description="packs beside the built-in ones, for exposure to causes")


class FleetLimitsConfig(Section):
    label_values: int = Field(
        default=100,
        ge=10,
        description="findings, lemons and exposures with a series of their own, of each the strongest",
    )


class LostConfig(Section):
    """What the GPU-hours of crashed jobs cost."""

    assumed_hours: float = Field(
        default=1.0, ge=0, le=1000, description="that a crash costs each GPU of a job whose start is not known"
    )
    price: float | None = Field(default=None, ge=0, le=1e9, description="of a GPU-hour; null: no costs are shown")
    currency: str = Field(default="", max_length=8, description="of the price, such as EUR")


class FleetConfig(Section):
    """All settings of the fleet service's file, with their defaults."""

    journal: AbsolutePath | None = Field(
        default=None, description="a folder of node journals; or `pull`, or `prometheus`"
    )
    prometheus: PrometheusConfig | None = None
    pull: PullConfig | None = None
    window: Seconds = Field(default=7 * DAY, description="how long; it ends at the newest record, or now")
    findings_file: AbsolutePath | None = Field(
        default=None,
        description="remembers findings over a restart, so that later windows confirm them; null: as long as it runs",
    )
    places: list[str] = Field(
        default=[], description="globs of facts that are places, beside `rack`, `row`, `cage` and the like"
    )
    refresh: RefreshConfig = RefreshConfig()
    store: StoreConfig = StoreConfig()
    signatures: FleetSignaturesConfig = FleetSignaturesConfig()
    lost: LostConfig = LostConfig()
    limits: FleetLimitsConfig = FleetLimitsConfig()

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("journal", "pull", "prometheus") if getattr(self, name) is not None]
        if len(given) > 1:
            number = "both" if len(given) == 2 else "all"
            raise LocatedError((given[-1],), f"{' and '.join(given)} {number} say what to read; keep one of them")
        return self

    @property
    def source(self) -> str:
        """A description of what is read, for messages."""
        if self.prometheus is not None:
            return self.prometheus.url
        if self.pull is not None:
            return self.pull.source
        return f"journals below {self.journal}" if self.journal is not None else "nothing"


def load(text: str, file: str) -> FleetConfig:
    """Read a configuration. Raises InvalidInput with every problem."""
    return read_as(FleetConfig, text, file)
