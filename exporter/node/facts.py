"""The facts of this node over time: gathered periodically in the background, stored with their history.

Diagnosis asks for the facts as of an incident's time. A probe that fails keeps its last values: a hung mount does not
make a node lose its GPUs.
"""

from __future__ import annotations

import bisect
import json
import math
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exporter.core.diagnosis.records import facts_record
from exporter.core.facts.driver_answer import DRIVER_FACTS, DriverAnswer, with_driver_gpus
from exporter.core.facts.gpus import Gpu, facts_of
from exporter.core.facts.parsing import distinct_values
from exporter.core.model import Moment, Vendor
from exporter.probes import PROBES, Gathered, gather

if TYPE_CHECKING:
    from exporter.config.node import FactsConfig

KEPT_CHANGES = 64  # facts change with a reboot or an upgrade: years of them
COMMAND_TIMEOUT_SECONDS = 5.0
PROBE_TIMEOUT_SECONDS = 2.0  # nobody waits, and under a full node a probe of 5 ms may take a second
DAY = 86400.0
MAX_VALUE = 256  # characters of a site's own fact


class NodeFacts:
    """The facts now (`facts`), as of a time (`at`), and what probes failed."""

    def __init__(
        self, settings: FactsConfig, stored: Mapping[str, str], gather_now: Callable[[], Gathered] | None = None
    ):
        self._settings = settings
        self._gather = gather_now or (
            lambda: gather(self._settings.rootfs, home=self._settings.home, timeout_seconds=PROBE_TIMEOUT_SECONDS)
        )
        self._history: list[tuple[float, dict[str, str]]] = sorted(
            filter(None, (_change(time, text) for time, text in stored.items())), key=lambda change: change[0]
        )
        self._unsaved: dict[str, str | None] = {}
        self._pending: Gathered | None = None
        self._gathered = Gathered(facts={}, failed={}, gpus=())
        self._driver_gpus: tuple[Gpu, ...] | None = None  # None: no driver has answered yet
        self._worker: threading.Thread | None = None
        self._hanging: dict[str, subprocess.Popen[bytes]] = {}  # commands, by the names of their facts
        self._asked: float | None = None
        self.failed: Mapping[str, str] = {}
        self.vendors: frozenset[Vendor] = frozenset()
        self.gpus: tuple[Gpu, ...] = ()
        self._addresses: frozenset[str] = frozenset()

    @property
    def facts(self) -> Mapping[str, str]:
        return self._history[-1][1] if self._history else {}

    def record(self, node: str, now: Moment) -> dict[str, Any]:
        """The current facts as a journal record."""
        return facts_record(self.facts, self.gpus, node, now)

    def at(self, time: float) -> Mapping[str, str]:
        """The facts as of a time; the earliest known facts for times before them."""
        index = bisect.bisect_right([since for since, _ in self._history], time)
        return self._history[max(index - 1, 0)][1] if self._history else {}

    def has(self, gpu: str) -> bool:
        """Whether this node has a GPU at a PCI address; always True on a node without known GPUs."""
        return not self._addresses or gpu in self._addresses

    def use(self, settings: FactsConfig) -> None:
        """Change the settings. If they differ, the next gathering starts now."""
        if settings != self._settings:
            self._settings, self._asked = settings, None

    def refresh(self, now: float, *, wait: bool = False) -> bool:
        """Start gathering if it is due, and apply finished results. True if facts or cards changed."""
        running = self._worker is not None and self._worker.is_alive()
        # A clock set back by a year must not stop the refresh for a year, so a negative age counts as old.
        rests = self._asked is not None and 0 <= now - self._asked < self._settings.interval
        if not running and not rests:
            self._asked = now
            self._worker = threading.Thread(target=self._work, name="facts", daemon=True)
            self._worker.start()
        if wait and self._worker is not None:
            self._worker.join(PROBE_TIMEOUT_SECONDS + COMMAND_TIMEOUT_SECONDS * (1 + len(self._settings.commands)))
        if self._worker is None or self._worker.is_alive():
            return False
        gathered, self._pending = self._pending, None
        return gathered is not None and self._take(gathered, now)

    def driver_says(self, answer: DriverAnswer, now: float) -> bool:
        """Take in what the drivers say of the GPUs. True if facts or cards changed. One that fails keeps its last values."""
        if answer.gpus or not answer.failed:
            self._driver_gpus = answer.gpus
        return self._take(self._gathered, now)

    def unsaved(self) -> Mapping[str, str | None]:
        return self._unsaved

    def saved(self) -> None:
        self._unsaved = {}

    def _work(self) -> None:
        gathered = self._gather()
        facts, failed = dict(gathered.facts), dict(gathered.failed)
        for name, command in self._settings.commands.items():
            try:
                lines = (
                    self._output(name, command).decode(errors="replace").splitlines()
                )  # nvidia-smi: one for each GPU
                facts[name] = (distinct_values(line.strip() for line in lines) or "")[:MAX_VALUE]
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                failed[f"command {name}"] = str(error)
        facts.update(self._settings.extra)
        self._pending = Gathered(facts={k: v for k, v in facts.items() if v}, failed=failed, gpus=gathered.gpus)

    def _output(self, name: str, command: Sequence[str]) -> bytes:
        """What a command prints. One that hangs in the kernel cannot be killed: it is left alone, and not started again."""
        if (earlier := self._hanging.get(name)) is not None and earlier.poll() is None:
            raise subprocess.SubprocessError("still hangs since an earlier call")
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603 (the administrator's own)
        try:
            output, _ = child.communicate(timeout=COMMAND_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            self._hanging[name] = child
            raise
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, command)
        return output

    def _take(self, gathered: Gathered, now: float) -> bool:
        self.failed, self._gathered = gathered.failed, gathered
        gpus = with_driver_gpus(gathered.gpus, self._driver_gpus or ())
        moved = not gathered.failed and _cards(gpus) != _cards(self.gpus)
        self.gpus = gpus
        self.vendors = frozenset(v for g in gpus if (v := _vendor(g.vendor)))
        self._addresses |= {gpu.pci for gpu in gpus}  # one that has fallen off the bus was there
        facts = self._driver_facts() | dict(gathered.facts)
        if self.failed:
            facts = {**{name: value for name, value in self.facts.items() if not self._has_answer(name)}, **facts}
        facts |= self._gpus_lost(facts.get("gpu_count"), now)
        if facts == self.facts and self._history:
            return moved
        past = [
            change for change in self._history if change[0] < now
        ]  # no later ones: a clock that was set back told them
        kept = [*past, (now, facts)][-KEPT_CHANGES:]
        self._unsaved |= {repr(since): None for since, _ in self._history}
        self._unsaved |= {repr(since): json.dumps(then) for since, then in kept}
        self._history = kept
        return True

    def _driver_facts(self) -> dict[str, str]:
        """Facts from the drivers; until they answer, those of the previous run."""
        if not self._settings.ask_driver:
            return {}
        before = self.facts if "nvidia" in self.vendors else {}
        facts = before if self._driver_gpus is None else facts_of(self._driver_gpus)
        return {name: facts[name] for name in DRIVER_FACTS if name in facts}

    def _gpus_lost(self, count: str | None, now: float) -> dict[str, str]:
        """How many GPUs fewer there are than at most in the last day, as a fact."""
        if count is None or not count.isdecimal():
            return {}
        until = [*(since for since, _ in self._history[1:]), now]  # each change holds until the next one
        then = [facts.get("gpu_count", "") for _, facts in self._history]
        recent = [int(gpus) for gpus, end in zip(then, until, strict=False) if end >= now - DAY and gpus.isdecimal()]
        return {"gpus_lost": str(max([0, *(before - int(count) for before in recent)]))}

    def _has_answer(self, fact: str) -> bool:
        """Whether every probe of a fact has answered. Facts that are derived from several others have no probe."""
        probes = [name for name, probe in PROBES.items() if fact in probe.facts]
        return bool(probes) and not any(name in self.failed for name in probes)


def _cards(gpus: Iterable[Gpu]) -> list[tuple[str, str | None, str | None]]:
    return [(gpu.pci, gpu.identity, gpu.serial) for gpu in gpus]


def _change(time: str, text: str) -> tuple[float, dict[str, str]] | None:
    """A stored change; None if invalid."""
    try:
        since, facts = float(time), json.loads(text)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(facts, dict) and all(isinstance(value, str) for value in facts.values())
    return (since, facts) if whole and math.isfinite(since) else None


def _vendor(name: str | None) -> Vendor | None:
    match name:
        case "amd" | "intel" | "nvidia":
            return name
    return None
