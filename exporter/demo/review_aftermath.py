"""What follows a crash of the simulated review: a job that failed, a node fault, and the reboot that clears it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.records import rfc3339
from exporter.core.diagnosis.recoveries import CLEARS
from exporter.core.model import UNRECOGNISED
from exporter.demo.simulator import Fleet

HOUR = 3600.0
JOB_HOURS = 20.0  # of the longest job
REPAIR_HOURS = (0.4, 9.0)  # from a fault to the reboot
BOOT_SECONDS = 240.0  # from a boot to the daemon's first record
ENDED_AFTER, OPENED_AFTER = 40.0, 15.0  # seconds after the crash


class Aftermath:
    """The records that follow an incident. The same seed gives the same records."""

    def __init__(self, fleet: Fleet, catalogue: Catalogue) -> None:
        self._observed, self._catalogue, self._end = fleet.observed, catalogue, fleet.window.end
        self._chance = np.random.default_rng([fleet.plan.seed, 9]).random((len(fleet.observed.incidents.node), 2))

    def __call__(self, row: int, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Those of the incident in this row."""
        time = float(self._observed.incidents.time[row])
        ran, repaired = self._chance[row].tolist()
        ended = time + ENDED_AFTER
        if ended < self._end:
            yield {
                "kind": "job_end", "time": rfc3339(ended), "node": record["node"], "job": record["job"], "exit_code": 1,
                "started": rfc3339(time - (0.1 + ran * JOB_HOURS) * HOUR), "signal": 0,
                "outcome": "unrecognised" if record["signature"] == UNRECOGNISED else "explained",
                "signatures": [record["signature"]],
            }  # fmt: skip
        cause = self._catalogue.root_causes.get(record["root_cause"])
        if cause and cause.needs_operator and cause.action and record["source"] == "kernel":
            low, high = REPAIR_HOURS
            yield from self._fault(row, record, cause.action, time + (low + repaired * (high - low)) * HOUR)

    def _fault(self, row: int, record: dict[str, Any], action: str, repaired: float) -> Iterator[dict[str, Any]]:
        opened = float(self._observed.incidents.time[row]) + OPENED_AFTER
        fault = {
            "kind": "fault", "node": record["node"], "signature": record["signature"], "root_cause": record["root_cause"],
            "gpu": record["gpu"], "job": None, "action": action, "cleared": None, "state": "open",
        }  # fmt: skip
        if opened < self._end:
            yield fault | {"time": rfc3339(opened)}
        if repaired + BOOT_SECONDS >= self._end:
            return
        now, by = rfc3339(repaired + BOOT_SECONDS), "reboot" if action in CLEARS["reboot"] else "card_swap"
        yield {
            "kind": "facts", "time": now, "node": record["node"], "facts": self._facts(row, repaired + BOOT_SECONDS),
            "boot": {"id": f"boot-{record['id']}", "time": rfc3339(repaired)},
        }  # fmt: skip
        yield fault | {"time": now, "state": "cleared", "cleared": {"kind": by, "time": rfc3339(repaired)}}

    def _facts(self, row: int, time: float) -> dict[str, str]:
        """The facts of the incident's node at a time."""
        facts = self._observed.facts
        own = np.flatnonzero((facts.node == self._observed.incidents.node[row]) & (facts.since <= time))
        codes = facts.codes[own[np.argmax(facts.since[own])]].tolist()
        return {name: values[c] for name, values, c in zip(facts.names, facts.values, codes, strict=True) if c >= 0}
