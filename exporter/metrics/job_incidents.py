"""The jobs that crashed within the last hour, as series for joins: a bounded number, which ends after that hour.

Labels come from records, so they survive a restart as rows of the state file.
"""

import json
from collections.abc import Mapping
from typing import Any

from exporter.metrics.counters import Labels

SECONDS = 3600.0
MAX_TIMES = 200  # of one series: what is above is not worth a join
MAX_LABEL = 128  # characters; a Kubernetes namespace and pod have 63 and 253


class JobIncidents:
    """Times of incidents by (job, user, namespace, pod, signature, root cause)."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._times: dict[Labels, list[float]] = {}
        self._unsaved: dict[str, str | None] = {}
        for key, text in stored.items():
            try:
                self._times[tuple(json.loads(key))] = [float(time) for time in json.loads(text)]
            except (ValueError, TypeError):  # another version wrote it
                self._unsaved[key] = None

    def add(self, record: Mapping[str, Any], now: float) -> None:
        """Add a root incident that is not late, if its job is known."""
        job = record["job"]
        if not job or record["role"] == "cascade" or record["late"]:
            return
        pod_of = str(job["id"]).partition("/") if job["kind"] == "kubernetes" else ("", "", "")
        labels = (str(job["id"]), job["user"] or "", pod_of[0], pod_of[2], record["signature"], record["root_cause"])
        key = tuple(label[:MAX_LABEL] for label in labels)
        times = self._times.pop(key, [])  # the latest last
        self._times[key] = [*times, now][-MAX_TIMES:]
        self._unsaved[json.dumps(key)] = json.dumps(self._times[key])

    def values(self, now: float, most: int) -> dict[Labels, float]:
        """How many incidents of the last hour each series has; of too many series, those with the latest incidents."""
        for key, times in list(self._times.items()):
            recent = [time for time in times if 0 <= now - time < SECONDS]
            if recent != times:
                self._times[key] = recent
                self._unsaved[json.dumps(key)] = json.dumps(recent)
        for key in [*self._times][: max(0, len(self._times) - most)] + [
            k for k, times in self._times.items() if not times
        ]:
            self._times.pop(key, None)
            self._unsaved[json.dumps(key)] = None
        return {key: float(len(times)) for key, times in self._times.items()}

    def unsaved(self) -> Mapping[str, str | None]:
        return self._unsaved

    def saved(self) -> None:
        self._unsaved = {}
