"""What tests of what is deployed share: the daemon that the end-to-end tests start, and the package of this checkout."""

from pathlib import Path

import pytest

from tests.deploy.bare import built_package
from tests.e2e.conftest import make_node

__all__ = ["make_node"]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_package(tmp_path_factory.mktemp("deb"))
