"""Slurm's hooks against what a user may put into a job, under every shell that /bin/sh may be: nothing is forged, held or
run, and the hooks end in time.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.core.decoding.job_files import Forged, NodeJob, ended_job, started_job
from tests.e2e.conftest import eventually
from tests.support.programs import skip_without

HOOKS = Path(__file__).parents[2] / "deploy/slurm"
NAMES = ("prolog", "epilog", "health-check")
SHELLS = ("dash", "bash", "busybox")
PASSED = re.compile(r"\$\{(\w+):\+")
OF_THE_ADMINISTRATOR = {"GPUFAULT_JOBS_DIR", "SLURM_CONF"}  # no job sets them: a path is used as it is
# A forged line in each way in which a shell, its `echo` or a reader of lines may make one of a value; then commands.
HOSTILE = "\n".join([
    "x\\nuid=0\\nuser=root", "uid=0", "complete=1\r", "uid=0\r", "\u2028uid=0\u2028\u0085uid=0\x0buid=0\x1cuid=0\x1b[2J\u202e",
    "\\c", "-e -n %s%n", "$(touch {ran})`touch {ran}`; touch {ran}\n", "complete=1\n",
])  # fmt: skip

pytestmark = pytest.mark.deploy


class Hooks:
    """The hooks as they are shipped, for one shell, with the commands that they call in a folder."""

    def __init__(self, folder: Path, shell: str) -> None:
        skip_without(shell)
        self.folder, self.jobs, self.ran = folder, folder / "jobs", folder / "ran"
        (folder / "bin").mkdir()
        (folder / "sh").symlink_to(str(shutil.which(shell)))
        for name in NAMES:
            text = (HOOKS / name).read_text()
            for shipped, here in (
                ("/bin/sh", f"{folder}/sh"), ("/opt/gpufault", str(folder)), ("/etc/default/gpufault", f"{folder}/defaults"),
            ):  # fmt: skip
                assert shipped in text
                text = text.replace(shipped, here)
            self.write(folder / name, text)
        (folder / "defaults").write_text("GPUFAULT_ASK_SLURMCTLD=yes\n")
        self.command("gpufault", f"env -0 >{folder}/environment; echo unfit; exit 1")
        self.command("logger", f'for last; do :; done; printf "%s" "$last" >>{folder}/log')
        self.command("scontrol", "echo gpu-07")

    def command(self, name: str, text: str) -> None:
        self.write(self.folder / "bin" / name, f"#!/bin/sh\n{text}\n")

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, name: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
        environment = {"GPUFAULT_JOBS_DIR": str(self.jobs), "SLURM_JOB_ID": "7", **environment}
        return subprocess.run([self.folder / name], env=environment, check=True, capture_output=True, timeout=45)

    def started(self) -> NodeJob:
        return started_job("7", (self.jobs / "7.started").read_bytes().decode(errors="backslashreplace"))


@pytest.fixture(params=SHELLS)
def hooks(request: pytest.FixtureRequest, tmp_path: Path) -> Hooks:
    return Hooks(tmp_path, request.param)


def passed_on() -> set[str]:
    """Every variable of the environment that some hook uses."""
    return {name for hook in NAMES for name in PASSED.findall((HOOKS / hook).read_text())} - OF_THE_ADMINISTRATOR


@pytest.mark.parametrize("variable", sorted(passed_on()))
def test_no_value_of_a_variable_forges_a_line_or_runs(hooks: Hooks, variable: str) -> None:
    honest = {
        "SLURM_JOB_UID": "1000",
        "SLURM_JOB_USER": "mallory",
        "SLURM_JOB_EXIT_CODE2": "1:0",
        "SLURM_JOB_NUM_NODES": "2",
    }
    hostile = {variable: HOSTILE.replace("{ran}", str(hooks.ran))}
    hooks.run("prolog", {**honest, **hostile})
    if variable != "SLURM_JOB_ID":
        job = hooks.started()
        assert job.uid == (None if variable == "SLURM_JOB_UID" else 1000)
        assert variable == "SLURM_JOB_USER" or job.user == "mallory"
        assert job.id == "7"
    hooks.run("epilog", {**honest, **hostile})
    if variable != "SLURM_JOB_ID":
        ended = ended_job(job, (hooks.jobs / "7.ended").read_text())
        assert ended.exit_code == (None if variable == "SLURM_JOB_EXIT_CODE2" else 1)
    checked = hooks.run("health-check", {**honest, **hostile}).stdout
    assert checked == b"unfit\n"
    left = {path.name for path in hooks.jobs.iterdir()} if hooks.jobs.exists() else set()
    assert left <= {"7.started", "7.ended"}
    assert not hooks.ran.exists()
    log = (hooks.folder / "log").read_bytes()
    assert not re.search(rb"[\x00-\x1f\x7f]", log)


def test_nothing_of_the_environment_reaches_what_a_hook_runs_but_what_it_lists(hooks: Hooks) -> None:
    run = f"() {{ touch {hooks.ran}; }}"
    hostile = {
        **{f"BASH_FUNC_{name}%%": run for name in ("env", "timeout", "printf", "cut", "tr", "rm", "[", "test")},
        "ENV": str(hooks.folder / "evil"), "BASH_ENV": str(hooks.folder / "evil"), "PATH": str(hooks.folder / "evil_bin"),
        "IFS": "/=7", "CDPATH": "/", "GLOBIGNORE": "*", "POSIXLY_CORRECT": "1", "LC_ALL": "tr_TR.UTF-8", "TMPDIR": "/nowhere",
        "LD_LIBRARY_PATH": "/nowhere", "LD_BIND_NOW": "1", "PYTHONPATH": "/nowhere", "PYTHONSTARTUP": "/nowhere",
        "GPUFAULT_URL": "http://evil.example", "GPUFAULT_ASK_SLURMCTLD": "", "SLURM_SPANK_X": "1", "SPANK_X": "1",
        "jobs": "/nowhere", "job": "8", "reason": "x", "first": "0", "HTTP_PROXY": "http://evil.example",
    }  # fmt: skip
    (hooks.folder / "evil").write_text(f"touch {hooks.ran}\n")
    (hooks.folder / "evil_bin").mkdir()
    for name in ("env", "timeout", "gpufault", "logger", "cut", "sh", "mkdir"):
        hooks.write(hooks.folder / "evil_bin" / name, f"#!/bin/sh\ntouch {hooks.ran}\n")
    for name in NAMES:
        hooks.run(name, hostile)
        entries = (hooks.folder / "environment").read_bytes().split(b"\0")[:-1]
        names = {entry.partition(b"=")[0].decode() for entry in entries}
        listed = set(PASSED.findall((HOOKS / name).read_text()))
        assert names - listed <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "GPUFAULT_ASK_SLURMCTLD"}, name
    assert not hooks.ran.exists()
    assert hooks.started().id == "7"


@pytest.mark.heavy
@pytest.mark.parametrize("stuck", [("scontrol",), ("scontrol", "logger", "gpufault")])
def test_a_hook_ends_whatever_ignores_its_signals(hooks: Hooks, stuck: tuple[str, ...]) -> None:
    seconds = f"3600.{os.getpid()}{time.monotonic_ns()}"
    for name in stuck:
        hooks.command(name, f"trap '' TERM HUP INT; sleep {seconds} & sleep {seconds}")
    for name in NAMES:
        before = time.monotonic()
        hooks.run(name, {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "gpu-[07-08]", "SLURMD_NODENAME": "gpu-07"})
        assert time.monotonic() - before < 20  # 4 s, and what a busy machine needs
    assert {path.name for path in hooks.jobs.iterdir()} == {"7.started", "7.ended"}
    eventually(lambda: not any(seconds.encode() in line for line in command_lines()))


def command_lines() -> list[bytes]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:
            continue
    return lines


@pytest.mark.parametrize("forged", ["uid=0\n", "x\n", "job=8\n", "name=a\rb\n", "=\n"])
def test_a_file_that_no_hook_writes_is_refused(forged: str) -> None:
    text = f"job=7\ntime=1\nuid=1000\nname=x\n{forged}complete=1\n"
    with pytest.raises(Forged):
        started_job("7", text)
    with pytest.raises(Forged):
        ended_job(NodeJob(raw_id="7", id="7"), text)
