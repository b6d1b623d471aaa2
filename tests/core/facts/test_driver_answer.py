"""What drivers say of their GPUs, in the child process's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.core.facts.driver_answer import DriverAnswer, driver_answer, with_driver_gpus
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Moment

ASKED_AT = Moment(time=1795000000.0, boot="b", boot_seconds=100.0)


def answer(*gpus: dict[str, Any], **more: Any) -> DriverAnswer:
    return driver_answer(json.dumps({"gpus": gpus, "failed": {}, "absent": [], **more}), ASKED_AT)


def test_a_gpu_has_its_boards_serial_and_its_facts() -> None:
    told = answer(
        {"pci": "00000000:C1:00.0", "serial": "1652524099454", "gpu_ecc": "true", "nvidia_nvlinks": "18 of 18"}
    )
    assert told.gpus == (
        Gpu(pci="0000:c1:00.0", serial="1652524099454", facts={"gpu_ecc": "true", "nvidia_nvlinks": "18 of 18"}),
    )
    assert told.actions == {}
    assert told.asked_at is ASKED_AT


@pytest.mark.parametrize(
    ("number", "action"),
    [(0, "ignore"), (1, "reset_gpu"), (2, "reboot"), (3, "restart_job"), (4, "reset_gpu"), (6, "reset_gpu"), (7, "reboot"),
     (5, "run_diagnostics"), (99, "run_diagnostics"), (-1, None), (None, None)],
)  # fmt: skip
def test_the_recovery_action_is_that_of_xid_154(number: int | None, action: str | None) -> None:
    told = answer({"pci": "0000:c1:00.0", "recovery_action": number})
    assert told.actions.get("0000:c1:00.0") == action


def test_what_is_no_address_or_no_value_is_left_out() -> None:
    told = answer({"pci": "Bus 7"}, {"pci": "0000:c1:00.0", "serial": "0", "gpu_ecc": None, "nvidia_nvlinks": "a\nb"})
    assert told.gpus == (Gpu(pci="0000:c1:00.0"),)


def test_a_driver_that_fails_is_a_failed_probe_and_a_missing_library_is_not() -> None:
    told = answer(failed={"nvidia": "Driver Not Loaded"}, absent=["amd"])
    assert told.failed == {"driver nvidia": "Driver Not Loaded"}
    assert told.absent == ("amd",)


@pytest.mark.parametrize("text", ["", "null", "[]", "{"])
def test_anything_else_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        driver_answer(text, ASKED_AT)


def test_a_driver_adds_to_gpus_that_are_there_and_adds_none() -> None:
    here = Gpu(pci="0000:c1:00.0", vendor="nvidia", unique_id="GPU-1", facts={"gpu_ecc": "false"})
    told = (Gpu(pci="0000:c1:00.0", serial="1", facts={"gpu_ecc": "true"}), Gpu(pci="0000:c2:00.0", serial="2"))
    assert with_driver_gpus((here,), told) == (
        Gpu(pci="0000:c1:00.0", vendor="nvidia", unique_id="GPU-1", serial="1", facts={"gpu_ecc": "false"}),
    )
