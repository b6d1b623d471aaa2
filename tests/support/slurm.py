"""A real Slurm of one node, as root, without control groups: munged, slurmctld and slurmd in a folder of their own.

Nothing of it is shared with another one beside it, nor with the machine's: configuration, key, sockets, ports, spool.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.programs import missing, reason

T = TypeVar("T")

PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "sbatch", "srun", "scontrol", "squeue", "setpriv")
NODE = "gpu-07"
RUNNING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"}
# Twice as long as it takes on a machine that eight others share.
START_SECONDS = 60.0

CONFIGURATION = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# The node says that it has more than the machine, so that several jobs run at once on two cores.
SlurmdParameters=config_overrides
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=16 RealMemory=65536 State=UNKNOWN {gpus}
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP
MaxArraySize=1001
ReturnToService=2
KillWait=1
"""


def why_not() -> str:
    """Why no Slurm can run here; empty if one can."""
    if absent := missing(*PROGRAMS):
        return reason(absent)
    return "" if os.geteuid() == 0 else "needs root: slurmd starts jobs as their users"


@dataclass(frozen=True)
class Slurm:
    """A Slurm that runs. Commands that are given its `environment` talk to it."""

    folder: Path  # open to every user, as jobs are theirs; what it keeps itself lies below it too

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def run(self, *command: str, text: str = "") -> str:
        """What a command says. It must do well."""
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, input=text, env=self.environment, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """The id of a new batch job."""
        return self.run("sbatch", "--parsable", *options, text=f"#!/bin/sh\n{script}\n")

    def states(self, job: str) -> list[str]:
        """The states of a job, or of each task of an array."""
        return self.run("squeue", "--noheader", "--array", "--states=all", f"--jobs={job}", "--format=%T").split()

    def ended(self, job: str, seconds: float = 60.0) -> list[str]:
        """Wait for a job's end; its states then, such as ["COMPLETED"]."""

        def states() -> list[str] | None:
            now = self.states(job)
            return now if now and not RUNNING & set(now) else None

        return _seen(states, seconds, lambda: f"job {job} is {self.states(job)}\n{self.logs()}")

    def node(self) -> tuple[str, str]:
        """State and reason of the node, such as ("idle", "none"); ("drained", "Prolog error")."""
        state, _, reason = self.run("sinfo", "--noheader", "--Node", "--format=%T %E").partition(" ")
        return state, reason

    def logs(self) -> str:
        """What its programs wrote, for a test that fails."""
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.folder.glob("*.log")))


@contextlib.contextmanager
def slurm_of(*lines: str, gpus: int = 0) -> Iterator[Slurm]:
    """A Slurm with these lines in its configuration besides. Its jobs end with it, and no process stays behind.

    gpus: how many it hands out; none of them exists.
    """
    if why := why_not():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: a socket's path has 107 bytes
        folder = Path(name)
        folder.chmod(0o755)
        slurm = Slurm(folder)
        _configure(folder, lines, gpus)
        started: list[subprocess.Popen[bytes]] = []
        try:
            _start(slurm, started)
            yield slurm
        finally:
            _stop(folder, started)


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm for all tests of a session."""
    with slurm_of() as running:
        yield running


def _configure(folder: Path, lines: tuple[str, ...], gpus: int) -> None:
    for number in range(gpus):
        (folder / f"gpu{number}").symlink_to("/dev/null")  # slurmd wants a device
    if gpus:
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{gpus - 1}]\n")
        lines = ("GresTypes=gpu", *lines)
    for name in ("state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))
    controller_port, node_port = _free_ports(2)
    text = CONFIGURATION.format(
        cluster=folder.name,
        host=socket.gethostname().partition(".")[0],
        folder=folder,
        node=NODE,
        controller_port=controller_port,
        node_port=node_port,
        gpus=f"Gres=gpu:{gpus}" if gpus else "",
    )
    (folder / "slurm.conf").write_text(text + "".join(f"{line}\n" for line in lines))


def _start(slurm: Slurm, started: list[subprocess.Popen[bytes]]) -> None:
    folder = slurm.folder

    def start(*command: str) -> None:
        with (folder / f"{command[0]}.out.log").open("ab") as log:
            # Should pytest be killed, its children go too.
            wrapped = ("setpriv", "--pdeathsig=KILL", *command)
            started.append(
                subprocess.Popen(wrapped, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=slurm.environment)
            )

    def told() -> str:
        return slurm.logs()

    # --force: it warns of a folder in /tmp instead of refusing it.
    files = [f"--{what}={folder}/munge.{end}" for what, end in MUNGE_FILES.items()]
    start("munged", "--foreground", "--force", "--num-threads=2", *files)
    _seen(lambda: (folder / "munge.socket").exists() or None, START_SECONDS, told)
    start("slurmctld", "-D", "-i")
    start("slurmd", "-D")

    def idle() -> bool | None:
        assert all(process.poll() is None for process in started), told()
        sinfo = ("sinfo", "--noheader", "--format=%T")
        done = subprocess.run(sinfo, check=False, capture_output=True, text=True, env=slurm.environment, timeout=30)
        return done.stdout.strip() == "idle" or None

    _seen(idle, START_SECONDS, told)


MUNGE_FILES = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def _stop(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(started):
        process.terminate()
    for process in reversed(started):
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def none_left() -> bool | None:
        left = processes_of(folder)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left or None

    _seen(none_left, 20.0, lambda: f"{processes_of(folder)} do not end")


def processes_of(folder: Path) -> list[int]:
    """Who belongs to the Slurm in this folder: jobs by their environment, slurmstepd (which writes its title over its
    environment) by the log that it holds open.
    """
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _belongs(pid, folder)]


def _belongs(pid: int, folder: Path) -> bool:
    if pid == os.getpid():
        return False
    try:
        if f"SLURM_CONF={folder}/".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return True
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(os.readlink(descriptor.path).startswith(f"{folder}/") for descriptor in descriptors)
    except OSError:  # it has ended
        return False


def _free_ports(number: int) -> list[int]:
    """Ports that nobody has now. All are held before one is given back, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [int(sock.getsockname()[1]) for sock in sockets]


def _seen(look: Callable[[], T | None], seconds: float, told: Callable[[], str]) -> T:
    deadline = time.monotonic() + seconds
    while (seen := look()) is None:
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {seconds:g} s: {told()}")
        time.sleep(0.1)
    return seen
