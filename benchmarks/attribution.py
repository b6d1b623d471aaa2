"""Precision and coverage of each way to find an incident's job, on a simulated day of 5,000 jobs.

    python -m benchmarks.attribution            # prints the table of docs/attribution.md
    python -m benchmarks.attribution --write    # writes it there

The day is made up; the code is the daemon's own: each of 100 nodes is a folder with /proc, hooks' files and folders of pods.
Shares of log names, hooks and short processes are assumptions, listed in `SHARES`. One seed, one table.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import into_page
from exporter.core.decoding.jobs import job_of, with_owner
from exporter.core.diagnosis.attribution import METHODS, attribute, is_same_job, jobs_named_for
from exporter.core.diagnosis.incidents import condense
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Job, LogContext, Match
from exporter.node.job_attribution import JobAttribution
from exporter.node.job_folder import JobFolder
from exporter.node.pod_devices import PodDevices

NODES, JOBS, DAY = 100, 5000, 86_400.0
NOW = 1_780_272_000.0
TICK = 5.0  # seconds between looks at processes
READ = 0.5  # seconds from a line to its reading
SHARES = {
    "nodes of Kubernetes": 0.25,
    "of these, with jobs.pod_resources": 0.5,
    "nodes of Slurm with our hooks": 0.67,
    "nodes of Slurm without cgroups": 0.1,
    "tasks of arrays": 0.2,
    "jobs that crash": 0.3,
    "crashes with a kernel line": 0.5,
    "processes that start in the minute before their crash": 0.15,
    "processes that are gone when the line is read": 0.7,
    "kernel lines of no job": 0.1,  # of the number of crashes
}
LOG_NAMES = {  # how a job's log is named, of Slurm's jobs
    "slurm-%j.out": 0.55,
    "a folder job_%j": 0.1,
    "without the id": 0.15,
    "with a date": 0.1,
    "with another number": 0.06,  # of a seed, an experiment, a checkpoint
    "of an older job": 0.02,  # a run that goes on in its old log
    "of another user's job": 0.02,  # by mistake or on purpose
}
HEADERS = 0.4  # of logs name the job in their text; one in 50 of these another one (a copied environment)
CARDS = tuple(
    Gpu(pci=f"0000:{bus:02x}:00.0", vendor="nvidia", minor=i) for i, bus in enumerate(range(0x10, 0x90, 0x10))
)
GPUS_OF_JOB = ((1, 0.5), (2, 0.15), (4, 0.1), (8, 0.25))


@dataclass(slots=True, kw_only=True)
class SimulatedJob:
    """One job on one node."""

    raw: str
    id: str
    uid: int
    start: float
    end: float
    cards: tuple[int, ...]
    crashes: bool
    pods: bool
    path: str = ""
    header: str | None = None
    pids: list[int] = field(default_factory=list)

    @property
    def truth(self) -> Job:
        if self.pods:
            return Job(id=self.id, kind="kubernetes", pod_uid=self.raw)
        return Job(id=self.id, kind="slurm", raw_id=self.raw)


@dataclass(slots=True)
class Tally:
    """What one method said of the lines that have a job, and of those that have none."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)

    def add(self, source: str, said: Sequence[Job], truth: Mapping[str, Job], method: str | None) -> None:
        named = [job for job in said if method is None or job.method == method]
        for job in named[:1]:
            known = truth.get("job")
            (self.right if known and is_same_job(job, known) else self.wrong)[source] += 1


class SimulatedNode:
    """One node: its folders, and the daemon's view of them."""

    def __init__(self, folder: Path, rng: random.Random, number: int) -> None:
        self.rng, self.number, self.now = rng, number, NOW
        self.pods = rng.random() < SHARES["nodes of Kubernetes"]
        self.has_hooks = not self.pods and rng.random() < SHARES["nodes of Slurm with our hooks"]
        self.has_cgroups = self.pods or rng.random() >= SHARES["nodes of Slurm without cgroups"]
        asks = self.pods and rng.random() < SHARES["of these, with jobs.pod_resources"]
        self.proc, self.hooks, self.logs = folder / "proc", folder / "jobs", folder / "pods"
        (self.proc / "2").mkdir(parents=True)
        (self.proc / "2/comm").write_text("kthreadd\n")
        self.logs.mkdir()
        if self.has_hooks:
            self.hooks.mkdir()
        self.running: list[SimulatedJob] = []
        self.next_pid = 1000
        self.devices = PodDevices(folder / "kubelet.sock" if asks else None, lambda _: self._kubelet())
        self.attribution = JobAttribution(
            self.proc, JobFolder(self.hooks), self.devices, pods=self.logs, clock=lambda: self.now,
            boot_clock=lambda: self.now - NOW + 1000.0,
        )  # fmt: skip

    def look(self, at: float) -> None:
        self.now = max(at, self.now)
        self.devices.refresh(self.now, wait=True)
        self.attribution.refresh(self.now)

    def start(self, job: SimulatedJob) -> None:
        self.now = max(self.now, job.start)
        self.running.append(job)
        job.pids = [self.process(job, job.start) for _ in job.cards]
        if self.has_hooks:
            array, _, task = job.id.partition("_")
            ids = f"array_job={array}\narray_task={task}\n" if task else ""
            gpus = ",".join(map(str, job.cards))
            text = f"time={int(job.start)}\nuid={job.uid}\nuser=u{job.uid}\n{ids}gpus={gpus}\ncomplete=1\n"
            (self.hooks / f"{job.raw}.started").write_text(text)
        if self.pods:
            (self.logs / f"{job.id.replace('/', '_')}_{job.raw}").mkdir()

    def end(self, job: SimulatedJob) -> None:
        self.now = max(self.now, job.end)
        self.running.remove(job)
        for pid in job.pids:
            self.remove(pid)
        if self.has_hooks:
            (self.hooks / f"{job.raw}.ended").write_text(f"time={int(job.end)}\nexit_code=1:0\ncomplete=1\n")
            for old in sorted(self.hooks.glob("*.ended"), key=lambda path: path.stat().st_mtime_ns)[:-20]:
                old.with_suffix(".started").unlink()
                old.unlink()

    def process(self, job: SimulatedJob | None, started: float) -> int:
        self.next_pid += 1
        folder = self.proc / str(self.next_pid)
        folder.mkdir()
        ticks = int((started - NOW + 1000.0) * 100)
        (folder / "stat").write_text(f"{self.next_pid} (python) S 1 " + "0 " * 17 + f"{ticks} 0 0\n")
        (folder / "cgroup").write_text(self.group(job))
        return self.next_pid

    def group(self, job: SimulatedJob | None) -> str:
        if job is None:
            return "0::/system.slice/cron.service\n"
        if not self.has_cgroups:
            return "0::/system.slice/slurmd.service\n"
        if job.pods:
            return (
                f"0::/kubepods.slice/kubepods-pod{job.raw.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope\n"
            )
        return f"0::/system.slice/slurmstepd.scope/job_{job.raw}/step_0/user/task_0\n"

    def remove(self, pid: int) -> None:
        folder = self.proc / str(pid)
        if folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    def attributed(self, match: Match) -> Match:
        logs = [job for job in self.running if job.path]
        only = job_of(logs[0].path) if len(logs) == 1 else None
        [out] = self.attribution.attached([match], CARDS, lambda _: {}, lambda: only)
        return out

    def _kubelet(self) -> bytes:
        return b"".join(
            _field(1, _field(1, job.id.partition("/")[2].encode()) + _field(2, job.id.partition("/")[0].encode())
                   + _field(3, _field(1, b"main") + _field(2, _field(1, b"nvidia.com/gpu") + b"".join(
                       _field(2, CARDS[card].pci.encode()) for card in job.cards))))
            for job in self.running
        )  # fmt: skip


def _field(number: int, value: bytes) -> bytes:
    size, length = len(value), b""
    while size > 0x7F:
        size, length = size >> 7, length + bytes([size & 0x7F | 0x80])
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def table(seed: int = 0) -> Iterator[str]:
    """The table, line by line."""
    methods = {name: Tally() for name in (*METHODS, "")}
    confidences = {name: Tally() for name in ("high", "medium", "low")}
    lines: Counter[str] = Counter()
    conflicts = 0
    with tempfile.TemporaryDirectory(prefix="gpufault-") as scratch:
        for source, truth, match in _day(Path(scratch), random.Random(seed)):
            known = {"job": truth} if truth else {}
            lines[source] += bool(truth)
            said = list(jobs_named_for(match))
            for method in METHODS:
                methods[method].add(source, said, known, method)
            [incident] = condense([match], 60.0)
            found = attribute(incident)
            conflicts += bool(found.conflicts)
            if found.job:
                methods[""].add(source, [found.job], known, None)
                confidences[found.job.confidence].add(source, [found.job], known, None)
    yield "| method | logs: right / named | precision | coverage | kernel: right / named | precision | coverage |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, tally in methods.items():
        yield f"| {f'`{name}`' if name else '**all together**'} |" + "".join(
            _cells(tally, lines, s) for s in ("job", "kernel")
        )
    for name, tally in confidences.items():
        yield f"| of these, {name} |" + "".join(_cells(tally, lines, source) for source in ("job", "kernel"))
    yield ""
    yield f"{lines['job']:,} lines of logs and {lines['kernel']:,} kernel lines have a job; names disagree on {conflicts:,}."


def _cells(tally: Tally, lines: Mapping[str, int], source: str) -> str:
    right, named = tally.right[source], tally.right[source] + tally.wrong[source]
    if not named:
        return " – | – | – |"
    return f" {right:,} / {named:,} | {right / named:.1%} | {right / lines[source]:.1%} |"


def _day(scratch: Path, rng: random.Random) -> Iterator[tuple[str, Job | None, Match]]:
    """Each line of the day, after attribution: its source, its true job, the match."""
    for number in range(NODES):
        (scratch / str(number)).mkdir()
        node = SimulatedNode(scratch / str(number), rng, number)
        events: list[tuple[float, int, SimulatedJob | None]] = []
        for job in _jobs(node, rng):
            events += [(job.start, 1, job), (job.end, 0, job)]
            if rng.random() < SHARES["jobs that crash"] * SHARES["kernel lines of no job"]:
                events.append((rng.uniform(job.start, job.end), 2, None))
        for at, kind, each in sorted(events, key=lambda event: event[:2]):
            if kind == 1 and each:
                node.start(each)
            elif kind == 0 and each:
                if each.crashes:
                    yield from _crash(node, each, at, rng)
                node.end(each)
            else:
                yield _of_no_job(node, at, rng)


def _jobs(node: SimulatedNode, rng: random.Random) -> list[SimulatedJob]:
    """The node's jobs of the day: each takes cards as they become free."""
    free = dict.fromkeys(range(len(CARDS)), NOW + rng.uniform(0, 600))
    jobs: list[SimulatedJob] = []
    for index in range(JOBS // NODES):
        count = rng.choices([n for n, _ in GPUS_OF_JOB], [share for _, share in GPUS_OF_JOB])[0]
        cards = sorted(free, key=lambda card: (free[card], card))[:count]
        start = max(free[card] for card in cards) + rng.uniform(1, 900)
        end = start + rng.lognormvariate(8.0, 1.2)
        free |= dict.fromkeys(cards, end)
        number = 400_000 + node.number * 1000 + index * 3
        uid = 1000 + rng.randrange(200)
        raw, name = str(number), str(number)
        if node.pods:
            raw = f"{number:08x}-0000-4000-8000-0123456789ab"
            name = f"team{uid % 7}/train-{number}"
        elif rng.random() < SHARES["tasks of arrays"]:
            name = f"{number - 2}_{rng.randrange(1000)}"
        job = SimulatedJob(
            raw=raw, id=name, uid=uid, start=start, end=end, cards=tuple(cards), pods=node.pods,
            crashes=rng.random() < SHARES["jobs that crash"],
        )  # fmt: skip
        job.path, job.header = _log_of(job, jobs, rng)
        jobs.append(job)
    return jobs


def _log_of(job: SimulatedJob, earlier: Sequence[SimulatedJob], rng: random.Random) -> tuple[str, str | None]:
    if job.pods:
        namespace, _, pod = job.id.partition("/")
        return f"/var/log/pods/{namespace}_{pod}_{job.raw}/main/0.log", None
    home = f"/scratch/u{job.uid}"
    other = rng.choice([each for each in earlier if each.uid != job.uid] or [job])
    older = str(int(job.raw) - 300_000)
    paths = {
        "slurm-%j.out": f"{home}/slurm-{job.id}.out",
        "a folder job_%j": f"{home}/job_{job.raw}/rank0.log",
        "without the id": f"{home}/exp{rng.randrange(99)}/train.log",
        "with a date": f"{home}/train.2026{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}.log",
        "with another number": f"{home}/llama.{rng.randrange(10_000, 99_999)}.err",
        "of an older job": f"{home}/slurm-{older}.out",
        "of another user's job": f"{home}/slurm-{other.id}.out",
    }
    path = paths[rng.choices(list(LOG_NAMES), list(LOG_NAMES.values()))[0]]
    header = None
    if rng.random() < HEADERS:
        header = older if rng.random() < 0.02 else job.raw
    return path, header


def _crash(node: SimulatedNode, job: SimulatedJob, at: float, rng: random.Random) -> Iterator[tuple[str, Job, Match]]:
    """A crash: a line of the log, and of half of them a line of the kernel."""
    pid = job.pids[0]
    if rng.random() < SHARES["processes that start in the minute before their crash"]:
        pid = node.process(job, max(job.start, at - rng.uniform(0, 60)))
        job.pids.append(pid)
    node.look(at // TICK * TICK)
    node.now = max(node.now, at + READ)
    if rng.random() < SHARES["processes that are gone when the line is read"]:
        node.remove(pid)
    facts = {"env.SLURM_JOB_ID": job.header} if job.header else {}
    uid = None if job.pods else job.uid
    named = with_owner(job_of(job.path), uid, ())
    log = _match("job", job.path, at, job=named, uid=uid, context=LogContext(facts=facts))
    yield "job", job.truth, node.attributed(log)
    if rng.random() >= SHARES["crashes with a kernel line"]:
        return
    kind = rng.choice(("xid with pid", "xid", "oom", "segfault"))
    captures = {"pid": str(pid)} if kind in ("xid with pid", "segfault") else {}
    if kind == "oom":
        captures = {"pid": str(pid), "cgroup": node.group(job).partition("::")[2].strip()}
    gpu = CARDS[rng.choice(job.cards)].pci if kind.startswith("xid") else None
    yield "kernel", job.truth, node.attributed(_match("kernel", "/dev/kmsg", at, captures=captures, gpu=gpu))


def _of_no_job(node: SimulatedNode, at: float, rng: random.Random) -> tuple[str, None, Match]:
    """A card that nobody uses, or a process of the system."""
    node.look(at // TICK * TICK)
    node.now = max(node.now, at + READ)
    idle = [card for card in range(len(CARDS)) if not any(card in job.cards for job in node.running)]
    if idle and rng.random() < 0.5:
        match = _match("kernel", "/dev/kmsg", at, gpu=CARDS[rng.choice(idle)].pci)
    else:
        match = _match(
            "kernel", "/dev/kmsg", at, captures={"pid": str(node.process(None, at - 3600)), "process": "cron"}
        )
    return "kernel", None, node.attributed(match)


def _match(source: str, path: str, at: float, **what: object) -> Match:
    return Match(
        signature="crash", source=source, origin="x", path=path, line=1, offset=0, time=at, time_source="log",  # type: ignore[arg-type]
        read_at=at + READ, text="a crash", **what,  # type: ignore[arg-type]
    )  # fmt: skip


if __name__ == "__main__":
    into_page.main(__file__, __doc__, "attribution.md", table)
