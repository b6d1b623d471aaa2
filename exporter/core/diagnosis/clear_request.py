"""An operator's request to clear node faults: `gpufault clear`, over the daemon's socket or its API."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from exporter.core.diagnosis.node_faults import Fault
from exporter.core.diagnosis.records import writable
from exporter.core.diagnosis.recoveries import Recovery
from exporter.core.facts.pci import normalise_pci
from exporter.core.model import Moment

ALL, NODE = "all", "node"  # instead of a GPU's address: every fault; faults that name no GPU
MAX_REASON = 500  # characters


class InvalidRequest(Exception):
    """A request that is refused. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearRequest:
    """What to clear: the PCI address of a GPU, ALL or NODE; why; and who asks for it."""

    gpu: str
    reason: str
    who: str = ""

    @classmethod
    def from_json(cls, data: object, who: str) -> Self:
        """Raises InvalidRequest."""
        if not isinstance(data, Mapping) or not data.keys() <= {"gpu", "reason"}:
            raise InvalidRequest('send a JSON object such as {"gpu": "0000:c1:00.0", "reason": "replaced"}')
        gpu, reason = data.get("gpu"), data.get("reason")
        if not isinstance(gpu, str) or not (target := target_of(gpu)):
            raise InvalidRequest(f"gpu: not a PCI address such as 0000:c1:00.0, nor {ALL} or {NODE}")
        if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
            raise InvalidRequest(f"reason: give one, of at most {MAX_REASON} characters")
        return cls(gpu=target, reason=writable(reason.strip()), who=who)

    def recovery(self, open_faults: Iterable[Fault], now: Moment) -> Recovery:
        """What it comes to. Raises InvalidRequest if there is nothing to clear, so that a typing error is noticed."""
        recovery = Recovery(
            kind="operator", time=now.time, boot=now.boot, boot_seconds=now.boot_seconds,
            gpu=None if self.gpu == ALL else self.gpu, reason=self.reason, who=self.who,
        )  # fmt: skip
        faults = list(open_faults)
        if not any(fault.is_cleared_by(recovery) for fault in faults):
            targets = ", ".join(sorted({fault.gpu or NODE for fault in faults}))
            raise InvalidRequest(
                f"no open fault of {self.gpu}; open faults: {targets}" if targets else "no fault is open"
            )
        return recovery


def target_of(text: str) -> str | None:
    """A GPU's address in its usual form, ALL or NODE; None for anything else."""
    return text if text in (ALL, NODE) else normalise_pci(text)
