"""Refreshes: `gpufault correlate` as a process of its own, what became of it, and the status of the service.

A process, since arrays and DuckDB take gigabytes that only its end gives back, since it can be ended when it hangs, and
since whatever happens to it leaves the service, and its last result, as they are.
"""

import contextlib
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.config.fleet import FleetConfig
from exporter.core.text.redact import redact
from exporter.fleet.results.to_json import to_json
from exporter.fleet.review.lost_hours import LostHours
from exporter.fleet.statistics.findings import Correlation

# Why a refresh gave no result: the journals or the API could not be read; what was asked makes no sense; it took too
# long; a signal ended it, as the kernel's does when memory is short; our own bug.
SOURCE, CONFIGURATION, TIMEOUT, KILLED, INTERNAL = REASONS = (
    "source", "configuration", "timeout", "killed", "internal",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A refresh that gave no result: one of REASONS, and what to tell a person."""

    reason: str
    message: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """What web side and metrics show. Times are Unix seconds.

    `result` is what the last refresh that gave one left, at `result_time`, and `lost` the GPU-hours lost in its window.
    `failure` is that of the last refresh, where it gave none. `complete_time` is when a result last lacked nothing.
    """

    result: Correlation | None = None
    lost: LostHours | None = None
    result_time: float = 0.0
    complete_time: float | None = None
    tag: str = ""  # changes with the result
    failure: Failure | None = None
    refreshes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    duration: float = 0.0
    running: bool = False
    reload_ok: bool = True
    reload_time: float = 0.0
    web_config_ok: bool | None = None  # None: there is no such file
    web_config_time: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The result as the contract's Correlation JSON."""
        assert self.result is not None
        return to_json(self.result, self.lost.to_json() if self.lost else None)

    @property
    def changed(self) -> float:
        """When what the API answers last became another."""
        return max(self.result_time, self.failure.time if self.failure else 0.0)

    @property
    def entity_tag(self) -> str:
        """Names what the API answers, its age aside."""
        failed = f"{self.failure.reason} {self.failure.time}" if self.failure else ""
        return hashlib.blake2b(f"{self.tag} {failed}".encode(), digest_size=12).hexdigest()


COMMAND = (sys.executable, "-m", "exporter.cli.main", "correlate")
NICE = 10  # a scrape or a probe goes before it where there is one core
STDERR_TAIL_BYTES = 4096  # of what it wrote on stderr, from the end
END_SECONDS = 5.0  # from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A refresh that ended. `result` and `lost` are as in FleetStatus; without a result `reason` is one of REASONS."""

    result: Correlation | None = None
    lost: LostHours | None = None
    reason: str = ""
    message: str = ""
    seconds: float


def arguments(config: FleetConfig, findings_file: Path, output: Path, journal: Path | None = None) -> list[str]:
    """What `gpufault correlate` is asked. journal: a folder to read instead of what the configuration names."""
    asked = [
        "--format=pickle",
        f"--output={output}",
        f"--window={config.window:.0f}s",
        f"--findings.file={findings_file}",
    ]
    asked += [
        f"--signatures.dir={folder}" for folder in config.signatures.dirs if folder.exists()
    ]  # or later, as a node
    asked += [f"--places={glob}" for glob in config.places]
    lost = config.lost.model_dump(exclude_none=True)
    asked += [f"--lost.{name.replace('_', '-')}={value}" for name, value in lost.items()]
    if journal or config.journal:
        return [f"--journal={journal or config.journal}", *asked]
    assert config.prometheus is not None  # the command line refuses a service without a source
    given = config.prometheus.model_dump(exclude={"url"}, exclude_none=True)
    asked += [f"--prometheus.{name.replace('_', '-')}={value}" for name, value in given.items()]
    return [f"--prometheus={config.prometheus.url}", *asked]


class Refresh:
    """A running refresh. `folder` is private, for its output and messages."""

    def __init__(self, asked: Sequence[str], folder: Path, output: Path, *, timeout: float) -> None:
        """Start it. Raises OSError where no process can be started."""
        self._output = output
        self._stderr_path = folder / "stderr"
        self._timeout = timeout
        self._started = time.monotonic()
        self._output.unlink(missing_ok=True)
        # Flags that the environment gives are in the configuration already; twice they would count twice.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUFAULT_") and k != "NOTIFY_SOCKET"}
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                [*COMMAND, *asked], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, cwd=folder,
                env=environment | {"PYTHONSAFEPATH": "1", "TMPDIR": str(folder)},
            )  # fmt: skip
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICE)

    def ended(self) -> Outcome | None:
        """The outcome; None while it runs. Returns at once."""
        code = self._process.poll()
        seconds = time.monotonic() - self._started
        if code is not None:
            return self._outcome(code, seconds)
        if seconds < self._timeout:
            return None
        self.end()
        message = f"took longer than {self._timeout:.0f} s and was ended; raise refresh.timeout, or shorten the window"
        return Outcome(reason=TIMEOUT, message=message, seconds=seconds)

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _outcome(self, code: int, seconds: float) -> Outcome:
        message = self._error_output()
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
            why = "; most likely memory was short" if -code == signal.SIGKILL else ""
            return Outcome(reason=KILLED, message=f"ended by {name}{why}", seconds=seconds)
        if code in (0, 1) and self._output.exists():
            try:
                result, lost = pickle.loads(self._output.read_bytes())  # noqa: S301 - our own process, in our private folder
                return Outcome(result=result, lost=lost, seconds=seconds)
            except Exception as error:
                return Outcome(reason=INTERNAL, message=f"its answer cannot be read: {error}", seconds=seconds)
        if message.startswith("gpufault: internal error") or code not in (1, 2, 3):
            return Outcome(reason=INTERNAL, message=message or f"ended with code {code}", seconds=seconds)
        return Outcome(reason=SOURCE if code == 3 else CONFIGURATION, message=message, seconds=seconds)

    def _error_output(self) -> str:
        """What it wrote on stderr, its last part, without secrets."""
        with self._stderr_path.open("rb") as stderr:
            stderr.seek(max(stderr.seek(0, os.SEEK_END) - STDERR_TAIL_BYTES, 0))
            text = stderr.read().decode(errors="backslashreplace").strip()
        return redact(text.removeprefix("gpufault: ") if "internal error" not in text else text)
