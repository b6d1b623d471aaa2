"""Rows of the state file as another version, a half-failed disk or a curious hand left them: the daemon starts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.config.node import FactsConfig
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.matching.log_state import dump_context
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import NO_CONTEXT
from exporter.metrics.counters import METRICS, Counters
from exporter.node.facts import NodeFacts
from exporter.probes import Gathered
from exporter.sources.files.discovery import FilesSettings
from exporter.sources.files.source import FilesSource
from exporter.sources.kernel.kernel_log import KmsgSource
from exporter.sources.systemd.units import JournaldSource
from tests.e2e.conftest import Node
from tests.support.matches import catalogue_of

CATALOGUE = catalogue_of("signatures: [{id: gpu_fault, patterns: ['GPU fault']}]\npack: test")
PIPELINE = Pipeline(CATALOGUE)

KEYS = st.sampled_from(
    ["incident", "told", "contexts", "matches", "facts", "marks", "open", "offset", "line", "job", "ranks"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
TEXTS = st.text(max_size=20) | VALUES.map(json.dumps)
NAMES = st.sampled_from(["0", "1", "1.5", "nan", "-1", "é", "files /x#1", "cursor"]) | st.text(max_size=5)
ROWS = st.dictionaries(NAMES, TEXTS, max_size=4)


def files(rows: dict[str, str]) -> object:
    settings = FilesSettings(
        paths=("/nowhere/*.log",),
        exclude=(),
        format="auto",
        start="end",
        allow_roots=(),
        line_bytes=16384,
        open_files=8,
    )
    return FilesSource(
        "files", settings, stored=rows, first_start=False, job_of=lambda _: None, log=lambda _: None, wake=lambda: None
    )


def restored(rows: dict[str, str]) -> object:
    pipeline = Pipeline(CATALOGUE, engine="python")
    pipeline.restore(rows)
    return pipeline


READERS: dict[str, Callable[[dict[str, str]], object]] = {
    "logs": restored,
    "incidents": lambda rows: IncidentTracker(CATALOGUE, "n", window=60.0, settle=15.0, stored=rows),
    "facts": lambda rows: NodeFacts(FactsConfig(), rows, lambda: Gathered(facts={}, failed={}, gpus=())).at(0.0),
    "source files": files,
    "source kmsg": lambda rows: KmsgSource("file", "/nowhere", rows),
    "source journald": lambda rows: JournaldSource(["*"], rows),
}


@pytest.mark.parametrize("space", READERS)
@example(rows={"0": "[Infinity]", "1": "[" * 10_000})
@given(rows=ROWS)
def test_rows_that_cannot_be_read_are_as_good_as_none(space: str, rows: dict[str, str]) -> None:
    READERS[space](rows)


@given(
    rows=st.dictionaries(
        st.tuples(st.sampled_from([*METRICS][:8]) | st.text(max_size=5), TEXTS), st.floats(allow_nan=False), max_size=4
    )
)
def test_counters_that_cannot_be_read_are_as_good_as_none(rows: dict[tuple[str, str], float]) -> None:
    families = Counters(rows).families()
    assert all(len(labels) == len(METRICS[name].labels) for name, series in families.items() for labels in series)
    assert all(isinstance(label, str) for series in families.values() for labels in series for label in labels)


def test_a_context_that_was_stored_is_read_as_it_was() -> None:
    pipeline = Pipeline(CATALOGUE, engine="python")
    pipeline.restore({"log": json.dumps(dump_context(NO_CONTEXT))})
    assert pipeline.unsaved() == {}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path, [])
    yield node
    if node.process is not None and node.process.poll() is None:
        node.kill()


def test_the_daemon_starts_on_a_state_of_garbage_and_counts(node: Node) -> None:
    node.start()
    assert node.stop() == 0
    with closing(sqlite3.connect(node.folder / "state/state.sqlite")) as db, db:
        for space in READERS:
            for name, text in (("0", "{"), ("x", '{"a": 1}'), ("1.5", "[1, 2"), ("2", "[" * 200_000)):
                db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (space, name, text))
        db.execute("INSERT INTO counters VALUES ('gpufault_incidents_total', '{', 1)")
        db.execute("INSERT INTO counters VALUES ('gpufault_incidents_total', '[1, 2]', 1)")
        db.execute("INSERT INTO outbox (record) VALUES ('no JSON')")
    node.start()
    assert "gpufault_build_info" in node.get("/metrics")
    assert node.stop() == 0
