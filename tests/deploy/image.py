"""The image, built from the Dockerfile by buildah without an engine, on a base that debootstrap makes."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.bare import Bare, pip_conf
from tests.deploy.kubernetes import ROOT, Object

COMMITTED = 1_700_000_000  # stands for the time of a commit
BASE = "localhost/gpufault-base"
PACKAGES = ("ca-certificates", "python3", "python3-venv")


@dataclass(frozen=True)
class Image:
    """`config` as in the OCI image specification, `root` its file system."""

    digest: str
    config: Object
    root: Path


class Builder:
    """buildah with a store of its own: nothing of ours is seen by, or left with, the machine's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pip = folder / "pip.conf"
        self._pip.write_text(pip_conf())

    def buildah(self, *command: str | Path) -> str:
        where = ("--root", self._folder / "store", "--runroot", self._folder / "run", "--storage-driver", "vfs")
        done = subprocess.run(["buildah", *map(str, (*where, *command))], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"buildah {command[0]}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout.strip()

    def base(self, debian: Bare) -> None:
        """A Debian of this machine's release with nothing but Python."""
        container = self.buildah("from", "scratch")
        root = debian.copied(Path(self.buildah("mount", container)), *PACKAGES).folder
        for folder in ("var/cache/apt/archives", "var/lib/apt/lists", "var/log"):
            shutil.rmtree(root / folder)
            (root / folder).mkdir()
        self.buildah("commit", "--quiet", "--rm", container, BASE)

    def build(self, name: str) -> Image:
        """The image of the checkout."""
        self.buildah(
            "bud", "--quiet", "--isolation", "chroot", "--timestamp", str(COMMITTED), "--build-arg", f"BASE_IMAGE={BASE}",
            "--volume", f"{self._pip}:/etc/pip.conf:ro", "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--tag", name, ROOT,
        )  # fmt: skip
        told = json.loads(self.buildah("inspect", "--type", "image", name))
        root = Path(self.buildah("mount", self.buildah("from", name)))
        return Image(digest=told["FromImageDigest"], config=told["OCIv1"]["config"], root=root)

    def remove(self) -> None:
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
