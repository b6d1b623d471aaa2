"""The life of a fault on a real node: it opens, a reset or an operator clears it, and all views agree."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import needs, needs_root

from .conftest import Kernel, Node, eventually, gpufault

GPU = "0000:c1:00.0"
FAULT = (
    "NVRM: Xid (PCI:0000:c1:00): 48, pid=4242, name=python3, An uncorrectable double bit error (DBE) has been detected"
)
RECOVERED = "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
SERIES = 'gpufault_node_fault{action="reset_gpu",gpu="0000:c1:00.0",root_cause="gpu_memory_uncorrectable_ecc"}'


@pytest.fixture
def node(make_node: Callable[..., Node], kernel: Kernel) -> Node:
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}])
    node.start()
    kernel.say(FAULT)
    eventually(lambda: node.records("fault") or None)
    return node


def states(node: Node) -> list[tuple[str, int]]:
    return [(f["state"], f["times"]) for f in json.loads(node.get("/api/v1/faults"))["faults"]]


def shown(node: Node, value: float | None) -> None:
    """The series has this value as soon as the round that changed the fault is over."""
    eventually(lambda: node.value(SERIES) == value or None)


def node_check(node: Node) -> int:
    command = [gpufault(), "node-check", f"--url=http://{node.address}", "--timeout=20"]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode


def clear(node: Node, *arguments: str, wrap: tuple[str, ...] = ()) -> tuple[int, str]:
    command = [*wrap, gpufault(), "clear", *arguments, "--config.file", str(node.config)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_a_reset_clears_a_fault_and_its_return_is_counted(node: Node, kernel: Kernel) -> None:
    assert states(node) == [("open", 1)]
    shown(node, 1.0)
    assert node_check(node) == 1
    kernel.say(RECOVERED)
    eventually(lambda: states(node) == [("cleared", 1)] or None)
    shown(node, None)
    assert node_check(node) == 0
    node.kill()
    node.start()
    assert states(node) == [("cleared", 1)]
    eventually(lambda: kernel.say(FAULT) or ("open", 2) in states(node) or None)
    shown(node, 1.0)
    assert node_check(node) == 1
    told = [(r["state"], r["times"], (r["cleared"] or {}).get("kind")) for r in node.records("fault")]
    assert told[:3] == [("open", 1, None), ("cleared", 1, "gpu_reset"), ("open", 2, None)]


def test_root_clears_a_fault_and_the_journal_keeps_who_and_why(node: Node) -> None:
    code, said = clear(node, "c1:00.0", "--reason", "card replaced, ticket 4711")
    assert code == 0, said
    assert said.startswith(
        "cleared: gpu_memory_uncorrectable_ecc nv_xid_48_double_bit_ecc of 0000:c1:00.0, open since 20"
    )
    shown(node, None)
    assert (states(node), node_check(node)) == ([("cleared", 1)], 0)
    [_, cleared] = eventually(lambda: found if len(found := node.records("fault")) == 2 else None)
    assert (cleared["cleared"]["kind"], cleared["cleared"]["reason"]) == ("operator", "card replaced, ticket 4711")
    assert cleared["cleared"]["who"]
    assert clear(node, GPU, "--reason", "again") == (1, "gpufault: no fault is open\n")
    node.kill()
    node.start()
    assert states(node) == [("cleared", 1)]


def test_a_timeline_shows_when_the_node_check_failed_and_what_cleared_it(node: Node) -> None:
    assert clear(node, GPU, "--reason", "card replaced")[0] == 0
    eventually(lambda: len(node.records("fault")) == 2 or None)
    facts = node.records("facts")[0]
    assert facts["boot"]["id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    command = [gpufault(), "timeline", facts["node"], "--journal", str(node.folder / "state" / "journal")]
    wide = os.environ | {"COLUMNS": "0"}
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=wide).stdout
    [line] = [line for line in told.splitlines() if "node check" in line]
    assert re.search(rf"fails: .+, GPU {GPU}; reset the GPU; cleared by an operator after", line), told


@needs("setpriv")
@needs_root
def test_a_jobs_user_clears_nothing(node: Node) -> None:
    for folder in (node.folder, *node.folder.parents):
        if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o755)
    wrap = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    code, said = clear(node, GPU, "--reason", "let me in", wrap=wrap)
    assert code == 3, said
    assert "permission denied; be root" in said
    state = node.folder / "state"
    state.chmod(0o755)  # even where the folder lets everyone in, the socket does not
    assert clear(node, GPU, "--reason", "let me in", wrap=wrap)[0] == 3
    (state / "control.sock").chmod(0o666)  # and behind it the daemon asks the kernel who it is
    code, said = clear(node, GPU, "--reason", "let me in", wrap=wrap)
    assert (code, "only administrators" in said) == (3, True)
    assert states(node) == [("open", 1)]


def test_a_daemon_that_does_not_run_is_told(node: Node) -> None:
    node.stop()
    code, said = clear(node, GPU, "--reason", "replaced")
    assert code == 3
    assert "is gpufault running" in said
    assert not (node.folder / "state" / "control.sock").exists()
    code, said = clear(node, "the first", "--reason", "replaced")
    assert (code, "not a PCI address" in said) == (2, True)


NVML = """
from types import SimpleNamespace as Value

NVMLError, NVML_SUCCESS, NVML_NVLINK_MAX_LINKS, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = OSError, 0, 0, 230
nvmlInit = lambda: None
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = int
nvmlDeviceGetPciInfo = lambda handle: Value(busId="00000000:1B:00.0")
nvmlDeviceGetSerial = lambda handle: "1652524099454"
nvmlDeviceGetRemappedRows = lambda handle: (0, 0, 0, 0)
nvmlDeviceGetEccMode = lambda handle: (1, 1)
nvmlDeviceGetPersistenceMode = lambda handle: 1
nvmlDeviceGetFieldValues = lambda handle, fields: [Value(nvmlReturn=0, value=Value(uiVal=ASKED_FOR))]
"""


@pytest.mark.parametrize(("action", "states_told"), [(0, ["cleared"]), (1, ["open"])], ids=["nothing", "a reset"])
def test_the_driver_withdraws_or_confirms_a_fault(
    make_node: Callable[..., Node],
    kernel: Kernel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: int,
    states_told: list[str],
) -> None:
    """The driver's library is asked in a process of its own, here one that answers as NVIDIA's does."""
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "pynvml.py").write_text(NVML.replace("ASKED_FOR", str(action)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "libraries"))
    kernel.say(FAULT.replace("c1:00", "1b:00"), seconds_ago=30)
    root = Path(__file__).parents[1] / "fixtures" / "roots" / "nvidia"
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}], facts={"rootfs": str(root)})
    node.start()

    def told() -> list[dict[str, object]]:
        faults: list[dict[str, object]] = json.loads(node.get("/api/v1/faults"))["faults"]
        return faults

    def answered() -> list[dict[str, object]] | None:
        facts = [record for record in node.records("facts") if record["gpus"][0]["serial"] == "1652524099454"]
        return told() if facts and facts[-1]["facts"]["nvidia_persistence_mode"] == "true" else None

    eventually(answered)
    eventually(lambda: [fault["state"] for fault in told()] == states_told or None)
    [fault] = told()
    assert fault["gpu"] == "0000:1b:00.0"
    if action:
        eventually(lambda: told()[0]["driver_asks"] == "reset_gpu" or None)
    else:
        assert fault["cleared"]["kind"] == "driver"  # type: ignore[index]
        assert node_check(node) == 0
