"""Recoveries: evidence that a GPU or the node works again, and which node faults it clears.

A fault is cleared by what its action asks for, or by more, and never by time. Knows no files, clocks or HTTP.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.catalogue.loader import Catalogue
from exporter.core.model import OPERATOR_ACTIONS, Action, Match, Moment, RecoveryKind, Vendor


def kernel_time(match: Match, now: Moment) -> tuple[float, str, float]:
    """Unix seconds, the id of the boot, and the seconds since that boot; an empty id if it was before this boot."""
    happened = min(match.happened, now.time)  # the clock may have been ahead
    if match.boot_seconds is not None:
        latest = now.boot_seconds if match.origin == now.boot else math.inf  # a file may hold stamps of another boot
        return happened, match.origin, min(match.boot_seconds, latest)
    seconds = happened - now.booted
    return (happened, now.boot, seconds) if seconds >= 0 else (happened, "", 0.0)


CLEARS: Mapping[RecoveryKind, frozenset[Action]] = {
    "gpu_reset": frozenset({"reset_gpu"}),
    "driver_reload": frozenset({"reset_gpu"}),
    "reboot": frozenset({"reset_gpu", "reboot", "run_diagnostics"}),  # a card to be replaced is the same one after it
    "card_swap": OPERATOR_ACTIONS,
    "operator": OPERATOR_ACTIONS,
    "driver": frozenset({"reset_gpu", "reboot"}),  # it asks for neither; what diagnostics find is more than it knows
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One piece of evidence. `boot` and `boot_seconds` are its time by the kernel's clock; see `Fault`.

    gpu: its PCI address; `node`: what concerns no GPU; None: all of `vendor`, or of the node. `who` and `reason`: of an
    operator.
    """

    kind: RecoveryKind
    time: float
    boot: str = ""
    boot_seconds: float = 0.0
    gpu: str | None = None
    vendor: Vendor = "any"
    reason: str = ""
    who: str = ""


def recovery_of(match: Match, catalogue: Catalogue, now: Moment) -> Recovery | None:
    """What a line of the kernel shows to work again, if anything. Lines of jobs never show it: a job could forge them."""
    signature = catalogue.signatures.get(match.signature)
    if match.source != "kernel" or not signature or not signature.recovery:
        return None
    if not signature.recovery.covers(match.captures):
        return None
    kind = signature.recovery.kind
    if kind == "gpu_reset" and not match.gpu:
        return None  # nobody knows whose
    time, boot, boot_seconds = kernel_time(match, now)
    return Recovery(kind=kind, time=time, boot=boot, boot_seconds=boot_seconds, gpu=match.gpu, vendor=signature.vendor)


def reboot(now: Moment) -> Recovery:
    """The boot that this moment belongs to."""
    return Recovery(kind="reboot", time=now.booted, boot=now.boot)
