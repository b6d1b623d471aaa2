"""What a vendor's driver says of its GPUs through its own library, as the child process of `probes.ask_driver` prints it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.core.facts.gpus import Gpu, merge_gpus
from exporter.core.facts.parsing import identity, single_line
from exporter.core.facts.pci import normalise_pci
from exporter.core.model import Action, Moment

MAX_GPUS = 64
DRIVER_FACTS = {
    "gpu_ecc": "whether the GPUs' memory has ECC",
    "nvidia_persistence_mode": "whether the driver keeps GPUs initialised without users",
    "nvidia_nvlinks": "NVLinks of a GPU that are up",
    "gpu_remapped_rows": "rows of GPU memory that were replaced by spare ones",
}
# NVML_GPU_RECOVERY_ACTION_*: none, reset, reboot, drain P2P, drain and reset, of the bus, of the system. The vendor's table
# reads Xid 154, which reports the same, so too: an action that is not known here is one, and never nothing.
_RECOVERY_ACTIONS: Mapping[int, Action] = {
    0: "ignore", 1: "reset_gpu", 2: "reboot", 3: "restart_job", 4: "reset_gpu", 6: "reset_gpu", 7: "reboot",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAnswer:
    """gpus: with serial and facts. actions: what the driver asks for, by PCI address; not there: it does not say.
    asked_at: a driver speaks of what was before.

    failed: probe (`driver nvidia`) → why its driver did not answer. absent: vendors whose library is not installed.
    """

    asked_at: Moment
    gpus: tuple[Gpu, ...] = ()
    actions: Mapping[str, Action] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def with_driver_gpus(gpus: Iterable[Gpu], of_driver: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs of a machine with what the drivers add."""
    gpus = tuple(gpus)
    here = {gpu.pci for gpu in gpus}
    return merge_gpus((*gpus, *(gpu for gpu in of_driver if gpu.pci in here)))


def driver_answer(text: str, asked_at: Moment) -> DriverAnswer:
    """From the child's JSON. Raises ValueError."""
    answer = json.loads(text)
    if not isinstance(answer, dict) or not all(isinstance(card, dict) for card in answer.get("gpus", ())):
        raise ValueError("not an answer")
    gpus: dict[str, Gpu] = {}
    actions: dict[str, Action] = {}
    for card in list(answer.get("gpus", ()))[:MAX_GPUS]:
        pci = normalise_pci(str(card.get("pci", "")))
        if pci is None:
            continue
        gpus[pci] = _gpu(pci, card)
        if isinstance(number := card.get("recovery_action"), int) and number >= 0:
            actions[pci] = _RECOVERY_ACTIONS.get(number, "run_diagnostics")
    failed = {
        f"driver {vendor}": single_line(str(why)[:200]) or "failed" for vendor, why in answer.get("failed", {}).items()
    }
    return DriverAnswer(
        asked_at=asked_at,
        gpus=tuple(gpus.values()),
        actions=actions,
        failed=failed,
        absent=tuple(map(str, answer.get("absent", ()))),
    )


def _gpu(pci: str, card: Mapping[str, Any]) -> Gpu:
    facts = {name: single_line(str(card[name])) for name in DRIVER_FACTS if card.get(name) is not None}
    return Gpu(
        pci=pci,
        serial=identity(str(card["serial"])) if card.get("serial") else None,
        facts={name: value for name, value in facts.items() if value},
    )
