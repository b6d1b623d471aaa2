"""Records a machine with GPUs while programs crash on it, for tests/support/recorded_machine.py. Needs root and Linux.

    python3 tests/lab/record.py FOLDER

Runs the jobs of jobs.json as a small Slurm would: several lanes side by side, a user, a control group and a log for each
job, and the shipped prolog and epilog. Writes what the node wrote meanwhile, with the times: the kernel's records, the
logs, the processes of each job and the hooks' files. Uses the standard library only; the machine may have no network.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SLURM = HERE.parents[1] / "deploy/slurm"
WORK = Path("/opt/gpufault-lab")
GROUPS = Path("/sys/fs/cgroup/system.slice/slurmstepd.scope")
FIRST_JOB, FIRST_UID = 5001, 20001
SECONDS = 60  # for one program
PAUSE_SECONDS = 1.0
LOOK_SECONDS = 0.01
USERS = ("ada", "ben", "cleo", "dov", "eva", "finn")


class Recorder:
    """Collects events. `add` is called from several threads."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sizes: dict[Path, int] = {}
        self._owners: dict[Path, int] = {}
        self._seen: dict[int, str] = {}
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._kernel, self._look)]

    def add(self, **event: Any) -> None:
        with self._lock:
            self.events.append({"t": round(time.time(), 6), **event})

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        time.sleep(1.0)
        self._over.set()
        self._threads[1].join()

    def watch(self, log: Path, uid: int) -> None:
        self._sizes[log], self._owners[log] = 0, uid

    def _kernel(self) -> None:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY)
        os.lseek(descriptor, 0, os.SEEK_END)
        while True:
            with contextlib.suppress(BrokenPipeError):  # the ring was overwritten
                record = os.read(descriptor, 8192).decode(errors="surrogateescape")
                self.add(kmsg=record.partition("\n")[0])

    def _look(self) -> None:
        while not self._over.is_set():
            self._look_at_logs()
            self._look_at_processes()
            time.sleep(LOOK_SECONDS)
        self._look_at_logs()

    def _look_at_logs(self) -> None:
        for log, size in list(self._sizes.items()):
            with contextlib.suppress(OSError), log.open("rb") as file:
                file.seek(size)
                if more := file.read():
                    self._sizes[log] = size + len(more)
                    name = str(log.relative_to(WORK / "logs"))
                    self.add(log=name, text=more.decode("utf-8", "surrogateescape"), uid=self._owners[log])

    def _look_at_processes(self) -> None:
        alive: dict[int, str] = {}
        for folder in GROUPS.glob("job_*/step_batch/user/task_0"):
            with contextlib.suppress(OSError):
                group = "/" + str(folder.relative_to("/sys/fs/cgroup"))
                alive |= dict.fromkeys(map(int, (folder / "cgroup.procs").read_text().split()), group)
        for pid in alive.keys() - self._seen.keys():
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{pid}/stat").read_text()
                self.add(process=pid, cgroup=alive[pid], ticks=int(status.rpartition(")")[2].split()[19]))
        for pid in self._seen.keys() - alive.keys():
            self.add(gone=pid)
        self._seen = alive


def build() -> dict[str, str]:
    """Compile the programs; the environment that names them."""
    programs, binaries = WORK / "programs", WORK / "bin"
    shutil.copytree(HERE / "programs", programs, dirs_exist_ok=True)
    binaries.mkdir(exist_ok=True)
    subprocess.run(["cc", "-O1", "-w", programs / "host.c", "-o", binaries / "host"], check=True)
    if shutil.which("nvcc"):
        command = ["nvcc", "-O1", "-w", "-arch=native", programs / "faults.cu", "-o", binaries / "faults"]
        subprocess.run(command, check=True)
    for path in (WORK, *WORK.rglob("*")):
        path.chmod(0o755)
    return {"BIN": str(binaries), "PROGRAMS": str(programs)}


def machine() -> dict[str, Any]:
    """The node: its boot, its GPUs and what `gpufault facts` finds, if it is installed."""
    gpus = []
    query = ["nvidia-smi", "--query-gpu=index,pci.bus_id,serial", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines():
            index, address, serial = (part.strip() for part in line.split(","))
            gpus.append({"pci": address.lower()[-12:], "vendor": "nvidia", "minor": int(index), "serial": serial})
    facts = {}
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["gpufault", "facts", "--format", "json"]
        facts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {"booted": time.time() - time.clock_gettime(time.CLOCK_MONOTONIC_RAW), "gpus": gpus, "facts": facts}


class Job:
    """One program as a job of a small Slurm."""

    def __init__(self, number: int, truth: dict[str, Any], names: dict[str, str], recorder: Recorder) -> None:
        self.id, self.truth, self._recorder = str(number), truth, recorder
        self.user = USERS[number % len(USERS)]
        self.uid = FIRST_UID + number % len(USERS)
        self._group = GROUPS / f"job_{self.id}"
        self._log = WORK / "logs" / self.user / f"slurm-{self.id}.out"
        self._jobs = WORK / "jobs"
        gpus = "0" if truth["gpu"] else ""
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": "/tmp", "USER": self.user, **names, "SLURM_JOB_ID": self.id,
            "CUDA_VISIBLE_DEVICES": gpus,
            **{name: value for name, value in os.environ.items() if name in ("LD_LIBRARY_PATH", "CUDA_HOME")},
        }  # fmt: skip
        self._hooks = {
            **os.environ, "GPUFAULT_JOBS_DIR": str(self._jobs), "SLURM_JOB_ID": self.id, "SLURM_JOB_UID": str(self.uid),
            "SLURM_JOB_USER": self.user, "SLURM_JOB_ACCOUNT": "lab", "SLURM_JOB_NAME": truth["key"],
            "SLURM_JOB_GPUS": gpus, "CUDA_VISIBLE_DEVICES": gpus, "SLURM_JOB_NUM_NODES": "1",
        }  # fmt: skip

    def run(self) -> dict[str, Any]:
        task = self._prepare()
        self._hook("prolog", "started")
        script = WORK / f"job{self.id}.sh"
        script.write_text(f'#!/bin/bash\necho "job {self.id} on $(hostname)"\n{self.truth["run"]}\n')
        script.chmod(0o755)
        start = time.time()
        as_user = f"setpriv --reuid {self.uid} --regid {self.uid} --clear-groups"
        command = f"echo $$ >{task}/cgroup.procs; exec {as_user} bash {script}"
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                (self._group / "cgroup.kill").write_text("1")
                code = process.wait()
        end = time.time()
        self._hooks["SLURM_JOB_EXIT_CODE2"] = f"{code}:0" if code >= 0 else f"0:{-code}"
        self._hook("epilog", "ended")
        return {
            **self.truth,
            "job": self.id,
            "user": self.user,
            "uid": self.uid,
            "start": start,
            "end": end,
            "code": code,
        }

    def _prepare(self) -> Path:
        task = self._group / "step_batch/user/task_0"
        task.mkdir(parents=True)
        if limit := self.truth.get("memory"):
            (self._group / "memory.max").write_text(str(limit))
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        os.chown(self._log, self.uid, self.uid)
        self._recorder.watch(self._log, self.uid)
        return task

    def _hook(self, name: str, ending: str) -> None:
        subprocess.run(["sh", SLURM / name], env=self._hooks, check=False, capture_output=True)
        file = self._jobs / f"{self.id}.{ending}"
        self._recorder.add(hook=file.name, text=file.read_text())


def main(folder: Path) -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    for name in ("logs", "jobs"):
        (WORK / name).mkdir(parents=True)
    GROUPS.mkdir(parents=True, exist_ok=True)
    for path in (GROUPS.parents[1], GROUPS.parent, GROUPS):
        with contextlib.suppress(OSError):
            (path / "cgroup.subtree_control").write_text("+memory +pids")
    names, node, recorder = build(), machine(), Recorder()
    truths = json.loads((HERE / "jobs.json").read_text())
    jobs = [Job(FIRST_JOB + number, truth, names, recorder) for number, truth in enumerate(truths)]
    done: list[dict[str, Any]] = []

    def run_lane(lane: list[Job]) -> None:
        for job in lane:
            done.append(job.run())
            print(job.id, job.truth["key"], "exit code", done[-1]["code"], flush=True)
            time.sleep(PAUSE_SECONDS)

    recorder.start()
    lanes = [[job for job in jobs if job.truth.get("lane", 1) == number] for number in range(1, 10)]
    threads = [threading.Thread(target=run_lane, args=(lane,)) for lane in lanes if lane]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.stop()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps(node, indent=1) + "\n")
    for name, rows in (("events.jsonl", sorted(recorder.events, key=lambda e: e["t"])), ("jobs.jsonl", done)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
