"""`gpufault node-check` asks a real daemon: before an incident settles, after a restart, over TLS, and in vain."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.programs import needs, needs_root
from tests.support.wall_clock import WallClock

from .conftest import Guarded, Kernel, Node, eventually, gpufault

LOST = "NVRM: Xid (PCI:0000:c1:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
REASON = "[node_problem] gpufault: gpu_lost_from_pcie nv_xid_79_fallen_off_bus "


def node_check(*arguments: str, wrap: Sequence[str] = ()) -> tuple[int, str]:
    """Exit code, and the line that is printed; nothing else may be said."""
    patience = [] if any(argument.startswith("--timeout=") for argument in arguments) else ["--timeout=20"]
    command = [*wrap, gpufault(), "node-check", *patience, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.returncode, done.stdout.rstrip("\n")


@pytest.fixture
def node(make_node: Callable[..., Node], kernel: Kernel) -> Node:
    """A node whose incidents settle so late that no test sees it."""
    return make_node([{"kind": "kmsg", "path": str(kernel.path)}], incidents={"settle": "10m", "window": "10m"})


def test_a_lost_gpu_is_reported_before_its_incident_has_settled(node: Node, kernel: Kernel) -> None:
    node.start()
    url = f"--url=http://{node.address}"
    code, said = node_check(url)
    assert (code, said.partition(" 2")[0]) == (0, "gpufault: healthy since")
    kernel.say(LOST)
    code, said = eventually(lambda: found if (found := node_check(url))[0] == 1 else None)
    assert said.startswith(REASON)
    assert said.endswith("Z gpu 0000:c1:00.0")
    answer = json.loads(node_check(url, "--format=json")[1])
    assert answer["status"] == "problem"
    assert [(f["settled"], f["count"]) for f in answer["faults"]] == [(False, 1)]
    code, said = node_check(url, "--format=npd")
    assert code == 1
    assert said.startswith("gpu_lost_from_pcie nv_xid_79_fallen_off_bus 20")
    assert len(said) <= 80


def test_a_fault_is_remembered_over_a_kill_and_left_behind_by_time(
    make_node: Callable[..., Node], kernel: Kernel
) -> None:
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}])
    node.start()
    kernel.say(LOST)
    eventually(lambda: node.records() or None)
    node.kill()
    node.start()
    url = f"--url=http://{node.address}"
    for arguments in ((), ("--since=1h",), ("--job=7",)):
        code, said = node_check(url, *arguments)
        assert code == 1, said
        assert said.startswith(REASON)
    assert node_check(url, "--since=2100-01-01T00:00:00Z") == (0, "gpufault: healthy since 2100-01-01T00:00:00.000Z")


@pytest.mark.heavy
@needs("unshare")
@needs_root
def test_a_fault_seen_while_the_clock_was_400_days_ahead_ages_all_the_same(
    make_node: Callable[..., Node], kernel: Kernel, tmp_path: Path
) -> None:
    clock = WallClock(tmp_path)
    clock.set_ahead(400 * 86400.0)
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}])
    node.wrap = clock.wrap
    node.start()
    kernel.say(LOST)
    eventually(lambda: node.records() or None)
    seen = time.monotonic()

    def check(since: str) -> int:
        url = f"http://{node.address}"
        return node_check(f"--url={url}", f"--since={since}", wrap=clock.wrap)[0]

    assert (check("boot"), check("1h")) == (1, 1)
    clock.set_ahead(0.0)
    eventually(lambda: time.monotonic() - seen > 1.5 or None)
    assert (check("1s"), check("boot"), check("1h")) == (0, 1, 1)
    node.kill()
    node.start()
    assert (check("1s"), check("boot"), check("1h")) == (0, 1, 1)
    node.kill()
    kernel.path.write_text("")  # as the kernel's ring of another boot
    node.wrap = clock.another_boot()
    node.start()
    assert (check("1s"), check("boot"), check("365d")) == (0, 0, 0)


def test_what_the_infrastructure_is_not_to_blame_for_is_no_problem_of_the_node(node: Node, kernel: Kernel) -> None:
    node.start()
    kernel.say("NVRM: Xid (PCI:0000:c1:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS")
    seen = 'gpufault_lines_matched_total{signature="nv_xid_31_mmu_fault",source="kernel"}'
    eventually(lambda: node.value(seen) == 1.0 or None)
    assert node_check(f"--url=http://{node.address}")[0] == 0


def test_a_job_that_prints_what_a_lost_gpu_prints_cannot_take_its_node_away(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.start()
    smi = "Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot the system to recover this GPU"
    (node.logs / "slurm-7.log").write_text(f"[   12.345678] {LOST}\n{smi}\n")
    record = eventually(lambda: next(iter(node.records()), None))
    assert (record["severity"], record["root_cause"]) == ("critical", "gpu_lost_from_pcie")
    assert record["verdict"] == "infrastructure"  # of the job's line; no operator is called for it
    assert node_check(f"--url=http://{node.address}")[0] == 0


def test_a_job_whose_crash_the_kernel_reports_by_a_name_of_the_jobs_choice_cannot_either(
    node: Node, kernel: Kernel
) -> None:
    node.start()
    kernel.say(f"python3[4242]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in {LOST}[7f2c00000000+1000]")
    seen = 'gpufault_lines_matched_total{signature="segfault_user",source="kernel"}'
    eventually(lambda: node.value(seen) == 1.0 or None)
    assert node.value('gpufault_lines_matched_total{signature="nv_xid_79_fallen_off_bus",source="kernel"}') is None
    assert node_check(f"--url=http://{node.address}")[0] == 0


def test_a_daemon_that_does_not_see_the_kernel_log_does_not_call_the_node_healthy(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    node = make_node([{"kind": "kmsg", "path": str(tmp_path / "nowhere")}])
    node.start()
    code, said = node_check(f"--url=http://{node.address}")
    assert code == 3
    assert said.startswith("gpufault: unknown: not everything is seen: source kmsg:")


def test_a_daemon_that_does_not_answer_is_unknown_within_two_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts for it, nobody answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = [gpufault(), "node-check", f"--url={url}"]
        done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (3, f"gpufault: unknown: {url}: no answer within 2 s\n")
        assert node_check(f"--url={url}", "--timeout=0.2", "--format=npd") == (2, f"{url}: no answer within 0.2 s")
    assert node_check(f"--url={url}") == (3, f"gpufault: unknown: {url}: Connection refused; is gpufault running?")


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("--since=yesterday", "--since: invalid time 'yesterday'; use 2026-06-01T00:00:00Z or Unix seconds"),
        ("--url=ftp://node", "--url: 'ftp://node' is not an http:// or https:// address"),
        ("--ca-file=/nowhere.pem", "/nowhere.pem: No such file or directory"),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_no_problem_of_the_node(argument: str, why: str) -> None:
    assert node_check("--url=https://127.0.0.1:1", argument) == (3, f"gpufault: unknown: {why}")


def test_it_speaks_tls_and_gives_its_password(node: Node, kernel: Kernel, guarded: Guarded) -> None:
    node.wrap = guarded.environment
    node.start()
    url = f"--url=https://{node.address}"
    assert node_check(url, guarded.trust, *guarded.login)[0] == 0
    code, said = node_check(url, guarded.trust)
    assert code == 3
    assert said.endswith(": 401 Unauthorized; give --user and --password-file")
    code, said = node_check(url, *guarded.login)
    assert code == 3
    assert "certificate verify failed" in said.lower()


LINES = yaml.safe_load((Path(__file__).parent / "node_check.yaml").read_text())


def test_a_node_is_unfit_where_the_vendor_asks_for_an_operator_and_not_else(node: Node, kernel: Kernel) -> None:
    node.start()
    url = f"--url=http://{node.address}"
    for line in LINES["ignored"]:
        kernel.say(line)
    for number in range(40):
        kernel.say(LINES["flood"].format(link=number % 18))
        kernel.say(LINES["xid_13"].format(gpu="0a", pid=4242).replace("GPC 2", "GPC 5"))
    seen = 'gpufault_lines_matched_total{signature="nv_xid_13_graphics_exception",source="kernel"}'
    eventually(lambda: node.value(seen) == 40.0 or None)
    code, said = node_check(url)
    assert (code, said.partition(" since")[0]) == (0, "gpufault: healthy"), said
    for line in LINES["operator"].values():
        kernel.say(line.partition(": ")[2])
    expected = {gpu: line.partition(": ")[0] for gpu, line in LINES["operator"].items()}

    def all_of_them() -> dict[str, str] | None:
        faults = json.loads(node_check(url, "--format=json")[1])["faults"]
        return found if len(found := {f["gpu"]: f["action"] for f in faults}) >= len(expected) else None

    assert eventually(all_of_them) == expected
    assert node_check(url)[0] == 1


@pytest.mark.heavy
def test_one_sm_that_fails_in_many_jobs_is_a_hint_and_leaves_the_node_fit(
    make_node: Callable[..., Node], kernel: Kernel
) -> None:
    """A kernel with few blocks runs on the same SM each time: two users could take any node out of service."""
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}])
    node.start()
    for pid in (101, 102, 103, 104):
        kernel.say(LINES["xid_13"].format(gpu="16", pid=pid))
    eventually(lambda: len(node.records()) == 4 or None)
    assert node_check(f"--url=http://{node.address}")[0] == 0
    assert {record["root_cause"] for record in node.records()} == {"application_illegal_access"}
    assert "4 jobs failed on GPC 2, TPC 3, SM 1 only" in node.get("/")


@pytest.mark.heavy
def test_three_short_programs_of_one_user_leave_the_node_fit(make_node: Callable[..., Node], kernel: Kernel) -> None:
    """They have ended before the daemon looks at their processes, so nobody can tell that they are one user's."""
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}])
    node.start()
    for ago in (60.0, 30.0, 0.0):
        program = subprocess.Popen(["/bin/true"])
        program.wait(timeout=60)
        kernel.say(LINES["xid_13"].format(gpu="16", pid=program.pid), seconds_ago=ago)
    eventually(lambda: len(node.records()) == 3 or None)
    assert node_check(f"--url=http://{node.address}")[0] == 0
    assert {record["verdict"] for record in node.records()} == {"workload"}
    assert json.loads(node.get("/api/v1/faults"))["faults"] == []
