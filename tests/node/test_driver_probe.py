"""When drivers are asked, and what happens if they do not answer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from exporter.core.facts.driver_answer import DriverAnswer
from exporter.node.driver_probe import AT_MOST_SECONDS, DriverProbe
from tests.support.matches import NOW

ANSWER = json.dumps({"gpus": [{"pci": "0000:06:00.0", "recovery_action": 0}], "failed": {}, "absent": []})


def answering(text: str) -> Sequence[str]:
    return sys.executable, "-c", f"import sys; assert sys.argv[1:] == ['nvidia']; print({text!r})"


NO_FAULT: frozenset[str] = frozenset()
FAULT = frozenset({"Xid 48 of a GPU"})


def answered(
    probe: DriverProbe, now: float, faults: frozenset[str] = NO_FAULT, vendor: str = "nvidia"
) -> DriverAnswer | None:
    """The answer to what is asked at a time, if anything is."""
    begun = set(threading.enumerate())
    assert probe.poll(now, {vendor}, faults) is None
    for thread in set(threading.enumerate()) - begun:
        thread.join()
    return probe.poll(now, {vendor}, faults)


def test_a_driver_is_asked_once_and_ever_less_often_while_a_fault_is_open() -> None:
    probe = DriverProbe(answering(ANSWER))
    first = answered(probe, NOW)
    assert first
    assert first.actions == {"0000:06:00.0": "ignore"}
    assert first.asked_at.time == NOW
    assert answered(probe, NOW + 1e6) is None
    asked = [seconds for seconds in range(0, 3600, 10) if answered(probe, NOW + 2e6 + seconds, FAULT)]
    assert asked == [0, 30, 90, 210, 450, 930, 1530, 2130, 2730, 3330]
    assert answered(probe, NOW + 2e6 + 3590, FAULT | {"another"})
    assert answered(probe, NOW + 2e6 + 3600)  # none is open any more: what does it ask for now?
    assert answered(probe, NOW + 3e6) is None
    assert answered(probe, NOW + 3e6, FAULT)
    assert answered(probe, NOW, FAULT)  # the clock was set back


def test_a_driver_that_failed_is_asked_again_later() -> None:
    probe = DriverProbe((sys.executable, "-c", "raise SystemExit(3)"))
    assert answered(probe, NOW)
    assert answered(probe, NOW + AT_MOST_SECONDS - 1) is None
    assert answered(probe, NOW + AT_MOST_SECONDS)


def test_a_driver_that_is_not_to_be_asked_has_not_failed() -> None:
    probe = DriverProbe((sys.executable, "-c", "raise SystemExit(3)"))
    answered(probe, NOW)
    assert probe.failed
    assert probe.poll(NOW, (), NO_FAULT) is None
    assert probe.failed == {}


@pytest.mark.parametrize("vendor", ["intel", "other"])
def test_a_vendor_without_such_a_library_is_not_asked(vendor: str) -> None:
    assert answered(DriverProbe(answering(ANSWER)), NOW, vendor=vendor) is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ((sys.executable, "-c", "import os; os.abort()"), "the process that asks ended with -6"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "the process that asks ended with 3"),
        ((sys.executable, "-c", "print('no JSON')"), "the process that asks ended with 0"),
        ((sys.executable, "-c", "print('{\"gpus\": [7]}')"), "the process that asks ended with 0"),
        ((sys.executable, "-c", ""), "the process that asks ended with 0"),
        (("/nonexistent",), "[Errno 2] No such file or directory: '/nonexistent'"),
    ],
)
def test_a_process_that_fails_is_a_failed_probe(command: Sequence[str], why: str) -> None:
    probe = DriverProbe(command)
    answer = answered(probe, NOW)
    assert answer
    assert (answer.gpus, answer.actions) == ((), {})
    assert probe.failed == {"driver": why}


def test_a_driver_that_hangs_is_left_alone_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging: list[subprocess.Popen[bytes]] = []

    def kill(child: subprocess.Popen[bytes]) -> None:
        hanging.append(child)  # it waits in the kernel

    monkeypatch.setattr(subprocess.Popen, "kill", kill)
    probe = DriverProbe((sys.executable, "-c", "import signal; signal.pause()"), deadline=0.2)
    answered(probe, NOW)
    assert probe.failed == {"driver": "no answer within 0.2 s"}
    answered(probe, NOW + 1e3, FAULT)
    assert probe.failed == {"driver": "still hangs since it was asked before"}
    assert len(hanging) == 1
    hanging[0].terminate()
    hanging[0].wait()
    assert hanging[0].stdout
    hanging[0].stdout.close()


def test_the_real_process_answers_with_gpus_a_failure_or_that_its_library_is_missing() -> None:
    answer = answered(DriverProbe(), NOW)
    assert answer
    assert [bool(answer.gpus), answer.failed.keys() == {"driver nvidia"}, answer.absent == ("nvidia",)].count(True) == 1


def test_what_a_library_prints_is_not_taken_for_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the C library, which writes when the process ends."""
    (tmp_path / "pynvml.py").write_text(
        "import ctypes\nctypes.CDLL(None).printf(b'words without an end')\nprint('more')\n"
        "NVMLError = OSError\ndef nvmlInit(): raise OSError('Driver Not Loaded')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = answered(DriverProbe(), NOW)
    assert answer
    assert answer.failed == {"driver nvidia": "Driver Not Loaded"}
