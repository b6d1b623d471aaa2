"""A recorded machine: what a node with GPUs wrote while programs crashed on it, played to a real daemon in virtual time.

A recording is a folder, as `lab/record.py` makes it:
  machine.json   the node: wall time of its boot, its GPUs and its facts
  events.jsonl   one event a line, by time: {"t": Unix seconds} and one of
                 kmsg (a record in the form of /dev/kmsg) · log and text (what was appended to a job's log) ·
                 process, cgroup and ticks (a process was seen) · gone (a process ended) · hook and text (a file of Slurm's
                 prolog or epilog)
  jobs.jsonl     the programs and what is right for each
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from exporter.config import packs
from exporter.config.node import Config
from exporter.core.facts.gpus import Gpu
from exporter.daemon.daemon import Daemon
from exporter.node.facts import NodeFacts
from exporter.probes import Gathered
from exporter.store.state import State

ROUND = 0.5  # seconds between two rounds of an idle daemon
AFTER = 330.0  # seconds that the daemon goes on after the last event


@dataclass(frozen=True)
class Outcome:
    """What the daemon made of a recording: its journal, its metrics by name and labels, and the faults that it opened.

    seen: when each record was written, in seconds of the recording.
    """

    records: list[dict[str, Any]]
    metrics: dict[str, dict[tuple[str, ...], float]]
    faults: list[dict[str, Any]]
    seen: list[float]

    def incidents(self, **fields: Any) -> list[dict[str, Any]]:
        found = {record["id"]: record for record in self.records if record["kind"] == "incident"}  # grown ones again
        return [r for r in found.values() if all(r[name] == value for name, value in fields.items())]

    def of_job(self, job: str) -> list[dict[str, Any]]:
        """The incidents of a job that count."""
        return [r for r in self.incidents(role="root") if r["job"] and job in (r["job"]["id"], r["job"].get("raw_id"))]

    def deaths(self) -> dict[str, tuple[dict[str, Any], float]]:
        """The failed jobs as they were counted, each with the time at which it was."""
        pairs = zip(self.records, self.seen, strict=True)
        return {record["job"]["id"]: (record, at) for record, at in pairs if record["kind"] == "job_end"}


class RecordedMachine:
    """A node in a folder, with a virtual clock, on which a recording is played."""

    def __init__(self, recording: Path, folder: Path) -> None:
        self.recording, self.root = recording, folder / "root"
        self.machine = json.loads((recording / "machine.json").read_text())
        self.jobs = [json.loads(line) for line in (recording / "jobs.jsonl").read_text().splitlines()]
        self.now = 0.0
        for name in ("proc/2", "jobs", "logs"):
            (self.root / name).mkdir(parents=True)
        (self.root / "proc/2/comm").write_text("kthreadd\n")
        (self.root / "kmsg").touch()
        self._state = folder / "state"

    def events(self) -> Iterator[dict[str, Any]]:
        with (self.recording / "events.jsonl").open() as lines:
            yield from map(json.loads, lines)

    def play(self, monkeypatch: pytest.MonkeyPatch, **sections: Any) -> Outcome:
        """Play the recording to a daemon and let it go on until nothing more can come of it."""
        with self._virtual_time(monkeypatch):
            return self._play(sections)

    def _play(self, sections: dict[str, Any]) -> Outcome:
        events = list(self.events())
        self.now = events[0]["t"] - 1.0
        state = State(self._state)
        daemon = self._daemon(state, sections)
        seen: list[float] = []
        opened: dict[str, dict[str, Any]] = {}

        def advance(to: float) -> None:
            while self.now < to:
                self.now = min(to, self.now + ROUND)
                while daemon.step():
                    pass
                daemon.background()
                records = self._records()
                seen.extend([self.now] * (len(records) - len(seen)))
                for record in records:
                    if record["kind"] == "fault" and record["state"] == "open":
                        opened[record["incident"]] = record

        daemon.begin()
        for event in events:
            if event["t"] > self.now:
                advance(event["t"])
            self._apply(event)
        advance(self.now + AFTER)
        metrics = {family.name: dict(family.samples) for family in daemon.snapshot().families}
        daemon.finish()
        state.close()
        records = self._records()
        seen.extend([self.now] * (len(records) - len(seen)))
        return Outcome(records, metrics, list(opened.values()), seen)

    def _daemon(self, state: State, sections: dict[str, Any]) -> Daemon:
        config = Config.model_validate(
            {
                "node": "recorded",
                "state_dir": str(self._state),
                "sources": [
                    {"kind": "files", "paths": [f"{self.root}/logs/**/slurm-*.out"], "watch": "poll"},
                    {"kind": "kmsg", "path": f"{self.root}/kmsg"},
                ],
                "jobs": {"dir": str(self.root / "jobs")},
                "facts": {"processes": None, "rootfs": str(self.root)},
                **sections,
            }
        )
        gpus = tuple(Gpu(**gpu) for gpu in self.machine["gpus"])
        gathered = Gathered(facts=self.machine["facts"], failed={}, gpus=gpus)
        quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
        log = structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=quiet)
        facts = NodeFacts(config.facts, {}, lambda: gathered)
        return Daemon(config, packs.load([]), state, node="recorded", log=log, clock=lambda: self.now, facts=facts)

    def _apply(self, event: dict[str, Any]) -> None:
        if record := event.get("kmsg"):
            with (self.root / "kmsg").open("a", encoding="utf-8", errors="surrogateescape") as log:
                log.write(record + "\n")
        elif name := event.get("log"):
            path = self.root / "logs" / name
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as log:
                log.write(event["text"].encode("utf-8", "surrogateescape"))
            if "uid" in event and os.geteuid() == 0:
                os.chown(path, event["uid"], event["uid"])
            os.utime(path, (event["t"], event["t"]))
        elif pid := event.get("process"):
            process = self.root / "proc" / str(pid)
            process.mkdir(exist_ok=True)
            (process / "stat").write_text(f"{pid} (program) S 1 " + "0 " * 17 + f"{event['ticks']} 0 0\n")
            (process / "cgroup").write_text(f"0::{event['cgroup']}\n")
        elif pid := event.get("gone"):
            shutil.rmtree(self.root / "proc" / str(pid), ignore_errors=True)
        elif name := event.get("hook"):
            (self.root / "jobs" / name).write_text(event["text"])

    def _records(self) -> list[dict[str, Any]]:
        segments = sorted((self._state / "journal").glob("*.jsonl"))
        return [json.loads(line) for path in segments for line in path.read_text().splitlines()]

    @contextmanager
    def _virtual_time(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        booted, real = float(self.machine["booted"]), time.clock_gettime
        clocks = (time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC_RAW)

        def since_boot(clock: int) -> float:
            return self.now - booted if clock in clocks else real(clock)

        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: self.now)
            patch.setattr(time, "monotonic", lambda: self.now - booted)
            patch.setattr(time, "clock_gettime", since_boot)
            yield
