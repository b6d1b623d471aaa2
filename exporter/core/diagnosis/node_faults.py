"""Node faults: what an operator must fix before the node takes jobs again; `gpufault node-check` reports them.

A fault stands for all critical incidents of one cause, signature, GPU and job. It is open until a recovery clears it.
Knows no files, clocks or HTTP.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incidents import gpu_of
from exporter.core.diagnosis.records import rfc3339, writable
from exporter.core.diagnosis.recoveries import CLEARS, Recovery, kernel_time
from exporter.core.facts.gpus import Gpu
from exporter.core.model import OPERATOR_ACTIONS, Action, Moment, Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, first seen at `time` and last at `last_time`; `incident` is the id of its latest incident.

    `settled` is False while evidence may still change the diagnosis. `boot` and `boot_seconds` give the last sighting by
    the kernel's clock, which nobody can set; `boot` is empty if only the wall time is known. `card` tells the GPU from
    another at its address: its unique id, else its serial number. `serial` is the board's, as the vendor's forms have it.
    `driver_asks` is what the GPU's driver asks for, `ignore` for nothing; None if it was not heard. `openings` are the
    times at which it opened, anew after each recovery; `times` counts those of the last 14 days on its card, wherever in
    the node it was. `cleared` is what cleared it, None while open.
    """

    time: float
    last_time: float
    count: int
    signature: str
    root_cause: str
    title: str
    gpu: str | None
    job: str | None
    remediation: str
    incident: str
    settled: bool = True
    boot: str = ""
    boot_seconds: float = 0.0
    action: Action = "run_diagnostics"  # for faults that a version without actions stored
    vendor: Vendor = "any"
    card: str | None = None
    serial: str | None = None
    driver_asks: Action | None = None
    openings: tuple[float, ...] = ()
    times: int = 1
    cleared: Recovery | None = None

    @property
    def key(self) -> str:
        card = [self.card] if self.card else []
        return json.dumps([self.root_cause, self.signature, self.gpu, self.job, *card])

    def is_of_this_boot(self, now: Moment) -> bool:
        return bool(now.boot) and self.boot == now.boot

    def recency(self, now: Moment) -> tuple[bool, float]:
        """A sort key: the last sighting. A wall time in the future is wrong and sorts first."""
        if self.is_of_this_boot(now):
            return True, self.boot_seconds
        return False, self.last_time if self.last_time <= now.time else -math.inf

    def is_cleared_by(self, recovery: Recovery) -> bool:
        """Whether a recovery ends it: it is enough for the fault's action, and the fault was last seen before it."""
        if self.action not in CLEARS[recovery.kind] or (recovery.gpu and recovery.gpu != (self.gpu or "node")):
            return False
        if recovery.vendor not in ("any", self.vendor):
            return False
        if recovery.kind == "reboot":
            return (
                bool(recovery.boot)
                and recovery.boot != self.boot
                and (bool(self.boot) or self.last_time < recovery.time)
            )
        if recovery.boot and recovery.boot == self.boot:
            return recovery.boot_seconds >= self.boot_seconds
        return recovery.time >= self.last_time

    def seen_since(self, since: float | None, now: Moment) -> bool:
        """Whether it was seen since a wall time by the current clock; None: since the boot."""
        if self.is_of_this_boot(now):
            return since is None or now.booted + self.boot_seconds >= since
        since = now.booted if since is None else since
        if self.boot and since >= now.booted:
            return False  # before this boot, whatever its wall time says
        return since <= self.last_time <= now.time


def fault_of(
    diagnosis: Diagnosis, catalogue: Catalogue, now: Moment, *, settled: bool, cards: Mapping[str, Gpu] | None = None
) -> Fault | None:
    """The fault behind an incident, or None: most incidents need no operator. `cards`: the GPU at each address."""
    incident = diagnosis.incident
    if diagnosis.action not in OPERATOR_ACTIONS or incident.first.source != "kernel":  # jobs cannot drain a node
        return None
    signature, cause = catalogue.signatures[incident.signature], catalogue.root_causes.get(diagnosis.root_cause)
    if diagnosis.verdict != "infrastructure":
        cause = None  # the vendor's table asks for the action, whatever the cause
    happened, boot, boot_seconds = kernel_time(incident.first, now)
    last_time = max(happened, min(incident.last_time, now.time))
    gpu = gpu_of(incident)
    card = (cards or {}).get(gpu or "")
    return Fault(
        time=happened,
        last_time=last_time,
        count=1,
        signature=incident.signature,
        root_cause=diagnosis.root_cause,
        title=cause.title if cause else signature.title,
        gpu=gpu,
        job=writable(incident.first.job.id) if incident.first.job else None,
        remediation=cause.remediation if cause else signature.remediation,
        incident=diagnosis.id,
        settled=settled,
        boot=boot,
        boot_seconds=boot_seconds + (last_time - happened if boot else 0.0),
        action=diagnosis.action,
        vendor=signature.vendor,
        card=card.identity if card else None,
        serial=card.serial if card else None,
    )


def select_faults(
    faults: Iterable[Fault], now: Moment, *, since: float | None, jobs: Collection[str] = ()
) -> list[Fault]:
    """The faults seen since a wall time (None: all), latest first; with `jobs`, only the node's and theirs."""
    seen = (f for f in faults if since is None or f.seen_since(since, now))
    visible = [f for f in seen if not jobs or f.job is None or f.job in jobs]
    return sorted(sorted(visible, key=lambda f: f.key), key=lambda f: f.recency(now), reverse=True)


def fault_json(fault: Fault, now: Moment) -> dict[str, Any]:
    """A fault as JSON data. Faults of this boot are dated by the current clock, which may have been set since."""
    last = fault.last_time
    if fault.is_of_this_boot(now):
        last = min(now.booted + fault.boot_seconds, now.time)
    out = {**asdict(fault), "time": rfc3339(min(fault.time, last)), "last_time": rfc3339(last)}
    out["state"] = "cleared" if fault.cleared else "open"
    out["openings"] = [rfc3339(time) for time in fault.openings]
    if recovery := fault.cleared:
        who = {"reason": recovery.reason, "who": recovery.who}
        out["cleared"] = {"kind": recovery.kind, "time": rfc3339(recovery.time), **who}
    del out["boot"], out["boot_seconds"]
    return out


def fault_record(fault: Fault, node: str, now: Moment) -> dict[str, Any]:
    """One `kind: "fault"` record of the journal: a fault has opened, or was cleared."""
    return {"kind": "fault", "node": node, **fault_json(fault, now), "time": rfc3339(now.time)}
