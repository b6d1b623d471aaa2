"""Builds the parts of the daemon from the configuration, the packs and the stored state, at the start and at each reload."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.config.plain import journal_folder
from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import NodeJob
from exporter.core.diagnosis.attribution import attribute
from exporter.core.diagnosis.deaths import explains_job_end, reports_signal
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.facts.gpus import Gpu
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Incident, Match, SourceKind
from exporter.daemon import handover, source_factory
from exporter.daemon.handover import Stored
from exporter.daemon.transaction import Keeper, Row
from exporter.node.attribution import Attribution, EnvironmentOf
from exporter.node.gpu_processes import GpuProcesses
from exporter.node.handled_errors import HandledErrors
from exporter.node.job_deaths import Crashes
from exporter.node.job_folder import JobFolder
from exporter.node.pod_devices import PodDevices
from exporter.node.silent_jobs import SilentJobs
from exporter.sources.base import Source
from exporter.sources.calls import Lanes
from exporter.sources.node_jobs import NodeJobs
from exporter.sources.reader_thread import ReadApart, ReaderThread

if TYPE_CHECKING:
    from exporter.config.node import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts of the daemon: sources read lines, the pipeline matches them, incidents collect the matches.

    moved: rows of logs that moved from one source to another, to store with the next commit.
    """

    config: Config
    catalogue: Catalogue
    sources: Sequence[Source]
    pipeline: Pipeline
    incidents: IncidentTracker
    node_jobs: NodeJobs
    silent_jobs: SilentJobs
    attribution: Attribution
    thread: ReaderThread
    moved: Sequence[Row] = ()

    def attributed(
        self, matches: Sequence[Match], gpus: Sequence[Gpu], environment_of: EnvironmentOf
    ) -> Sequence[Match]:
        """The matches with the jobs and the GPUs that this node names for them."""
        return self.attribution.attached(matches, gpus, environment_of, self.node_jobs.only)

    def job_shown(self, record: Mapping[str, Any]) -> str | None:
        """The job of an incident that /metrics may show."""
        return record["job"]["id"] if record["job"] and self.config.limits.job_series else None

    def silent(self, now: float, processes: GpuProcesses) -> list[Match]:
        """What logs show by their end or their silence: crashes, and jobs that use a GPU and print nothing."""
        after = self.config.incidents.silent_after
        silent = self.silent_jobs.look(now, after, processes.jobs, self.node_jobs.last_writes)
        over = {name for job in self.attribution.over(now) for name in job.names}
        return [*self.pipeline.ended(over, now), *self.pipeline.silent(now), *silent]

    def crashes_of(self, job: NodeJob) -> Crashes:
        """What the job's open crashes say of its death, settled or not."""

        def is_of_job(incident: Incident) -> bool:
            named = attribute(incident).job
            return named is not None and not job.names.isdisjoint({named.id, named.raw_id})

        crashes = self.incidents.crashes_of(is_of_job)
        explaining = (incident.signature for incident in crashes if explains_job_end(incident, self.catalogue))
        return Crashes(
            signatures=list(dict.fromkeys(explaining)),
            by_signal=any(reports_signal(incident, self.catalogue) for incident in crashes),
        )

    def close(self) -> None:
        """Close the sources. What does not answer is left alone."""
        for source in self.sources:
            source.close()
        self.thread.end([source.source.close for source in self.sources if isinstance(source, ReadApart)])

    def keepers(self) -> dict[str, Keeper]:
        """The parts with rows in the state file, by the name of their key space."""
        of_sources: dict[str, Keeper] = {handover.space_of(source.name): source for source in self.sources}
        return {**of_sources, "logs": self.pipeline, "incidents": self.incidents}

    @property
    def journal_folder(self) -> Path:
        return journal_folder(self.config)

    @property
    def source_kinds(self) -> set[SourceKind]:
        return {"kernel" if item.kind == "kmsg" else "job" for item in self.config.sources}


def assemble(
    config: Config,
    catalogue: Catalogue,
    stored: Stored,
    *,
    node: str,
    first_start: bool,
    warn: Callable[[str], None],
    wake: Callable[[], None],
    lanes: Lanes,
    clock: Callable[[], float],
) -> Assembly:
    """Build all parts with their stored state. A source continues where the previous one of its name stopped."""
    moved = source_factory.moved(config, stored)
    stored = handover.changed(stored, moved)
    pipeline = Pipeline(
        catalogue,
        engine=config.signatures.engine,
        utc_offset=time.localtime().tm_gmtoff,
        line_bytes=config.limits.line_bytes,
        window=config.incidents.window,
        clock=time.thread_time,  # CPU time: a log is not to blame for a busy machine
    )
    pipeline.restore(stored.get("logs", {}))
    window, settle = config.incidents.window, config.incidents.settle
    incidents = IncidentTracker(catalogue, node, window=window, settle=settle, stored=stored.get("incidents", {}))
    node_jobs = NodeJobs()
    thread = ReaderThread(lanes, wake)
    sources = source_factory.build(
        config, stored, node=node, first_start=first_start, say=warn, wake=wake, node_jobs=node_jobs, thread=thread
    )
    devices = PodDevices(config.jobs.pod_resources)
    attribution = Attribution(
        config.facts.rootfs / "proc", JobFolder(config.jobs.dir), devices, lanes=lanes, clock=clock
    )
    incidents.is_handled = HandledErrors(catalogue, attribution.job_of, pipeline.went_on, incidents.incidents)
    return Assembly(
        config=config,
        catalogue=catalogue,
        sources=sources,
        pipeline=pipeline,
        incidents=incidents,
        node_jobs=node_jobs,
        silent_jobs=SilentJobs(clock()),
        attribution=attribution,
        thread=thread,
        moved=moved,
    )
