"""A snapshot of committed numbers, as Prometheus text or OpenMetrics: whichever the scraper asks for.

Which metrics there are and what they count is not known here, and of HTTP only the two headers that negotiate a format.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector

# Prometheus, an agent and a browser ask in one form each. The key holds a version that the client chose, so that
# without a bound one client could fill the memory.
MAX_BODIES = 8
MAX_TEXTS = 256  # of one family each: six formats of some 40 families
_END = b"# EOF\n"  # of an OpenMetrics text, where only the last of its parts may have it
Encode = Callable[[Collector], bytes]
AnyFamily = CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily
_KINDS: dict[str, type[AnyFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "unknown": UnknownMetricFamily,
}


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one metric: label values, in the order of `labels`, to the number.

    The `_total` of a counter may be left out of its name: prometheus_client takes it off and puts it on.
    """

    name: str
    kind: Literal["counter", "gauge", "unknown"]
    help: str
    labels: tuple[str, ...]
    samples: Mapping[tuple[str, ...], float]

    def __post_init__(self) -> None:
        # The library would drop the surplus label in silence, and two series would become one.
        assert all(len(values) == len(self.labels) for values in self.samples), f"{self.name}: {self.labels}"


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Every family as of one commit. A new commit makes a new snapshot."""

    families: tuple[Family, ...]

    def but(self, name: str, value: float) -> MetricsSnapshot:
        """The same numbers, but for one metric that has no labels."""
        return MetricsSnapshot(
            tuple(replace(family, samples={(): value}) if family.name == name else family for family in self.families)
        )


class Rendered(NamedTuple):
    """What goes over the wire. `encoding` is the Content-Encoding, if any."""

    body: bytes
    content_type: str
    encoding: Literal["gzip"] | None


class Exposition:
    """Renders whatever snapshot is the latest, each at most once per format, and of it only the families whose numbers
    have changed: of a node's thousand series a dozen do. Belongs to one thread.

    The process metrics are read when a snapshot is first rendered, so they are as old as it is. process: show them.
    """

    def __init__(self, latest: Callable[[], MetricsSnapshot], *, process: bool = True) -> None:
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
        plain = self._kept((content_type, "identity"), lambda: self._body(encode, content_type))
        if not gzip_accepted(accept_encoding or ""):
            return Rendered(plain, content_type, None)
        # No time in the gzip header: the same text is the same bytes, kept or not. Level 1: 20 kB in 0.7 ms, the
        # default's 17 kB would take 3.
        zipped = self._kept((content_type, "gzip"), lambda: gzip.compress(plain, compresslevel=1, mtime=0))
        return Rendered(zipped, content_type, "gzip")

    def _body(self, encode: Encode, content_type: str) -> bytes:
        texts = [self._text(family, encode, content_type) for family in self._snapshot.families]
        return b"".join([*texts, encode(self._process)])

    def _text(self, family: Family, encode: Encode, content_type: str) -> bytes:
        key = (content_type, family.name)
        known = self._texts.get(key)
        if known is not None and known[0] == family:
            return known[1]
        text = encode(_One(family)).removesuffix(_END)
        if known is not None or len(self._texts) < MAX_TEXTS:
            self._texts[key] = family, text
        return text

    def _kept(self, key: tuple[str, str], make: Callable[[], bytes]) -> bytes:
        body = self._bodies.get(key)
        if body is None:
            body = make()
            if len(self._bodies) < MAX_BODIES:
                self._bodies[key] = body
        return body


class _One(Collector):
    """One family, as the library's encoders ask for it."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[AnyFamily]:
        family = self._family
        metric = _KINDS[family.kind](family.name, family.help, labels=family.labels)
        for values, number in family.samples.items():
            metric.add_metric([_printable(value) for value in values], number)
        yield metric


def _printable(value: str) -> str:
    """`value` without lone surrogates: a path in Latin-1 would otherwise fail the whole scrape."""
    return value.encode(errors="backslashreplace").decode()
