"""A daemon that claims another node's name, against the real service's puller and store, over restarts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from exporter.config.pull import PullConfig
from exporter.fleet.history.store import Store
from exporter.fleet.pull.pods import Pods
from exporter.fleet.pull.puller import Puller
from exporter.fleet.pull.target_discovery import TargetDiscovery
from exporter.store.journal import Journal
from exporter.web.readers import Readers
from exporter.web.routes import router
from tests.support.kubernetes_api import KubernetesApi
from tests.web.serving import Node

from .nodes import Nodes, address_of, incident, serving_nodes

HOST = "gpufault.gpu.svc"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with serving_nodes(tmp_path / "nodes") as found:
        yield found


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes whose addresses the headless service has."""
    found: list[int] = []
    real = socket.getaddrinfo

    def resolve(host: str, port: Any, *more: Any, **options: Any) -> list[Any]:
        if host != HOST:
            return real(host, port, *more, **options)
        return [(2, 1, 6, "", (address_of(number), port)) for number in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return found


def daemon(nodes: Nodes, number: int, name: str, records: int) -> Node:
    """The daemon at an address, with a journal of records that name `name`."""
    folder = nodes.folder / f"{number}-{name}"
    journal = Journal(folder, 1 << 20)
    nodes.closing.append(journal.close)
    journal.append([incident(name, 1000 * number + at) for at in range(records)])
    node = Node(journal_folder=folder, name=name)
    nodes.apps[address_of(number)] = router(node, "/metrics", Readers(everyone=True))
    return node


def service(nodes: Nodes, store: Path) -> tuple[Store, Callable[[], Puller]]:
    """One life of the service: it searches and pulls once, and stores what it found."""
    config = PullConfig.model_validate({"dns": [f"{HOST}:{nodes.port}"], "dns_names": "daemon", "timeout": "5s"})
    history = Store(store)

    def live() -> Puller:
        puller = Puller(config, structlog.wrap_logger(structlog.PrintLogger()))
        history.read_once(puller)
        history.read_once(puller)
        puller.close(5.0)
        return puller

    return history, live


def ids(history: Store, node: str) -> list[str]:
    return [
        row["id"] for row in history.rows("SELECT id FROM incident_rows WHERE node = $node ORDER BY id", {"node": node})
    ]


@pytest.mark.parametrize("liar", [1, 7], ids=["sorts first", "sorts last"])
def test_a_claim_to_anothers_name_does_not_win_after_a_restart(
    nodes: Nodes, listed: list[int], tmp_path: Path, liar: int
) -> None:
    listed += [3, liar]
    daemon(nodes, 3, "n3", 2)
    daemon(nodes, liar, "n7", 1)
    history, live = service(nodes, tmp_path / "history.duckdb")
    live()
    assert (len(ids(history, "n3")), len(ids(history, "n7"))) == (2, 1)
    daemon(nodes, liar, "n3", 5)  # compromised while the service is down
    puller = live()
    honest = [f"n3-{3000 + at}" for at in range(2)]
    assert ids(history, "n3") == honest
    assert puller.counts.gaps["refused_name"] == 1
    (gap,) = history.rows("SELECT what, time FROM gaps WHERE kind = 'refused_name'", {})
    assert abs(gap["time"] - time.time()) < 3600  # not the monotonic clock's
    assert f"{address_of(liar)} claims to be node n3, which is at {address_of(3)}; it has spoken for n7" in gap["what"]
    listed.remove(3)  # nor while the honest one is down
    live()
    assert ids(history, "n3") == honest
    daemon(nodes, 4, "n3", 3)  # whose pod is replaced
    listed.append(4)
    live()
    assert ids(history, "n3") == honest + [f"n3-{4000 + at}" for at in range(3)]
    history.close()


def test_kubernetes_says_which_node_an_address_is_on(nodes: Nodes, listed: list[int]) -> None:
    """Whatever the daemon there says: it is not asked."""
    listed += [3, 7, 9]
    api = KubernetesApi()
    try:
        api.pods = {
            ("gpu", "a"): api.pod("gpu", "a", "n3", address_of(3)),
            ("gpu", "b"): api.pod("gpu", "b", "n7", address_of(7)),
            ("gpu", "old"): api.pod("gpu", "old", "n1", address_of(7), phase="Succeeded"),
            ("other", "c"): api.pod("other", "c", "n9", address_of(9)),
        }
        token = nodes.folder / "token"
        token.parent.mkdir(exist_ok=True)
        token.write_text("first")
        config = PullConfig(dns=[f"{HOST}:{nodes.port}"], dns_names="kubernetes")
        discovery = TargetDiscovery(config, pods=Pods.at(api.url, token, None, "gpu"))
        discovered = discovery.find()
        assert {name: each.base for name, each in (discovered.targets or {}).items()} == {
            f"n{number}": f"http://{address_of(number)}:{nodes.port}" for number in (3, 7)
        }
        assert f"no running pod in namespace gpu has the address {address_of(9)}" in str(discovered.problems)
        assert nodes.requests == []
        api.rights -= {("list", "pods")}
        after = discovery.find()
        assert (set(after.targets or ()), "403" in str(after.problems)) == ({"n3", "n7"}, True)
    finally:
        api.close()
