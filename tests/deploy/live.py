"""A bare Debian that has been started: systemd is its process 1, so units, their hardening and systemctl are real."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.bare import CERTIFICATES, Bare, pip_conf
from tests.e2e.conftest import eventually
from tests.support.programs import missing

TOOLS = ("debootstrap", "nsenter", "slirp4netns", "systemd-nspawn", "unshare")
MISSING = missing(*TOOLS) + [path for path in ("/dev/net/tun",) if not Path(path).exists()]
if os.geteuid() != 0:
    MISSING.append("root")
PACKAGES = ("ca-certificates", "dbus", "systemd", "systemd-sysv")  # what every installed Debian has
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RESOLVER = "10.0.2.3"  # slirp4netns(1): it asks whom the host asks


class Live:
    """`shell` types something there, as root."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self._leader = leader

    def shell(self, script: str, folder: str = "/root") -> str:
        """What it says, all of which must do well. Questions are answered with yes."""
        environment = ["HOME=/root", "USER=root", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive", PATH]
        typed = ["bash", "-e", "-o", "pipefail", "-c", f"cd {folder}\n{script}"]
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as yes:
            done = subprocess.run(
                ["nsenter", f"--target={self._leader}", "--all", "env", "-i", *environment, *typed],
                check=False, stdin=yes.stdout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            yes.kill()
        assert done.returncode == 0, f"{script}: {done.stdout}"
        return done.stdout


def prepared(bare: Bare, folder: Path, *more: str) -> Path:
    """A root that can be started, and reach what this machine reaches; with what is named installed."""
    bare.copied(folder, *PACKAGES, *more)
    shutil.copy(CERTIFICATES, folder / CERTIFICATES.relative_to("/"))
    (folder / "etc/pip.conf").write_text(pip_conf())
    (folder / "etc/resolv.conf").write_text(f"nameserver {RESOLVER}\n")
    return folder


@contextmanager
def started(root: Path) -> Iterator[Live]:
    """It has a network of its own, so no port of this machine is taken, and sees this machine's kernel log."""
    command = [
        "unshare",
        "--net",
        "systemd-nspawn",
        "--quiet",
        f"--directory={root}",
        f"--machine=gpufault-{os.getpid()}",
    ]
    command += ["--boot", "--register=no", "--keep-unit", "--console=pipe"]
    command += ["--capability=all", "--system-call-filter=syslog", "--bind=/dev/kmsg"]
    with (root.parent / f"{root.name}.console").open("wb") as console:
        machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    network = None
    try:
        leader = eventually(lambda: _leader(machine.pid), seconds=60)
        network = subprocess.Popen(
            ["slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", str(leader), "tap0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        live = Live(root, leader)
        live.shell(
            "until systemctl is-active --quiet multi-user.target && ip=$(grep tap0 /proc/net/route); do sleep 0.2; done"
        )
        yield live
    finally:
        machine.send_signal(signal.SIGTERM)  # an orderly end: systemd-nspawn(1)
        try:
            machine.wait(timeout=90)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
        if network is not None:
            network.terminate()
            network.wait()


def _leader(machine: int) -> int | None:
    """Process 1 of the machine, once it is systemd."""
    children = Path(f"/proc/{machine}/task/{machine}/children").read_text().split()
    return next((int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "systemd\n"), None)
