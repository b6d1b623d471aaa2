"""A folder that stands for /proc, in which tests let processes start and end: a machine has no GPU where tests run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from exporter.node.gpu_processes import GpuProcesses
from tests.support.matches import match

JOB = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"
NCCL = "7f00-7f01 r-xp 00000000 103:02 9   /usr/lib/libnccl.so.2.21.5\n"


@dataclass
class Proc:
    """A folder that stands for /proc, and the searches in it."""

    path: Path
    searches: int = 0
    processes: GpuProcesses = field(init=False)

    def __post_init__(self) -> None:
        self.processes = GpuProcesses(self.path, search_seconds=60.0)  # a loaded machine
        (self.path / "meminfo").write_text("MemTotal: 1024 kB\n")
        (self.path / "self/ns").mkdir(parents=True)
        (self.path / "self/ns/pid").symlink_to("pid:[4026531836]")

    def start(
        self,
        pid: int,
        *,
        device: str = "/dev/kfd",
        cgroup: str = JOB,
        maps: str = NCCL,
        environ: str = "",
        ticks: int = 9,
        mountinfo: str = "",
    ) -> Path:
        folder = self.path / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "fd/3").unlink(missing_ok=True)
        (folder / "fd/3").symlink_to(device)
        stat = f"{pid} (a) b) S 1 " + "0 " * 17 + f"{ticks} 0 0\n"
        texts = {"stat": stat, "cgroup": cgroup, "maps": maps, "environ": environ, "limits": "", "mountinfo": mountinfo}
        for name, text in texts.items():
            (folder / name).write_text(text)
        (folder / "root").mkdir(exist_ok=True)
        return folder

    def end(self, pid: int) -> None:
        for path in sorted((self.path / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.path / str(pid)).rmdir()

    def look(self) -> None:
        self.searches += 1
        self.processes.refresh(self.searches * 60.0, 60.0, wait=True)

    def facts_of_job(self, job: str = "7") -> dict[str, str]:
        return dict(self.processes.facts_of(match("gpu_fault", job=job)))
