"""A job that hangs is in the metrics as a line, and never an incident."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import structlog

from exporter.config import packs
from exporter.config.node import Config
from exporter.daemon.daemon import Daemon
from exporter.node.facts import NodeFacts
from exporter.probes import Gathered
from exporter.store.state import State


def test_a_silent_job_is_context_and_no_incident(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/slurm-4711.out").write_text("epoch 1\n")
    config = Config.model_validate(
        {
            "state_dir": str(tmp_path / "state"),
            "sources": [{"kind": "files", "paths": [f"{tmp_path}/jobs/*.out"]}],
            "facts": {"processes": None},
        }
    )
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    log = structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=quiet)
    state = State(config.state_dir)
    passed = 0.0
    daemon = Daemon(
        config, packs.load([]), state, node="n", log=log, clock=lambda: time.time() + passed,
        facts=NodeFacts(config.facts, {}, lambda: Gathered(facts={}, failed={}, gpus=())),
    )  # fmt: skip

    def lines() -> float:
        families = {family.name: family.samples for family in daemon.snapshot().families}
        return families.get("gpufault_lines_matched_total", {}).get(("job_silent", "job"), 0.0)

    daemon.begin()
    daemon.watch.processes.jobs = frozenset({"slurm 4711"})  # as a search of the processes reports
    for passed in (60.0, 1700.0, 1900.0, 1960.0, 4000.0):
        daemon.step()
        daemon.commit(time.time() + passed)
        assert lines() == (1.0 if passed >= 1900 else 0.0)
    incidents = {family.name: family.samples for family in daemon.snapshot().families}["gpufault_incidents_total"]
    assert not any(incidents.values())
    daemon.finish()
    state.close()
