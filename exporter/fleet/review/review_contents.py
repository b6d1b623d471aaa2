"""What a review consists of, and the catalogue's titles for its ids. Percentages and words are made where it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.catalogue.loader import Catalogue
from exporter.fleet.observations import Window
from exporter.fleet.review.lost_hours import LostHours
from exporter.fleet.statistics.findings import Correlation, Detectable
from exporter.fleet.statistics.ratio import Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """What the catalogue says of a signature or root cause."""

    title: str
    verdict: str = "unclear"
    remediation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One window. `origins`: a job's nodes count once. `lost` is None where no node's GPUs are known."""

    incidents: int
    origins: int
    nodes_crashed: int
    jobs: int
    without_cause: int
    lost: LostHours | None
    hours: float  # of exposure, as `Review.exposure` names it


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Failed jobs, each counted once: explained by a signature, by an unrecognised crash only, or by no line."""

    explained: int
    unrecognised: int
    no_line: int

    @property
    def jobs(self) -> int:
        return self.explained + self.unrecognised + self.no_line


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """A root cause, or a signature whose cause is unknown. `trend`: counts of equal windows, this one last; None before
    recording began. `before` and `change` are None where there is nothing to compare with.
    """

    kind: str  # "cause" or "signature"
    id: str
    title: str
    verdict: str
    domain: str
    remediation: str
    incidents: int
    nodes: int
    jobs: int
    lost_gpu_hours: float | None
    before: int | None
    change: Ratio | None
    trend: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Novelty:
    """A signature that is new, or back after at least two windows of silence (`quiet_seconds`; None if new)."""

    signature: str
    title: str
    verdict: str
    incidents: int
    nodes: int
    first: float
    quiet_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecognisedCrash:
    """A cluster of like crashes that no signature names. `examples`: different lines, the first one first."""

    template: str
    count: int
    nodes: int
    jobs: int
    first: float
    last: float
    is_new: bool
    examples: tuple[str, ...]
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentNode:
    """A node that has sent no heartbeat for a day."""

    node: str
    last_seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """Root incidents by verdict; `edges` has one more time than there are counts."""

    edges: tuple[float, ...]
    by_verdict: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the review of the window before asked for. `is_open`: the reason is still there."""

    what: str
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """The alerts of one name and kind (page, ticket, note) that began to fire in a window; `from_before` had begun earlier.

    `not_judged` are about no crash, or about a node that the journals do not have. Times are medians, None without any.
    """

    name: str
    kind: str
    fired: int
    justified: int
    not_justified: int
    not_judged: int
    from_before: int
    firing_seconds: float  # of all together
    median_seconds: float | None
    seconds_from_crash: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertQuality:
    """The alerts of a window. `missing` says what is not known of them; empty: nothing."""

    pages: int = 0
    tickets: int = 0
    notes: int = 0
    pages_justified: int = 0
    pages_not_justified: int = 0
    seconds_to_page: float | None = None
    rows: tuple[AlertRow, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The whole review of a window. `correlation` is the correlator's result of that window, or None.

    `sentence` is the verdict line. `change` compares origins per exposure with the window before.
    """

    window: Window
    before: Window | None
    sentence: str
    nodes: int
    silent: tuple[SilentNode, ...]
    exposure: str
    totals: Totals
    totals_before: Totals | None
    change: Ratio | None
    over_time: OverTime
    causes: tuple[CauseRow, ...]
    novelties: tuple[Novelty, ...]
    unrecognised: tuple[UnrecognisedCrash, ...]
    correlation: Correlation | None
    deaths: Deaths | None = None  # None where no hook tells how jobs end
    actions: tuple[Action, ...] = ()  # carried over from the window before
    alerts: AlertQuality | None = None  # None where no Prometheus was asked


# Instead of a correlation that was not computed.
NOT_CORRELATED = Correlation(
    window=Window(start=0.0, end=0.0), exposure="assumed_hours", exposure_hours=0.0, nodes=0, incidents=0, origins=0, tests=0,
    complete=True, gaps=(), findings=(), locations=(), not_enough_data=(),
    detectable=Detectable(crashes=0, p_value=1.0, ratios=()), outlier_nodes=(), exposed=(), reliability=(), rollouts=(),
    beginnings=(),
)  # fmt: skip


def titles_of(catalogue: Catalogue) -> dict[str, Title]:
    """By id, of root causes and signatures; of an id that both have, the root cause's."""
    named = {
        s.id: Title(title=s.title, verdict=s.usual_verdict, remediation=s.remediation)
        for s in catalogue.signatures.values()
    }
    named |= {
        c.id: Title(title=c.title, verdict=c.verdict, remediation=c.remediation) for c in catalogue.root_causes.values()
    }
    return named


def title_of(titles: Mapping[str, Title], id_: str) -> Title:
    """The title of an id; for one that the catalogue does not have, the id itself."""
    return titles.get(id_) or Title(title=id_)
