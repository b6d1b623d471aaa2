"""What the node shows beside its logs: facts, drivers' answers, processes that use GPUs, and the scheduler's jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from exporter.core.decoding.job_files import NodeJob
from exporter.core.facts.driver_answer import DriverAnswer
from exporter.core.model import Match
from exporter.node.driver_probe import DriverProbe
from exporter.node.facts import NodeFacts
from exporter.node.gpu_processes import GpuProcesses
from exporter.node.heartbeat import Heartbeat
from exporter.node.job_attribution import JobAttribution
from exporter.node.job_folder import JobFolder
from exporter.node.pod_devices import PodDevices
from exporter.sources.boot import moment
from exporter.sources.calls import Lanes
from exporter.sources.node_jobs import NodeJobs

if TYPE_CHECKING:
    from exporter.config.node import Config, FactsConfig


class NodeWatch:
    """The probes of one node. Call `use` before anything else."""

    attribution: JobAttribution

    def __init__(self, node: str, facts: NodeFacts, settings: FactsConfig, now: float) -> None:
        self.node = node
        self.facts = facts
        self.facts.refresh(now, wait=True)
        self.processes = GpuProcesses()
        self._driver = DriverProbe()
        self._heartbeat = Heartbeat(settings, now)
        self._settings = settings

    def use(self, config: Config, node_jobs: NodeJobs, lanes: Lanes, clock: Callable[[], float]) -> None:
        """Apply settings. node_jobs: the jobs whose logs the sources read."""
        self._settings = config.facts
        self._node_jobs = node_jobs
        devices = PodDevices(config.jobs.pod_resources)
        self.attribution = JobAttribution(
            config.facts.rootfs / "proc", JobFolder(config.jobs.dir), devices, lanes=lanes, clock=clock
        )

    def ended_jobs(self, now: float) -> list[NodeJob]:
        """Read processes and the scheduler's jobs if it is due. Returns the jobs that ended since the last call."""
        return self.attribution.refresh(now)

    def refresh(self, now: float, open_faults: frozenset[str]) -> tuple[bool, DriverAnswer | None]:
        """Whether facts changed, and a new answer of the driver. open_faults: those that the driver may clear."""
        changed = self.facts.refresh(now)
        answer = self._driver.poll(now, self.facts.vendors if self._settings.ask_driver else (), open_faults)
        if answer:
            changed |= self.facts.driver_says(answer, now)
        return changed, answer

    def sample_processes(self, now: float) -> bool:
        """Search processes and sample the GPUs, each if it is due. Whether a heartbeat is due, too."""
        if self.facts.vendors:
            self.processes.refresh(now, self._settings.processes)
        return self._heartbeat.sample(now, self._settings, self.facts.gpus, self.processes)

    def attached(self, matches: Sequence[Match]) -> list[Match]:
        """The matches with their jobs, their GPUs and the facts of their processes."""
        environment_of, only_job = self.processes.facts_of, self._node_jobs.only
        return self.processes.attached(self.attribution.attached(matches, self.facts.gpus, environment_of, only_job))

    def failed(self) -> dict[str, str]:
        """What could not be read: the name of the probe and the reason."""
        return {
            **self.facts.failed,
            **self._driver.failed,
            **self.processes.failed,
            **self.attribution.failed,
        }

    def facts_record(self, now: float) -> dict[str, Any]:
        return self.facts.record(self.node, moment(now))

    def heartbeat_record(self, now: float) -> dict[str, Any]:
        return self._heartbeat.record(self.node, now, self.facts.gpus)
