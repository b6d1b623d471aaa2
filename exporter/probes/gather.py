"""Asking all probes at once, and being held up by none: neither by a network mount whose server is gone, nor by a GPU
whose driver hangs.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.facts.conclude import with_derived_facts
from exporter.core.facts.gpus import Gpu, merge_gpus
from exporter.core.facts.mounts import is_service_home
from exporter.probes.base import Found, Host, Probe
from exporter.probes.table import PROBES


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts of a machine. `failed`: probe → why it could tell nothing, or not all; the rest is as good as ever."""

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
    """The facts of the machine below `rootfs`, in at most `timeout_seconds`, since all probes run at once.

    `home` is a home folder of jobs, as the machine names it. Without it, $HOME of `environ` is taken, unless it is a
    service's: then we run as some user, most likely inside a job. Else it is the first mount at or below /home. A fleet
    whose homes are elsewhere (/users, /g/g0) has to say so.
    """
    at_home = str(home) if home else environ.get("HOME", "")
    known_home = at_home if home or not is_service_home(at_home) else None
    # A probe that still hangs from an earlier call is not started again: at most one thread of each is ever lost.
    hanging = {thread.name for thread in threading.enumerate()}
    runs = {name: _Run(name, probe, Host(rootfs, known_home)) for name, probe in probes.items()}
    deadline = time.monotonic() + timeout_seconds
    for run in runs.values():
        if run.name not in hanging:
            run.start()

    found: list[Found] = []
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
    """One probe at work, in a daemon thread.

    Not in a helper process: a thread starts in 0.1 ms, an interpreter in 50, and a daemon that has threads must not
    fork without exec. Nor would a process help: it hangs just as long as a thread does. What matters is that neither
    keeps us from ending: a wait for a dead NFS server is killable (TASK_KILLABLE, Linux 2.6.25), and a daemon thread
    ends with its process.
    """

    def __init__(self, name: str, probe: Probe, host: Host) -> None:
        super().__init__(name=f"probe {name} of {host.root}", daemon=True)
        self._probe = probe
        self._host = host
        self.found = Found()
        self.problems = host.problems

    def run(self) -> None:
        try:
            self.found = self._probe.ask(self._host)
        except Exception as error:  # one probe must not hide the others; it is told in Gathered.failed
            self.problems.append(f"{type(error).__name__}: {error}")


def _one_line(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return " ".join(problems[0].split()) + more
