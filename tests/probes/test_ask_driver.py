"""What the vendors' libraries are asked, by libraries that answer as theirs do."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.probes import ask_driver


class NvmlError(Exception):
    """As pynvml.NVMLError: raised for a function that driver or card does not have."""


class Nvml:
    """Two H100: one works and asks for a reset, the other fell off the bus."""

    NVMLError = NvmlError
    NVML_SUCCESS = 0
    NVML_NVLINK_MAX_LINKS = 4
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    has_recovery_action = True

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 1:
            raise NvmlError("GPU is lost")
        return index

    def nvmlDeviceGetPciInfo(self, _handle: int) -> Any:
        return SimpleNamespace(busId="00000000:06:00.0")

    def nvmlDeviceGetSerial(self, _handle: int) -> str:
        return "1652524099454"

    def nvmlDeviceGetRemappedRows(self, _handle: int) -> tuple[int, int, int, int]:
        return 1, 2, 1, 0

    def nvmlDeviceGetEccMode(self, _handle: int) -> tuple[int, int]:
        return 1, 0

    def nvmlDeviceGetPersistenceMode(self, _handle: int) -> int:
        raise NvmlError("Not Supported")

    def nvmlDeviceGetNvLinkState(self, _handle: int, link: int) -> int:
        if link == 3:
            raise NvmlError("Invalid Argument")
        return int(link != 1)

    def nvmlDeviceGetFieldValues(self, _handle: int, fields: list[int]) -> list[Any]:
        assert fields == [230]
        return [SimpleNamespace(nvmlReturn=0 if self.has_recovery_action else 3, value=SimpleNamespace(uiVal=1))]


class Smi:
    """One MI300X with a serial number, one card without."""

    AmdSmiException = KeyError

    def amdsmi_init(self) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["692438000123", "N/A"]

    def amdsmi_get_gpu_board_info(self, handle: str) -> dict[str, str]:
        return {"product_serial": handle}

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return "0000:05:00.0" if handle != "N/A" else "0000:15:00.0"


def told(monkeypatch: pytest.MonkeyPatch, **libraries: Any) -> dict[str, Any]:
    for name in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, name, libraries.get(name))
    return ask_driver.answers(["nvidia", "amd"])


def test_each_card_that_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = told(monkeypatch, pynvml=Nvml(), amdsmi=Smi())
    assert answer == {
        "gpus": [
            {
                "pci": "00000000:06:00.0", "serial": "1652524099454", "recovery_action": 1, "gpu_ecc": "true",
                "nvidia_persistence_mode": None, "nvidia_nvlinks": "2 of 3",
                "gpu_remapped_rows": "3, one waits for a reset",
            },
            {"pci": "0000:05:00.0", "serial": "692438000123"},
            {"pci": "0000:15:00.0", "serial": None},
        ],
        "failed": {},
        "absent": [],
    }  # fmt: skip


def test_an_older_driver_says_nothing_of_an_action(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    nvml.has_recovery_action = False
    assert told(monkeypatch, pynvml=nvml)["gpus"][0]["recovery_action"] is None


def test_a_library_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch) == {"gpus": [], "failed": {}, "absent": ["nvidia", "amd"]}


def test_a_library_that_fails_does_not_silence_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(
        nvmlInit=lambda: (_ for _ in ()).throw(NvmlError("Driver Not Loaded")), NVMLError=NvmlError
    )
    answer = told(monkeypatch, pynvml=broken, amdsmi=Smi())
    assert answer["failed"] == {"nvidia": "Driver Not Loaded"}
    assert [card["pci"] for card in answer["gpus"]] == ["0000:05:00.0", "0000:15:00.0"]
