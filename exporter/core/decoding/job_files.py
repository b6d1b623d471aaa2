"""What a scheduler's hooks write about the jobs of a node: one file when a job starts, one when it has ended.

`KEY=VALUE` lines. The last line of a whole file is `complete=1`; without it the file is still being written. A user chooses
some values: a key that is there twice, or another job's number, makes the file invalid.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from exporter.core.model import Job
from exporter.core.text.phrases import printable

JOBS_FOLDER = "/run/gpufault/jobs"  # unless configured otherwise, here and for the hooks
MAX_BYTES = 8192
MAX_VALUE = 1024
STARTED, ENDED = ".started", ".ended"  # the endings of the files' names, behind the job's number
_NAME = re.compile(r"(\d{1,10})(\.started|\.ended)")
_LINE = re.compile(r"([a-z_]{1,32})=([^\x00-\x1f\x7f]*)")


class Incomplete(ValueError):
    """The file is still being written, or not one of ours."""


class Forged(ValueError):
    """The file is whole, and a hook does not write such a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A job on this node, as the scheduler's hooks tell. `raw_id` is Slurm's number, `id` that of sacct (100_3).

    `gpus` are the GPUs that it may use: indices, UUIDs or PCI addresses. `exit_code` and `signal` are those of the batch
    script, None while it runs or if the hook was not told.
    """

    raw_id: str
    id: str
    uid: int | None = None
    user: str | None = None
    account: str | None = None
    name: str | None = None
    gpus: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    is_first_node: bool = True  # the one on which the job's script ran

    @property
    def ended_well(self) -> bool | None:
        """Whether it ended with exit code 0 and by no signal; None while it runs, or if the hook was not told."""
        if self.ended is None or self.exit_code is None:
            return None
        return not (self.exit_code or self.signal)

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.id, self.raw_id))

    @property
    def process_name(self) -> str:
        """The name of the job among processes, as `jobs.process_job` gives it."""
        return f"slurm {self.raw_id}"

    def ran_at(self, time: float, slack: float) -> bool:
        """Whether it ran at a time, give or take `slack` seconds."""
        begun = self.started is None or self.started - slack <= time
        return begun and (self.ended is None or time <= self.ended + slack)

    def as_job(self, method: Literal["cgroup", "pid", "gpu", "owner", "header", "time"], **more: str | None) -> Job:
        """The job as found by a method; `more` are other fields of `Job`, such as its confidence."""
        job = Job(
            id=self.id, kind="slurm", user=self.user, method=method, raw_id=self.raw_id, account=self.account,
            name=self.name,
        )  # fmt: skip
        return replace(job, **more)  # type: ignore[arg-type]


def job_of_file_name(name: str) -> tuple[str, str] | None:
    """The job's number and the ending in the name of a hook's file; None for other files."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else None


def started_job(raw_id: str, text: str) -> NodeJob:
    """The job in the file that the prolog wrote. Raises Incomplete and Forged."""
    values = _values(raw_id, text)
    array, task = values.get("array_job", ""), values.get("array_task", "")
    is_task = array.isdecimal() and task.isdecimal()
    return NodeJob(
        raw_id=raw_id,
        id=f"{array}_{task}" if is_task else raw_id,
        uid=_number(values.get("uid")),
        user=values.get("user") or None,
        account=values.get("account") or None,
        name=values.get("name") or None,
        gpus=_gpus(values.get("gpus", ""), values.get("visible", "")),
        started=_number(values.get("time")),
    )


def ended_job(job: NodeJob, text: str) -> NodeJob:
    """The job with what the epilog wrote. Raises Incomplete and Forged."""
    values = _values(job.raw_id, text)
    code, _, signal = values.get("exit_code", "").partition(":")  # SLURM_JOB_EXIT_CODE2
    return replace(
        job, ended=_number(values.get("time")), exit_code=_number(code), signal=_number(signal),
        is_first_node=values.get("first_node") != "0",
    )  # fmt: skip


def _gpus(allocated: str, visible: str) -> tuple[str, ...]:
    """The GPUs of the allocation, and UUIDs in the mask. Its indices count only alone: they may be within the allocation."""
    indices = _tokens(allocated)
    return tuple(dict.fromkeys(indices + [gpu for gpu in _tokens(visible) if not indices or not gpu.isdecimal()]))


def _tokens(text: str) -> list[str]:
    return [token for token in re.split(r"[,\s]+", text) if token]


def _values(raw_id: str, text: str) -> dict[str, str]:
    text = text[:MAX_BYTES]
    if not f"\n{text}".endswith("\ncomplete=1\n"):
        raise Incomplete("not complete")
    values: dict[str, str] = {}
    for line in text.removesuffix("\n").split("\n"):  # splitlines() also splits at U+2028, which a name may have
        match = _LINE.fullmatch(line)
        if match is None or match[1] in values:
            raise Forged("a line that is not one of the hook's" if match is None else f"two values of {match[1]}")
        values[match[1]] = printable(match[2])[:MAX_VALUE]
    if values.get("job", raw_id) != raw_id:
        raise Forged(f"another job's number, {values['job']}")
    return values


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,10}", text) else None
