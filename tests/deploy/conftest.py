"""What tests of what is deployed share: the daemon that the end-to-end tests start, the package of this checkout, and a
machine of its own for whoever follows a page."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy import bare, live
from tests.deploy.bare import Bare, built_package, said
from tests.deploy.live import Live
from tests.e2e.conftest import make_node

__all__ = ["make_node"]


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills, once for all workers of pytest: the others wait for it."""
    of_worker = factory.getbasetemp()
    shared = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / name).exists():
            unfinished = shared / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(shared / name)
    return shared / name


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = once(tmp_path_factory, "package", built_package)
    return next(folder.glob("*.deb"))


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """To be copied."""
    return Bare(once(tmp_path_factory, "debian", bare.debian))


@pytest.fixture(scope="session")
def machine_root(tmp_path_factory: pytest.TempPathFactory, debian: Bare) -> Path:
    return once(tmp_path_factory, "machine", lambda folder: live.prepared(debian, folder, "prometheus"))


@pytest.fixture
def machine(machine_root: Path, tmp_path: Path) -> Iterator[Live]:
    """A node with a Prometheus on it, under the names that the pages use."""
    root = tmp_path / "machine"
    said("cp", "--archive", machine_root, root)
    with live.started(root) as machine:
        machine.shell("apt-get update")
        machine.shell("echo 127.0.0.1 gpu-07 prometheus.example.org >>/etc/hosts")
        yield machine
    shutil.rmtree(root)
