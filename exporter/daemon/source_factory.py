"""Builds the sources of a configuration. The only place that knows all kinds of sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from exporter.config.accounts import uids_of
from exporter.core.decoding import jobs
from exporter.daemon.handover import Row, Stored, handed_over, space_of
from exporter.sources.base import Source
from exporter.sources.boot import this_boot
from exporter.sources.files.discovery import FilesSettings
from exporter.sources.files.leases import Leases
from exporter.sources.files.source import FilesSource
from exporter.sources.kernel.kernel_log import KmsgSource
from exporter.sources.node_jobs import NodeJobs, runs_slurm_job
from exporter.sources.reader_thread import ReaderThread, ThreadedSource
from exporter.sources.systemd.units import JournaldSource

if TYPE_CHECKING:
    from exporter.config.node import Config, FilesConfig


def build(
    config: Config,
    stored: Stored,
    *,
    node: str | None,
    first_start: bool,
    warn: Callable[[str], None],
    wake: Callable[[], None],
    node_jobs: NodeJobs | None = None,
    thread: ReaderThread | None = None,
) -> list[Source]:
    """The sources in the configuration's order, each with the positions stored under its name.

    node: None for a look that must not claim logs which other nodes watch too. thread: reads the files of logs.
    """
    sources: list[Source] = []
    node_jobs = node_jobs or NodeJobs()
    of_files = settings_of_all(config)
    for item in config.sources:
        if item.kind == "files":
            positions = stored.get(space_of(item.name), {})
            job_of = _job_of(item)
            sources.append(
                FilesSource(
                    item.name,
                    of_files[item.name],
                    stored=positions,
                    first_start=first_start,
                    job_of=job_of,
                    log=warn,
                    wake=wake,
                    node_jobs=node_jobs,
                    leases=_leases(item, config, node, job_of),
                )
            )
        elif item.kind == "kmsg":
            name = "kmsg" if item.path is None else f"kmsg:{item.path}"
            sources.append(KmsgSource(item.mode, item.path, stored.get(space_of(name), {}), log=warn))
        else:
            sources.append(JournaldSource(item.units, stored.get(space_of("journald"), {}), node_jobs=node_jobs))
    files = [source for source in sources if isinstance(source, FilesSource)]
    for source in files:
        source.share_with(files)
    if thread is None:
        return sources
    return [ThreadedSource(source, thread) if isinstance(source, FilesSource) else source for source in sources]


def moved(config: Config, stored: Stored) -> list[Row]:
    """The changes of the state to make before `build`, so that logs which moved to another source continue there."""
    return handed_over({name: settings.globs() for name, settings in settings_of_all(config).items()}, stored)


def settings_of_all(config: Config) -> dict[str, FilesSettings]:
    """The settings of all sources by name, in the configuration's order."""
    alone = {item.name: _settings(item, config) for item in config.sources if item.kind == "files"}
    every = tuple(alone.values())  # a log belongs to the first source that names it
    return {name: replace(settings, earlier=every[:at]) for at, (name, settings) in enumerate(alone.items())}


def _settings(item: FilesConfig, config: Config) -> FilesSettings:
    return FilesSettings(
        paths=tuple(item.paths),
        exclude=tuple(item.exclude),
        format=item.format,
        start=item.start,
        allow_roots=tuple(item.allow_roots),
        line_bytes=config.limits.line_bytes,
        open_files=config.limits.open_files,
        watch=item.watch == "auto",
        service_accounts=uids_of(item.service_accounts),
    )


def _leases(item: FilesConfig, config: Config, node: str | None, job_of: jobs.JobOf) -> Leases | None:
    if item.shared is None or node is None:
        return None

    def runs_here(path: str) -> bool:
        job = job_of(path)
        return job is not None and runs_slurm_job(job.id, config.facts.rootfs)

    machine = blake2b(f"{this_boot()} {config.state_dir}".encode(), digest_size=8).hexdigest()
    return Leases(str(item.shared / item.name), node, runs_here, machine=machine)


def _job_of(item: FilesConfig) -> jobs.JobOf:
    if item.job == "auto":
        return jobs.job_of
    return jobs.no_job if item.job == "none" else jobs.by_pattern(item.job.pattern)
