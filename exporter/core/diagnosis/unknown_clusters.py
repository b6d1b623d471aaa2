"""Crashes that no signature names, in clusters of like ones: by kind, type and template. Memory is bounded."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_CLUSTERS = 10_000  # 20 MB; what comes behind is only counted
MAX_NAMES = 1000  # nodes and jobs kept by name in each cluster
MAX_EXAMPLES = 5  # different lines of a cluster, to begin a signature with
NEW_SECONDS = 86_400.0  # a cluster first seen this long before the newest crash is new


@dataclass(slots=True)
class Cluster:
    """Crashes of one template. Times are Unix seconds; `nodes` and `jobs` hold at most MAX_NAMES."""

    kind: str
    type: str
    template: str
    count: int = 0
    nodes: Counter[str] = field(default_factory=Counter)
    jobs: set[str] = field(default_factory=set)
    first: float = 0.0
    last: float = 0.0
    examples: list[str] = field(default_factory=list)  # different lines, the earliest one first
    path: str = ""
    line: int = 0
    source: str = "job"


class UnknownClusters:
    """The clusters of a set of incident records. `unclustered`: incidents of templates for which there was no room."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, str, str], Cluster] = {}
        self.unclustered = 0
        self.newest = 0.0

    def add(self, record: Mapping[str, Any], time: float) -> None:
        """Take one record of `unrecognised_crash`. Fields may be missing."""
        captures = record.get("captures")
        captures = captures if isinstance(captures, Mapping) else {}
        key = (_text(captures, "kind"), _text(captures, "type"), _text(captures, "template") or _text(record, "text"))
        self.newest = max(self.newest, time)
        cluster = self._clusters.get(key)
        if cluster is None:
            if len(self._clusters) >= MAX_CLUSTERS:
                self.unclustered += 1
                return
            cluster = self._clusters[key] = Cluster(*key, first=time, last=time)
        if not cluster.count or time < cluster.first:
            cluster.first = time
            cluster.examples.insert(0, _text(record, "text"))
            cluster.path, cluster.line = _text(record, "path"), _number(record.get("line"))
            cluster.source = _text(record, "source") or "job"
        cluster.examples = list(dict.fromkeys((*cluster.examples, _text(record, "text"))))[:MAX_EXAMPLES]
        cluster.last = max(cluster.last, time)
        cluster.count += 1
        node, job = _text(record, "node"), record.get("job")
        if node in cluster.nodes or len(cluster.nodes) < MAX_NAMES:
            cluster.nodes[node] += 1
        if isinstance(job, Mapping) and len(cluster.jobs) < MAX_NAMES:
            cluster.jobs.add(_text(job, "id"))

    def clusters(self) -> list[Cluster]:
        """Most nodes first, then most crashes."""
        return sorted(self._clusters.values(), key=lambda c: (-len(c.nodes), -c.count, c.first, c.template))

    def is_new(self, cluster: Cluster) -> bool:
        """Whether it was first seen in the last day of what was read, and that is not all of it."""
        oldest = min((c.first for c in self._clusters.values()), default=0.0)
        return self.newest - cluster.first <= NEW_SECONDS < self.newest - oldest


def _text(of: Mapping[str, Any], name: str) -> str:
    value = of.get(name)
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
