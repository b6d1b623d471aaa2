"""What tests of what is deployed share: the daemon that the end-to-end tests start, the package of this checkout, and a
machine of its own for whoever follows a page."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import live
from tests.deploy.bare import built_package, said
from tests.deploy.live import Live
from tests.e2e.conftest import make_node

__all__ = ["make_node"]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_package(tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="session")
def machine_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live.prepared(tmp_path_factory.mktemp("live") / "base", "prometheus")


@pytest.fixture
def machine(machine_root: Path) -> Iterator[Live]:
    """A node with a Prometheus on it, under the names that the pages use."""
    root = machine_root.with_name("machine")
    said("cp", "--archive", machine_root, root)
    with live.started(root) as machine:
        machine.shell("apt-get update")
        machine.shell("echo 127.0.0.1 gpu-07 prometheus.example.org >>/etc/hosts")
        yield machine
    shutil.rmtree(root)
