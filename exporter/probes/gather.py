"""Runs all probes at once with a timeout: neither a dead network mount nor a hung driver can block it."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.facts.conclude import with_derived_facts
from exporter.core.facts.gpus import Gpu, merge_gpus
from exporter.core.facts.mounts import is_service_home
from exporter.probes.base import Host, Probe, ProbeResult
from exporter.probes.table import PROBES


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts of a machine. `failed`: probe → why its facts are missing or incomplete."""

    facts: Mapping[str, str]
    failed: Mapping[str, str]
    gpus: tuple[Gpu, ...]


def gather(
    rootfs: Path = Path("/"),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] = {},
    timeout_seconds: float = 0.2,
    probes: Mapping[str, Probe] = PROBES,
) -> Gathered:
    """The facts of the machine below `rootfs`, in at most `timeout_seconds`.

    `home` is a home folder of jobs on the machine. Default: $HOME of `environ` unless it is a service's, else the first
    mount at or below /home. Fleets with other homes (/users, /g/g0) must configure it.
    """
    at_home = str(home) if home else environ.get("HOME", "")
    known_home = at_home if home or not is_service_home(at_home) else None
    # A probe that hangs since an earlier call is not started again: at most one thread of each is lost.
    hanging = {thread.name for thread in threading.enumerate()}
    runs = {name: _Run(name, probe, Host(rootfs, known_home)) for name, probe in probes.items()}
    deadline = time.monotonic() + timeout_seconds
    for run in runs.values():
        if run.name not in hanging:
            run.start()

    found: list[ProbeResult] = []
    failed: dict[str, str] = {}
    for name, run in runs.items():
        if run.name in hanging:
            failed[name] = "still hangs since an earlier call"
            continue
        run.join(max(0.0, deadline - time.monotonic()))
        if run.is_alive():
            failed[name] = f"no answer within {timeout_seconds:g} s"
            continue
        found.append(run.found)
        if run.problems:
            failed[name] = _one_line(run.problems)

    facts = {fact: value for each in reversed(found) for fact, value in each.facts.items()}
    gpus = merge_gpus(gpu for each in found for gpu in each.gpus)
    return Gathered(facts=with_derived_facts(facts, gpus), failed=failed, gpus=gpus)


class _Run(threading.Thread):
    """One running probe, in a daemon thread, which ends with the process even while it hangs.

    Waiting for a dead NFS server is killable (TASK_KILLABLE, Linux 2.6.25). A helper process would hang as long, start in
    50 ms instead of 0.1, and a daemon with threads must not fork without exec.
    """

    def __init__(self, name: str, probe: Probe, host: Host) -> None:
        super().__init__(name=f"probe {name} of {host.root}", daemon=True)
        self._probe = probe
        self._host = host
        self.found = ProbeResult()
        self.problems = host.problems

    def run(self) -> None:
        try:
            self.found = self._probe.ask(self._host)
        except Exception as error:  # one probe must not hide the others; reported in Gathered.failed
            self.problems.append(f"{type(error).__name__}: {error}")


def _one_line(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return " ".join(problems[0].split()) + more
