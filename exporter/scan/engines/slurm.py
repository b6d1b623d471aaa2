"""Workers as tasks of Slurm job arrays, submitted through submitit.

A job has ended if squeue says so or its result file exists. submitit would ask sacct, which needs a database that many
clusters lack.
"""

from __future__ import annotations

import getpass
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.scan.engines.base import Unusable
from exporter.scan.work import Done, Item, OtherVersion, Recipe, read_batch

DEFAULT_FOLDER = "~/.cache/gpufault/slurm"  # homes are shared between the nodes of most clusters
DEFAULT_WORKERS = 64
TASK_SECONDS = 240.0  # what a task should take: Slurm needs seconds to start one, and ten minutes are much to lose
ASSUMED_RATE = 100 << 20  # bytes a second of one task, until it has been measured
TIME_LIMIT_MINUTES = 60
GATHER_SECONDS = 0.2  # of quiet, after which what was submitted goes out as one array
POLL_SECONDS = 1.0
# How long a result may come after its job has ended: attributes of NFS are kept for up to 60 s, of a folder that is
# looked at afresh for less; and how long squeue may fail before nobody is believed to be there.
GRACE_SECONDS = 30.0
SILENCE_SECONDS = 300.0
LIVE = frozenset(
    [
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "RESIZING",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "RESV_DEL_HOLD",
    ]
)


class LostJob(Exception):
    """A job ended without a result."""


@dataclass(slots=True)
class _Running:
    job: Any
    future: Future[Done]
    ended: float | None = None  # when it was first seen to have ended, or to be unknown


class Slurm:
    """An executor that submits pending batches together, as a job array."""

    span_bytes = 256 << 20
    batch_bytes = int(ASSUMED_RATE * TASK_SECONDS)
    batch_seconds = TASK_SECONDS
    remote = True

    def __init__(
        self,
        folder: str,
        options: Mapping[str, str],
        *,
        workers: int = DEFAULT_WORKERS,
        task_bytes: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """options: those of sbatch, such as partition and account. Raises Unusable."""
        try:
            import submitit
        except ImportError:
            from exporter.process.extras import how_to_install

            raise Unusable(f"--engine slurm needs the extra slurm; {how_to_install('slurm')}") from None
        missing = [program for program in ("sbatch", "squeue", "srun", "scancel") if not shutil.which(program)]
        if missing:
            raise Unusable(f"there is no {missing[0]} here; run it on a machine of the cluster that submits jobs")
        if task_bytes:
            self.batch_bytes, self.batch_seconds = task_bytes, 0.0
        self.width = 2 * workers
        self.refill = workers
        self._grace_seconds = grace_seconds
        above = Path(folder).expanduser()
        above.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="scan-", dir=above))  # ours alone: results are unpickled
        self._executor = _executor(submitit, self.folder, options, workers)
        self._failed: type[Exception] = submitit.core.utils.UncompletedJobError
        self._keep = self._closing = False
        self._new: queue.SimpleQueue[tuple[Future[Done], Recipe, Sequence[Item]]] = queue.SimpleQueue()
        self._running: list[_Running] = []
        self._answered = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="slurm", daemon=True)
        self._thread.start()

    def submit(self, recipe: Callable[[], Recipe], items: Sequence[Item]) -> Future[Done]:
        future: Future[Done] = Future()
        self._new.put((future, recipe(), items))
        return future

    def loss(self, error: BaseException) -> str:
        if isinstance(error, Unusable):
            raise error
        if isinstance(error, LostJob):
            self._keep = True
            return str(error)
        return ""

    def check(self) -> None:
        if time.monotonic() - self._answered > SILENCE_SECONDS:
            raise Unusable(f"squeue has failed for {SILENCE_SECONDS:g} s: does slurmctld answer?")

    def close(self, *, at_once: bool) -> None:
        self._closing = True
        if at_once:
            if jobs := sorted({running.job.job_id.partition("_")[0] for running in self._running}):
                command = ["scancel", *jobs]
                subprocess.Popen(  # noqa: S603 (our own jobs)
                    command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )
        else:
            self._thread.join()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _work(self) -> None:
        # Ctrl-C is for the scan: were sbatch to die of it, nobody would know its job.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while not self._closing:
            if gathered := self._gathered():
                self._send(gathered)
            self._look()

    def _gathered(self) -> list[tuple[Future[Done], Recipe, Sequence[Item]]]:
        found = []
        wait = POLL_SECONDS
        while True:
            try:
                found.append(self._new.get(timeout=wait))
            except queue.Empty:
                return found
            wait = GATHER_SECONDS

    def _send(self, gathered: Iterable[tuple[Future[Done], Recipe, Sequence[Item]]]) -> None:
        futures, recipes, items = zip(*gathered, strict=True)
        try:
            jobs = self._executor.map_array(_read, recipes, items)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            said = [line.strip(" '\"") for line in str(error).splitlines() if line.strip(" '\"")]
            problem = Unusable(f"sbatch refused the job: {said[-1] if said else error!r}; see --slurm.option")
            for future in futures:
                future.set_exception(problem)
            return
        self._running += [_Running(job, future) for job, future in zip(jobs, futures, strict=True)]

    def _look(self) -> None:
        if not self._running:
            self._answered = time.monotonic()
            return
        _refresh(self.folder)
        there = [r for r in self._running if r.job.paths.result_pickle.exists()]
        for running in there:
            self._take(running)
        self._running = [r for r in self._running if r not in there]
        states = self._states() if self._running else {}
        if states is None:
            return
        now = self._answered = time.monotonic()
        for running in self._running:
            state = states.get(running.job.job_id, "")
            if state in LIVE:
                running.ended = None
            elif running.ended is None:
                running.ended = now
            elif now - running.ended > self._grace_seconds:
                running.future.set_exception(LostJob(self._epitaph(running.job, state)))
        self._running = [r for r in self._running if not r.future.done()]

    def _take(self, running: _Running) -> None:
        job, future = running.job, running.future
        try:
            result = job.result()
        except self._failed as error:
            last = str(error).split("-" * 22)[-2].strip().splitlines()[-1:] if "-" * 22 in str(error) else [str(error)]
            if "UncompletedJobError" in last[0]:  # it was told that its time is up
                future.set_exception(
                    LostJob(f"Slurm job {job.job_id} ran out of time; give --slurm.option time=MINUTES")
                )
            else:
                self._keep = True
                future.set_exception(
                    Unusable(f"Slurm job {job.job_id} failed: {last[0]}; its log is {job.paths.stderr}")
                )
        else:
            if isinstance(result, OtherVersion):
                future.set_exception(result)
            else:
                future.set_result(result)
            for path in (job.paths.result_pickle, job.paths.submitted_pickle, job.paths.stdout, job.paths.stderr):
                path.unlink(missing_ok=True)

    def _states(self) -> Mapping[str, str] | None:
        """The states of this user's jobs by id; None if squeue fails."""
        command = ["squeue", "--noheader", "--array", "--states=all", f"--user={getpass.getuser()}", "--format=%i %T"]
        try:
            done = subprocess.run(  # noqa: S603 (our own command)
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)

    def _epitaph(self, job: Any, state: str) -> str:
        message = f"Slurm job {job.job_id} ended ({state or 'squeue knows it no more'}) without a result"
        if not job.paths.stderr.exists():
            return f"{message} or a log; is {self.folder} shared with its node? give --slurm.folder"
        last = job.paths.stderr.read_text(errors="replace").strip().splitlines()[-1:]
        return f"{message}: {last[0] if last else 'and it said nothing'}; its log is {job.paths.stderr}"


def _read(recipe: Recipe, items: Sequence[Item]) -> Done | OtherVersion:
    """Runs in a task. Returns an exception as a value: submitit would return only its text."""
    try:
        return read_batch(recipe, items)
    except OtherVersion as error:
        return error


def _executor(submitit: Any, folder: Path, options: Mapping[str, str], workers: int) -> Any:
    executor = submitit.SlurmExecutor(folder)
    known = executor._valid_parameters()
    given = {name.replace("-", "_"): int(value) if value.isdecimal() else value for name, value in options.items()}
    others = {name.replace("_", "-"): value for name, value in given.items() if name not in known}
    executor.update_parameters(
        **{"job_name": "gpufault-scan", "time": TIME_LIMIT_MINUTES, "array_parallelism": workers}
        | {name: value for name, value in given.items() if name in known}
        | ({"additional_parameters": others} if others else {})
    )
    return executor


def _refresh(folder: Path) -> None:
    """Make NFS read a folder again instead of using its cache."""
    try:
        folder.chmod(0o700)
    except OSError:
        os.listdir(folder)
