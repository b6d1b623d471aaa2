"""A bare Debian in a folder, and the node's package to install on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy.tools import tool
from tests.support.programs import missing

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "deploy/packages/build.py"
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "help2man", "debootstrap", "unshare", "chroot")
NFPM = tool("nfpm")
MISSING = missing(*TOOLS) + ([] if NFPM else ["nfpm"])
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Of pip's own settings, where packages come from: a root of its own has to go the same way as whoever runs the tests.
PIP_SETTINGS = ("index-url", "extra-index-url", "cert", "trusted-host", "default-timeout", "proxy")


def said(*command: str | Path) -> str:
    """What a command says. It must do well."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


def built_package(folder: Path) -> Path:
    """The node's package, of this checkout."""
    said(sys.executable, "-P", "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    assert NFPM
    said(sys.executable, "-P", BUILD, wheel, folder, "gpufault", "--nfpm", NFPM)
    (built,) = folder.glob("*.deb")
    return built


def debian(folder: Path) -> Bare:
    """Made by debootstrap, of this machine's release and from where apt has it."""
    sites = said(
        "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {_codename()}"
    )
    said("debootstrap", "--variant=minbase", _codename(), folder, sites.split()[0])
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    return Bare(folder)


class Bare:
    """A Debian of its essential packages and apt, in a folder that everybody may enter: the daemon's user has to get in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for above in (folder, *folder.parents[:2]):
            above.chmod(0o755)

    def copied(self, folder: Path, *more: str) -> Bare:
        """Another one, with what is named installed."""
        said("cp", "--archive", f"{self.folder}/.", folder)
        copy = Bare(folder)
        if more:
            copy.said("apt-get", "update", "--quiet")
            copy.said("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *more)
        return copy

    def inside(self, *command: str, user: str = "root") -> list[str]:
        """The command that runs another one in there, with a /proc that goes with it."""
        enter = 'mount -t proc proc "$0/proc" && exec chroot --userspec="$1" "$0" "${@:2}"'
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        return ["unshare", "--mount", "bash", "-c", enter, str(self.folder), user, "env", "-i", path, *command]

    def said(self, *command: str) -> str:
        return said(*self.inside("env", "DEBIAN_FRONTEND=noninteractive", *command))

    def has(self, path: str) -> bool:
        return os.path.lexists(self.folder / path.lstrip("/"))


def pip_conf() -> str:
    """This machine's settings of pip that hold in another root too, as its file."""
    listed = said(sys.executable, "-m", "pip", "config", "list")
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in found.items() if name in PIP_SETTINGS), ""])


def _codename() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("VERSION_CODENAME="))
