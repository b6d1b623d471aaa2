"""A release of this checkout, built once, and the places where it would be published, on this machine."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.deploy.bare import BUILD, said
from tests.deploy.conftest import debian
from tests.deploy.tools import tool
from tests.support.monitoring import free_port

__all__ = ["debian"]

ROOT = BUILD.parents[2]
VERSION = "7.8.9"
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This commit as somebody tags it, with a changelog that names the version."""
    folder = tmp_path_factory.mktemp("checkout") / "gpufault"
    said("git", "clone", "--quiet", ROOT, folder)
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]", f"## [{VERSION}]", 1))
    said(*GIT, "-C", folder, "commit", "--quiet", "--all", "--message", "changelog: release")
    said(*GIT, "-C", folder, "tag", f"v{VERSION}")
    return folder


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where images and charts would go: HOST:PORT."""
    crane = tool("crane")
    assert crane
    address = f"127.0.0.1:{free_port()}"
    command = [crane, "registry", "serve", "--address", address, "--disk", tmp_path_factory.mktemp("registry")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield address
        process.terminate()


def built(checkout: Path, registry: str, folder: Path, *options: str | Path) -> Path:
    """The files of the release, as `make release` builds them."""
    said(
        sys.executable, checkout / "deploy/release/build.py", f"v{VERSION}", folder, "--helm", str(tool("helm")),
        "--registry", registry, "--site", "https://docs.test", "--repository", "https://git.test", "--security", "s@test",
        *options,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory, checkout: Path, registry: str) -> Path:
    return built(
        checkout, registry, tmp_path_factory.mktemp("release") / "files", "--packages", "--nfpm", str(tool("nfpm"))
    )


@pytest.fixture(scope="session")
def index(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index (PEP 503) that has this release and nothing else."""
    folder = tmp_path_factory.mktemp("index") / "simple/gpufault"
    folder.mkdir(parents=True)
    files = [*release.glob("*.whl"), release / f"gpufault-{VERSION}.tar.gz"]
    for path in files:
        shutil.copy(path, folder)
    (folder / "index.html").write_text("".join(f'<a href="{path.name}">{path.name}</a>\n' for path in files))
    with served(folder.parents[1]) as address:
        yield f"{address}/simple"
