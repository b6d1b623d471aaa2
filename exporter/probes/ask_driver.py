"""Asks drivers through their vendors' libraries: `python -m exporter.probes.ask_driver nvidia` prints one line of JSON.

A process of its own, since these libraries wait for the GPU: with one that hangs, they do so for ever.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

Card = dict[str, Any]  # pci, serial, recovery_action (NVML's number), and facts by name


def nvidia(nvml: Any) -> Iterator[Card]:
    """By NVML (nvidia-ml-py). Raises its NVMLError; a value that the driver does not have is left out."""
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):  # one that is off the bus does not hide the others
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            yield _nvidia_card(nvml, handle)


def _nvidia_card(nvml: Any, handle: Any) -> Card:
    def value(of: Callable[[], Any]) -> Any:
        try:
            return of()
        except nvml.NVMLError:
            return None

    rows = value(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    ecc = value(lambda: nvml.nvmlDeviceGetEccMode(handle)[0])
    persistence = value(lambda: nvml.nvmlDeviceGetPersistenceMode(handle))
    states = [value(partial(nvml.nvmlDeviceGetNvLinkState, handle, link)) for link in range(nvml.NVML_NVLINK_MAX_LINKS)]
    links = [state for state in states if state is not None]
    return {
        "pci": nvml.nvmlDeviceGetPciInfo(handle).busId,
        "serial": value(lambda: nvml.nvmlDeviceGetSerial(handle)),
        "recovery_action": value(lambda: _recovery_action(nvml, handle)),
        "gpu_ecc": None if ecc is None else str(bool(ecc)).lower(),
        "nvidia_persistence_mode": None if persistence is None else str(bool(persistence)).lower(),
        "nvidia_nvlinks": f"{sum(map(bool, links))} of {len(links)}" if links else None,
        "gpu_remapped_rows": None if rows is None else _rows(*rows),
    }


def _recovery_action(nvml: Any, handle: Any) -> int | None:
    """Drivers before 560 do not have it."""
    [field] = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return int(field.value.uiVal) if field.nvmlReturn == nvml.NVML_SUCCESS else None


def _rows(correctable: int, uncorrectable: int, pending: int, failed: int) -> str:
    state = ", one failed" if failed else ", one waits for a reset" if pending else ""
    return f"{correctable + uncorrectable}{state}"


def amd(smi: Any) -> Iterator[Card]:
    """By AMD SMI (amdsmi). Raises its AmdSmiException. All but the board's serial is in /sys."""
    smi.amdsmi_init()
    for handle in smi.amdsmi_get_processor_handles():
        with contextlib.suppress(smi.AmdSmiException):
            board = smi.amdsmi_get_gpu_board_info(handle)
            serial = board["product_serial"]
            yield {"pci": smi.amdsmi_get_gpu_device_bdf(handle), "serial": None if serial == "N/A" else serial}


ASKED: dict[str, tuple[str, Callable[[Any], Iterator[Card]]]] = {"nvidia": ("pynvml", nvidia), "amd": ("amdsmi", amd)}


def answers(vendors: Sequence[str]) -> dict[str, Any]:
    """The cards that answer, vendors that failed and why, and vendors whose library is not there."""
    answer: dict[str, Any] = {"gpus": [], "failed": {}, "absent": []}
    for vendor in vendors:
        module, ask = ASKED[vendor]
        try:
            library = importlib.import_module(module)
        except (ImportError, KeyError, OSError):  # amdsmi looks for its shared object when imported
            answer["absent"].append(vendor)
            continue
        try:
            answer["gpus"] += ask(library)
        except Exception as error:  # the library's own, or what it makes of a broken installation
            answer["failed"][vendor] = str(error) or repr(error)
    return answer


if __name__ == "__main__":
    out = os.dup(1)
    os.dup2(2, 1)  # a library may print what it likes
    with open(out, "w") as answer:
        json.dump(answers(sys.argv[1:]), answer)
