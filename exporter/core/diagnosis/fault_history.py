"""The faults of a node, open ones and those cleared in the last days, and the recoveries that clear them.

Stored as rows. Knows no files, clocks or HTTP.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import RootCause, Signature
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import FactsAt, IncidentTracker
from exporter.core.diagnosis.node_faults import Fault, fault_of
from exporter.core.diagnosis.recoveries import CLEARS, Recovery, reboot, recovery_of
from exporter.core.facts.driver_answer import DriverAnswer
from exporter.core.facts.gpus import Gpu
from exporter.core.model import ACTIONS, OPERATOR_ACTIONS, Action, Match, Moment

MAX_FAULTS = 64  # a node of 8 GPUs with 8 faults each
MAX_RECOVERIES = 64  # the last one of each kind and GPU
MAX_OPENINGS = 20  # the latest, of one fault
MAX_PROVISIONAL = 16  # in a storm a sample suffices: the question is whether the node is fit for jobs
KEPT_SECONDS = 14 * 86400.0  # a fault that returns within this time is known to have been there before
_RECOVERY = "recovery "  # begins the names of rows that hold recoveries
DRIVER_SPEAKS_AFTER = 5.0  # seconds: what the driver asks for speaks of faults at least so old
# The same in the kernel log, and the causes by what is asked for.
REQUEST_SIGNATURE = "nv_xid_154_recovery_action"
REQUEST_CAUSES: Mapping[Action, str] = {"reset_gpu": "gpu_reset_required", "reboot": "node_reboot_required"}
OTHER_REQUEST_CAUSE = "gpu_action_required"


class FaultHistory:
    """The faults of a node, earliest first; of too many, open ones and the latest stay.

    `open` and `cleared` may be read from another thread.
    """

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._faults: dict[str, Fault] = {}
        self._recoveries: dict[str, Recovery] = {}
        self._unsaved: dict[str, str | None] = {}
        self._cards: dict[str, Gpu] = {}
        self._changes: list[Fault] = []
        self.open: tuple[Fault, ...] = ()
        self.cleared: tuple[Fault, ...] = ()
        for key, text in stored.items():
            try:
                if key.startswith(_RECOVERY):
                    self._recoveries[key] = Recovery(**json.loads(text))
                else:
                    fields = json.loads(text)
                    cleared = Recovery(**fields["cleared"]) if fields.get("cleared") else None
                    openings = tuple(fields.get("openings") or ())
                    fault = Fault(**{**fields, "cleared": cleared, "openings": openings})
                    self._faults[fault.key] = fault
                    if fault.key != key:  # of a version with other keys
                        self._unsaved |= {key: None, fault.key: text}
            except (ValueError, TypeError, AttributeError):  # another version wrote it
                self._unsaved[key] = None

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults.values())

    def add(self, fault: Fault, now: Moment) -> None:
        """Add a fault or a new sighting of it."""
        old = self._faults.get(fault.key)
        if old is None:
            self._open(replace(fault, openings=(fault.time,)), now)
        else:
            last = max(old, fault, key=lambda f: f.recency(now))
            self._store_seen(
                replace(
                    last,
                    time=min(old.time, fault.time),
                    count=old.count + fault.count,
                    openings=old.openings or (old.time,),
                    cleared=old.cleared,
                ),
                fault.time,
                now,
            )
        if len(self._faults) > MAX_FAULTS:
            gone = min(self._faults.values(), key=lambda f: (f.cleared is None, f.recency(now)))
            self._forget(gone)

    def add_settled(self, diagnosis: Diagnosis, catalogue: Catalogue, now: Moment) -> None:
        """Add the fault behind a settled incident, if any."""
        if fault := fault_of(diagnosis, catalogue, now, settled=True, cards=self._cards):
            self.add(fault, now)

    def note(self, matches: Iterable[Match], catalogue: Catalogue, now: Moment) -> None:
        """Take in the recoveries that lines of the kernel show."""
        for match in matches:
            if recovery := recovery_of(match, catalogue, now):
                self.recover(recovery)

    def recover(self, recovery: Recovery) -> None:
        """Take in a recovery. It clears faults, also those that are told later, at the next `refresh`."""
        key = f"{_RECOVERY}{json.dumps([recovery.kind, recovery.gpu, recovery.vendor])}"
        self._recoveries.pop(key, None)  # the newest last
        self._recoveries[key] = recovery
        self._unsaved[key] = json.dumps(asdict(recovery))
        if len(self._recoveries) > MAX_RECOVERIES:
            oldest = next(iter(self._recoveries))
            del self._recoveries[oldest]
            self._unsaved[oldest] = None

    def of_driver(self) -> frozenset[str]:
        """The open faults that NVIDIA's driver may confirm or withdraw, by what opened them."""
        mine = (fault for fault in self.open if fault.vendor == "nvidia" and fault.action in CLEARS["driver"])
        return frozenset(f"{fault.key} {fault.incident}" for fault in mine)

    def add_driver_answer(self, answer: DriverAnswer, catalogue: Catalogue) -> None:
        """Take in what NVIDIA's driver asks for, by GPU.

        Nothing: that clears what only a reset would. An action: that is a fault, unless an open one asks for as much.
        """
        asked_at = answer.asked_at
        time, boot_seconds = asked_at.time - DRIVER_SPEAKS_AFTER, asked_at.boot_seconds - DRIVER_SPEAKS_AFTER
        for gpu, action in answer.actions.items():
            if action == "ignore":
                self.recover(
                    Recovery(
                        kind="driver", time=time, boot=asked_at.boot, boot_seconds=boot_seconds, gpu=gpu,
                        vendor="nvidia", reason="the driver asks for nothing",
                    )
                )  # fmt: skip
            for fault in list(self):
                if fault.gpu == gpu and fault.cleared is None and fault.driver_asks != action:
                    self._store(replace(fault, driver_asks=action))
            is_covered = any(
                fault.gpu == gpu and fault.cleared is None and ACTIONS.index(fault.action) >= ACTIONS.index(action)
                for fault in (*self, *self.open)
            )
            cause = catalogue.root_causes.get(REQUEST_CAUSES.get(action, OTHER_REQUEST_CAUSE))
            signature = catalogue.signatures.get(REQUEST_SIGNATURE)
            if action in OPERATOR_ACTIONS and not is_covered and cause and signature:
                self.add(self._fault_of_driver(gpu, action, signature, cause, asked_at), asked_at)

    def _fault_of_driver(
        self, gpu: str, action: Action, signature: Signature, cause: RootCause, asked_at: Moment
    ) -> Fault:
        card = self._cards.get(gpu)
        return Fault(
            time=asked_at.time,
            last_time=asked_at.time,
            count=1,
            signature=signature.id,
            root_cause=cause.id,
            title=cause.title,
            gpu=gpu,
            job=None,
            remediation=cause.remediation,
            incident="",
            boot=asked_at.boot,
            boot_seconds=asked_at.boot_seconds,
            action=action,
            vendor="nvidia",
            card=card.identity if card else None,
            serial=card.serial if card else None,
            driver_asks=action,
        )

    def refresh(
        self, tracker: IncidentTracker, facts_at: FactsAt, catalogue: Catalogue, gpus: Iterable[Gpu], now: Moment
    ) -> list[Fault]:
        """Set `open` to the open faults, with those that unsettled incidents indicate, and `cleared` to the others.

        Returns the faults that have opened or were cleared since the last call, in order.
        """
        self._note_cards(gpus, now)
        for incident, last_time in tracker.still_growing():
            self._seen_again(incident, last_time, now)
        for fault in list(self):
            if fault.cleared is None and (recovery := self._recovery_after(fault, now)):
                self._store(cleared := replace(fault, cleared=recovery))
                self._changes.append(cleared)
            elif fault.cleared and now.time - max(fault.cleared.time, fault.last_time) > KEPT_SECONDS:
                self._forget(fault)
        provisional = tracker.provisional(facts_at, severity="critical", at_most=MAX_PROVISIONAL)
        likely = [fault_of(d, catalogue, now, settled=False, cards=self._cards) for d in provisional]
        self.open = (
            *(fault for fault in self if fault.cleared is None),
            *(f for f in likely if f and not self._recovery_after(f, now)),
        )
        self.cleared = tuple(fault for fault in self if fault.cleared)
        changes, self._changes = self._changes, []
        return changes

    def unsaved(self) -> Mapping[str, str | None]:
        return self._unsaved

    def saved(self) -> None:
        self._unsaved = {}

    def _note_cards(self, gpus: Iterable[Gpu], now: Moment) -> None:
        """Take in which card is at which address: another card than a fault's is a recovery."""
        self._cards |= {gpu.pci: gpu for gpu in gpus if gpu.identity}
        for fault in list(self):
            here = self._cards.get(fault.gpu or "")
            if fault.cleared is None and fault.card and here and here.identity != fault.card:
                self.recover(
                    Recovery(
                        kind="card_swap", time=now.time, boot=now.boot, boot_seconds=now.boot_seconds, gpu=fault.gpu,
                        reason=f"card {fault.card} was replaced by {here.identity}",
                    )
                )  # fmt: skip

    def _recovery_after(self, fault: Fault, now: Moment) -> Recovery | None:
        """The first recovery that clears a fault."""
        recoveries = (*self._recoveries.values(), reboot(now))
        return min((r for r in recoveries if fault.is_cleared_by(r)), key=lambda r: r.time, default=None)

    def _seen_again(self, incident: str, last_time: float, now: Moment) -> None:
        """Update the faults of an incident that has grown."""
        last_time = min(last_time, now.time)
        for fault in list(self):
            if fault.incident == incident and last_time >= fault.last_time + 1.0:
                seconds = max(fault.boot_seconds, last_time - now.booted)
                boot_seconds = seconds if fault.is_of_this_boot(now) else fault.boot_seconds
                self._store_seen(replace(fault, last_time=last_time, boot_seconds=boot_seconds), last_time, now)

    def _store_seen(self, fault: Fault, time: float, now: Moment) -> None:
        """Store a fault that was seen again at a time. If that was after what had cleared it, it opens again."""
        if fault.cleared and not fault.is_cleared_by(fault.cleared):
            self._open(replace(fault, cleared=None, openings=(*fault.openings, time)[-MAX_OPENINGS:]), now)
        else:
            self._store(fault)

    def _open(self, fault: Fault, now: Moment) -> None:
        alike = [fault, *(other for other in self if other.key != fault.key and _is_same_fault(other, fault))]
        recent = [opening for one in alike for opening in one.openings if now.time - opening <= KEPT_SECONDS]
        opened = replace(fault, times=max(1, len(recent)))
        self._store(opened)
        self._changes.append(opened)

    def _store(self, fault: Fault) -> None:
        self._faults[fault.key] = fault
        self._unsaved[fault.key] = json.dumps(asdict(fault))

    def _forget(self, fault: Fault) -> None:
        del self._faults[fault.key]
        self._unsaved[fault.key] = None


def _is_same_fault(one: Fault, other: Fault) -> bool:
    """Whether both are the same on one card; where none is known, at one address."""
    if (one.root_cause, one.signature) != (other.root_cause, other.signature):
        return False
    return one.card == other.card if other.card else one.gpu == other.gpu
