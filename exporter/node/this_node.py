"""What a scan or an explanation may ask the node that it runs on: its facts, and its kernel log."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import JOBS_FOLDER
from exporter.core.diagnosis.incidents import condense, may_explain
from exporter.core.diagnosis.links import is_linked
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Incident, Match
from exporter.node.job_attribution import JobAttribution
from exporter.node.job_folder import JobFolder
from exporter.node.pod_devices import PodDevices
from exporter.probes import gather
from exporter.sources.kernel.kernel_log import KmsgSource


class KernelLog(NamedTuple):
    """incidents: with their jobs, as far as the node knows them. unread: why it could not be read; empty if it was."""

    incidents: tuple[Incident, ...] = ()
    unread: str = ""

    def linked_to(self, of_logs: Iterable[Incident], catalogue: Catalogue, window: float) -> list[Incident]:
        """Those that concern the jobs of these incidents: other jobs' faults are not a scan's business."""
        jobs = [incident for incident in of_logs if incident.first.source == "job"]
        return [
            kernel
            for kernel in self.incidents
            if any(
                may_explain(kernel, job, window) and is_linked(job, kernel, catalogue, shares_node=True) for job in jobs
            )
        ]


class ThisNode:
    """facts: the node's. jobs: the folder of the scheduler's hooks. kernel: opens the kernel log."""

    def __init__(
        self,
        *,
        jobs: Path = Path(JOBS_FOLDER),
        kernel: Callable[[], KmsgSource] = lambda: KmsgSource("auto", None, {}),
    ) -> None:
        gathered = gather(environ=os.environ)
        self.facts: Mapping[str, str] = gathered.facts
        self._gpus = gathered.gpus
        self._kernel = kernel
        self._attribution = JobAttribution(Path("/proc"), JobFolder(jobs), PodDevices(None))

    def kernel_log(self, pipeline: Pipeline, window: float) -> KernelLog:
        """What the kernel says, from its ring buffer or the journal. It is read with this pipeline."""
        source = self._kernel()
        try:
            matches = self._matches(source, pipeline)
            unread = source.stats.down_reason
        finally:
            source.close()
        self._attribution.refresh(time.time())
        attached = self._attribution.attached(matches, self._gpus, lambda _: {}, lambda: None)
        return KernelLog(tuple(condense(attached, window, pipeline.catalogue.repeats)), unread)

    def _matches(self, source: KmsgSource, pipeline: Pipeline) -> Sequence[Match]:
        matches: list[Match] = []
        now, is_stuck = time.time(), False
        while chunks := [chunk for chunk in source.poll(now) if chunk.data]:
            consumed = left = 0
            for chunk in chunks:
                done = pipeline.process(chunk)
                source.advance(chunk.log, done.consumed, done.newlines)
                matches += done.matches
                consumed += done.consumed
                left += len(chunk.data) - done.consumed
            if is_stuck and not consumed:
                break  # an unfinished line
            is_stuck = not consumed
            if left:  # what waits for lines behind it is offered as the end once time has passed
                now += 60.0
        return matches
