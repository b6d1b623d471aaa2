"""Many node daemons behind one real web server: each address of loopback, 127.0.N.M, is a node with a journal of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.config.pull import PullConfig
from exporter.store.journal import SEGMENTS, Journal
from exporter.web.active_config import ActiveConfig
from exporter.web.readers import Readers
from exporter.web.routes import router
from exporter.web.serving import RunningServer, serve
from tests.web.serving import TIMEOUT, Node

NOW = 1_780_000_000.0


def name_of(number: int) -> str:
    return f"n{number}"


def address_of(number: int) -> str:
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


def incident(node: str, number: int, /, **more: Any) -> str:
    """A record as a daemon writes it: the number is in its id."""
    record = {
        "kind": "incident",
        "time": NOW - 10_000 + number,
        "node": node,
        "id": f"{node}-{number}",
        "signature": "s",
    }
    return json.dumps(record | more)


@dataclass
class Nodes:
    """Nodes by address. `instead`: what answers for a node in place of its daemon."""

    folder: Path
    segment_bytes: int = 4096
    apps: dict[str, ASGIApp] = field(default_factory=dict)
    journals: dict[int, Journal] = field(default_factory=dict)
    instead: dict[int, ASGIApp] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0
    ending: threading.Event = field(default_factory=threading.Event)
    closing: list[Callable[[], None]] = field(default_factory=list)

    def add(self, number: int) -> Journal:
        folder = self.folder / name_of(number)
        self.journals[number] = journal = Journal(folder, self.segment_bytes * SEGMENTS)
        self.apps[address_of(number)] = router(Node(journal_folder=folder), "/metrics", Readers(everyone=True))
        return journal

    def write(self, number: int, first: int, count: int, **more: Any) -> None:
        journal = self.journals.get(number) or self.add(number)
        journal.append([incident(name_of(number), at, **more) for at in range(first, first + count)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        host = request.headers["host"].partition(":")[0]
        self.requests.append(request.url.path)
        numbers = {address_of(number): number for number in self.instead}
        app = self.instead[numbers[host]] if host in numbers else self.apps[host]
        await app(scope, receive, send)

    def target_file(self, *others: Mapping[str, Any]) -> Path:
        """In Prometheus' format: names are labels."""
        path = self.folder / "targets.json"
        numbers = sorted({*self.journals, *self.instead})
        groups = [
            {"targets": [f"{address_of(number)}:{self.port}"], "labels": {"node": name_of(number)}}
            for number in numbers
        ]
        new = path.with_suffix(".new")
        new.write_text(json.dumps([*groups, *others]))
        new.replace(path)
        return path

    def config(self, **more: Any) -> PullConfig:
        return PullConfig.model_validate(
            {"files": [str(self.target_file())], "interval": "30s", "timeout": "5s", **more}
        )


@contextmanager
def serving_nodes(folder: Path, active_config: ActiveConfig | None = None, **more: Any) -> Iterator[Nodes]:
    nodes = Nodes(folder, **more)
    server: RunningServer = serve(["0.0.0.0:0"], nodes, active_config)
    nodes.port = int(server.addresses[0].rpartition(":")[2])
    try:
        yield nodes
    finally:
        nodes.ending.set()
        for close in (*nodes.closing, *(journal.close for journal in nodes.journals.values())):
            close()
        server.close(TIMEOUT)
