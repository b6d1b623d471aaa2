"""A job that hangs is in the metrics as a line, and never an incident."""

from __future__ import annotations

import time
from pathlib import Path

from exporter.config import packs
from exporter.config.node import Config
from tests.support.daemons import finish, quiet_daemon


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
    passed = 0.0
    daemon = quiet_daemon(config, packs.load([]), clock=lambda: time.time() + passed)

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
    finish(daemon)
