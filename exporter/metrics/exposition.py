"""Renders a snapshot of metrics as Prometheus text or OpenMetrics, whichever the scraper asks for.

It does not know which metrics exist. Of HTTP it reads only Accept and Accept-Encoding.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

# Cached responses. Prometheus, an agent and a browser use one format each. The cache key contains a version that the
# client chooses, so without a limit one client could fill the memory.
MAX_BODIES = 8
MAX_TEXTS = 256  # cached texts of one family each: six formats of some 40 families
_END = b"# EOF\n"  # ends an OpenMetrics text; the library appends it to each family
Encode = Callable[[Collector], bytes]
AnyFamily = CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily
_KINDS: dict[str, type[AnyFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "unknown": UnknownMetricFamily,
}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series: `samples` maps label values, in the order of `labels`, to numbers.

    A counter's name may omit `_total`: prometheus_client adds it.
    """

    name: str
    kind: Literal["counter", "gauge", "unknown"]
    help: str
    labels: tuple[str, ...]
    samples: Mapping[tuple[str, ...], float]
    exemplars: Mapping[tuple[str, ...], Exemplar] = field(default_factory=dict)  # of counters; in OpenMetrics only

    def __post_init__(self) -> None:
        # The library would silently drop a surplus label value and merge two series.
        assert all(len(values) == len(self.labels) for values in self.samples), f"{self.name}: {self.labels}"


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All metrics as of one commit."""

    families: tuple[Family, ...]

    def with_value(self, name: str, value: float) -> MetricsSnapshot:
        """A copy in which one metric without labels has a new value."""
        return MetricsSnapshot(
            tuple(replace(family, samples={(): value}) if family.name == name else family for family in self.families)
        )


class Rendered(NamedTuple):
    """The body of a response to a scrape, and its headers Content-Type and Content-Encoding."""

    body: bytes
    content_type: str
    encoding: Literal["gzip"] | None


class Exposition:
    """Renders the latest snapshot and caches the result. For use by one thread.

    Each snapshot is rendered at most once per format, and only families whose numbers changed are rendered again: of a
    node's thousand series a dozen change between two scrapes.
    """

    def __init__(self, latest: Callable[[], MetricsSnapshot], *, process: bool = True) -> None:
        """process: add the metrics of this process, read when a snapshot is first rendered."""
        self._latest = latest
        self._snapshot = MetricsSnapshot(())
        self._bodies: dict[tuple[str, str], bytes] = {}
        self._texts: dict[tuple[str, str], tuple[Family, bytes]] = {}  # by format and name
        self._process = CollectorRegistry()
        if process:
            ProcessCollector(registry=self._process)

    def render(self, accept: str | None, accept_encoding: str | None) -> Rendered:
        """The latest snapshot in the format that the Accept header prefers, gzipped if Accept-Encoding allows it."""
        latest = self._latest()
        if latest is not self._snapshot:
            self._snapshot = latest
            self._bodies.clear()
        try:
            encode, content_type = choose_encoder(accept or "")
        except TypeError:  # prometheus_client 0.26 compares `version=x` with a number
            encode, content_type = choose_encoder("")
        plain = self._cached_body((content_type, "identity"), lambda: self._body(encode, content_type))
        if not gzip_accepted(accept_encoding or ""):
            return Rendered(plain, content_type, None)
        # No time in the gzip header, so that the same text gives the same bytes. Level 1 gives 20 kB in 0.7 ms; the
        # default level gives 17 kB in 3 ms.
        zipped = self._cached_body((content_type, "gzip"), lambda: gzip.compress(plain, compresslevel=1, mtime=0))
        return Rendered(zipped, content_type, "gzip")

    def _body(self, encode: Encode, content_type: str) -> bytes:
        texts = [self._family_text(family, encode, content_type) for family in self._snapshot.families]
        return b"".join([*texts, encode(self._process)])

    def _family_text(self, family: Family, encode: Encode, content_type: str) -> bytes:
        key = (content_type, family.name)
        cached = self._texts.get(key)
        if cached is not None and cached[0] == family:
            return cached[1]
        text = encode(_FamilyCollector(family)).removesuffix(_END)
        if cached is not None or len(self._texts) < MAX_TEXTS:
            self._texts[key] = family, text
        return text

    def _cached_body(self, key: tuple[str, str], make: Callable[[], bytes]) -> bytes:
        body = self._bodies.get(key)
        if body is None:
            body = make()
            if len(self._bodies) < MAX_BODIES:
                self._bodies[key] = body
        return body


class _FamilyCollector(Collector):
    """A collector of one family: the library's encoders accept only collectors."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[AnyFamily]:
        family = self._family
        metric = _KINDS[family.kind](family.name, family.help, labels=family.labels)
        for values, number in family.samples.items():
            labels = [_printable(value) for value in values]
            if isinstance(metric, CounterMetricFamily) and values in family.exemplars:
                metric.add_metric(labels, number, exemplar=_printable_exemplar(family.exemplars[values]))
            else:
                metric.add_metric(labels, number)
        yield metric


def _printable_exemplar(exemplar: Exemplar) -> Exemplar:
    return exemplar._replace(labels={name: _printable(value) for name, value in exemplar.labels.items()})


def _printable(value: str) -> str:
    """`value` with lone surrogates escaped: otherwise a path in Latin-1 makes the whole scrape fail."""
    return value.encode(errors="backslashreplace").decode()
