"""Nodes for tests of what is deployed: the daemon that the end-to-end tests start."""

from tests.e2e.conftest import make_node

__all__ = ["make_node"]
