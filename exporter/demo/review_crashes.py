"""What the crashes of the simulated review say: cause, verdict, line and job of each incident, and its consequences."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.records import rfc3339
from exporter.core.diagnosis.recoveries import CLEARS
from exporter.core.diagnosis.restarts import restart_by
from exporter.core.model import UNRECOGNISED
from exporter.demo.simulated_journals import write_journals
from exporter.demo.simulator import Fleet

GPUS = ("0000:1b:00.0", "0000:3b:00.0", "0000:5d:00.0", "0000:86:00.0", "0000:9b:00.0", "0000:ad:00.0", "0000:cb:00.0",
        "0000:db:00.0")  # fmt: skip
FIRST_JOB = 480_000
PEERS = 3  # nodes on which a job's other processes lose their connection
NAMES = (
    "abel", "amara", "bjorn", "chen", "dara", "elif", "emeka", "fatima", "goran", "hana", "ines", "ivo", "jonas", "kavya",
    "kofi", "lena", "luca", "maite", "mei", "milan", "nadia", "nils", "oksana", "omar", "petra", "priya", "quentin", "rosa",
    "saida", "sven", "tariq", "tove", "ulla", "vera", "wanjiru", "xavi", "yara", "yusuf", "zoe", "zoran",
)  # fmt: skip
ACCOUNTS = ("language-models", "climate", "protein-folding", "vision", "materials")
JOBS = ("pretrain", "finetune", "evaluate", "forecast", "screening")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A signature as it shows in a log. `cause` is `unknown` for a share of the crashes."""

    cause: str
    text: str
    known_share: float = 1.0  # the share whose cause is known
    kernel: bool = False
    spreads: bool = False  # it ends the job's processes on other nodes


CRASHES = {
    "nv_xid_74_nvlink_error": Crash(
        cause="nvlink_or_switch_fault", kernel=True, spreads=True, known_share=0.97,
        text="NVRM: Xid (PCI:{pci}): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6"
        "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    ),
    "nccl_watchdog_timeout": Crash(
        cause="unknown", spreads=True, known_share=0.0,
        text="[rank{rank}]:[E ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=26214400, NumelOut=26214400, Timeout(ms)=600000) ran for "
        "600029 milliseconds before timing out.",
    ),
    "torch_oom": Crash(
        cause="gpu_memory_exhausted_by_job", known_share=0.93,
        text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {number}.00 MiB. GPU 0 has a total capacity of "
        "79.11 GiB of which 12.50 MiB is free. Including non-PyTorch memory, this process has 79.08 GiB memory in use.",
    ),
    "nv_xid_31_mmu_fault": Crash(
        cause="application_illegal_access", kernel=True, known_share=0.9,
        text="NVRM: Xid (PCI:{pci}): 31, pid={number}, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
        "GPCCLIENT_T1_5 faulted @ 0x725f_fb800000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    ),
    "slurm_oom": Crash(
        cause="job_exceeded_its_memory",
        text="slurmstepd: error: Detected 1 oom_kill event in StepId={job}.0. Some of the step tasks have been OOM Killed.",
    ),
    "nv_xid_94_contained_ecc": Crash(
        cause="gpu_memory_uncorrectable_ecc", kernel=True,
        text="NVRM: Xid (PCI:{pci}): 94, pid={number}, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    ),
    "nv_xid_79_fallen_off_bus": Crash(
        cause="gpu_lost_from_pcie", kernel=True, spreads=True,
        text="NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    ),
    "lustre_evicted": Crash(
        cause="lustre_target_unreachable", kernel=True,
        text="LustreError: 167-0: scratch-MDT0000-mdc-ffff8f3a: This client was evicted by scratch-MDT0000; in progress "
        "operations using this service will fail.",
    ),
    "mlx5_port_module": Crash(
        cause="nic_module_error", kernel=True,
        text="mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, High Temperature",
    ),
    "triton_compile_failed": Crash(cause="triton_kernel_rejected", text="RuntimeError: PassManager::run failed"),
    UNRECOGNISED: Crash(cause="unknown", known_share=0.0, text=""),
}  # fmt: skip
UNKNOWN_CRASHES = (
    ("exception", "KeyError", "KeyError: 'optimizer.state.{number}.exp_avg'", "KeyError: 'optimizer.state.N.exp_avg'", 0.4),
    ("fatal", "", "FATAL: grid decomposition failed on {number} cells", "FATAL: grid decomposition failed on N cells", 0.3),
    ("exception", "TimeoutError", "TimeoutError: dataset shard {number} not delivered in 900 s",
     "TimeoutError: dataset shard N not delivered in N s", 0.3),
)  # fmt: skip


class ReviewCrashes:
    """Completes the records of a simulated fleet's incidents. The same seed gives the same records."""

    def __init__(self, fleet: Fleet, catalogue: Catalogue) -> None:
        self._observed, self._catalogue = fleet.observed, catalogue
        self._aftermath = Aftermath(fleet, catalogue)
        self._chance = np.random.default_rng([fleet.plan.seed, 8]).random((len(fleet.observed.incidents.node), 4))

    def __call__(self, row: int, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The whole record of the incident in this row, and those of its consequences."""
        signature, crash = record["signature"], CRASHES[record["signature"]]
        cause_chance, where, kind_chance, number = self._chance[row].tolist()
        user = int(self._observed.incidents.user[row])
        pci = record["gpu"] or GPUS[int(where * len(GPUS))]
        job, rank, size = FIRST_JOB + int(self._observed.incidents.job[row]), int(where * 64), int(2 + number * 510)
        fields = {"pci": pci[:-2], "rank": rank, "number": size, "job": job}
        text, captures = crash.text.format(**fields), dict[str, str]()
        if signature == UNRECOGNISED:
            text, captures = self._unrecognised(kind_chance, fields)
        cause = self._catalogue.root_causes.get(crash.cause if cause_chance < crash.known_share else "unknown")
        about = self._catalogue.signatures[signature]
        domain, verdict = (cause.domain, cause.verdict) if cause else (about.domain, about.usual_verdict)
        job_name = JOBS[user % len(JOBS)]
        record |= {
            "root_cause": crash.cause if cause else "unknown",
            "severity": about.severity,
            "vendor": about.vendor,
            "layer": about.layer,
            "source": "kernel" if crash.kernel else "job",
            "path": "/dev/kmsg" if crash.kernel else f"/scratch/jobs/slurm-{job}.out",
            "line": None if crash.kernel else 40 + size,
            "lines": 1 + rank if crash.spreads else 1,
            "text": text,
            "captures": captures,
            "gpu": pci if crash.kernel and "{pci}" in crash.text else None,
            "verdict": verdict,
            "domain": domain,
            "restart": restart_by(cause or about, domain, verdict),
            "remediation": cause.remediation if cause else about.remediation,
            "evidence": [{"what": "signature", "value": signature, "why": cause.title}] if cause else [],
            "job": {
                "id": str(job), "user": user_name(user), "kind": "slurm", "account": ACCOUNTS[user % len(ACCOUNTS)],
                "name": job_name, "image": f"{job_name}:2026.{1 + user % 3}",
            },
        }  # fmt: skip
        yield record
        yield from self._aftermath(row, record)
        if crash.spreads and number < 0.5:
            yield from self._consequences(row, record)

    def _unrecognised(self, chance: float, fields: dict[str, Any]) -> tuple[str, dict[str, str]]:
        shares = np.cumsum([share for *_, share in UNKNOWN_CRASHES])
        kind, type_, text, template, _ = UNKNOWN_CRASHES[min(int(np.searchsorted(shares, chance)), len(shares) - 1)]
        return text.format(**fields), {"kind": kind, "type": type_, "template": template}

    def _consequences(self, row: int, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The job's processes on the next nodes lose their connection."""
        nodes, incidents = self._observed.nodes, self._observed.incidents
        for peer in range(1, min(PEERS, len(nodes) - 1) + 1):
            about = self._catalogue.signatures["nccl_remote_closed"]
            yield root | {
                "id": f"{root['id']}-{peer}",
                "time": rfc3339(float(incidents.time[row]) + 0.4 * peer),
                "node": nodes[(int(incidents.node[row]) + peer) % len(nodes)],
                "signature": about.id,
                "root_cause": "peer_failure",
                "severity": about.severity,
                "vendor": about.vendor,
                "layer": about.layer,
                "source": "job",
                "path": f"/scratch/jobs/slurm-{root['job']['id']}.out",
                "line": 60 + peer,
                "lines": 1,
                "text": f"NCCL WARN socketProgress: Connection closed by remote peer {root['node']}<53412>",
                "gpu": None,
                "verdict": "unclear",
                "remediation": about.remediation,
                "evidence": [],
                "role": "cascade",
                "caused_by": root["id"],
            }


def write_review(fleet: Fleet, folder: Path) -> int:
    """Write the journals into a new folder and return how many lines. Raises OSError."""
    return write_journals(fleet, folder, ReviewCrashes(fleet, packs.load()))


def user_name(number: int) -> str:
    again, name = divmod(number, len(NAMES))
    return NAMES[name] + (str(again + 1) if again else "")


HOUR = 3600.0
JOB_HOURS = 20.0  # of the longest job
REPAIR_HOURS = (0.4, 9.0)  # from a fault to the reboot
BOOT_SECONDS = 240.0  # from a boot to the daemon's first record
ENDED_AFTER, OPENED_AFTER = 40.0, 15.0  # seconds after the crash


class Aftermath:
    """The records that follow an incident. The same seed gives the same records."""

    def __init__(self, fleet: Fleet, catalogue: Catalogue) -> None:
        self._observed, self._catalogue, self._end = fleet.observed, catalogue, fleet.window.end
        self._chance = np.random.default_rng([fleet.plan.seed, 9]).random((len(fleet.observed.incidents.node), 2))

    def __call__(self, row: int, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Those of the incident in this row."""
        time = float(self._observed.incidents.time[row])
        ran, repaired = self._chance[row].tolist()
        ended = time + ENDED_AFTER
        if ended < self._end:
            yield {
                "kind": "job_end", "time": rfc3339(ended), "node": record["node"], "job": record["job"], "exit_code": 1,
                "started": rfc3339(time - (0.1 + ran * JOB_HOURS) * HOUR), "signal": 0,
                "outcome": "unrecognised" if record["signature"] == UNRECOGNISED else "explained",
                "signatures": [record["signature"]],
            }  # fmt: skip
        cause = self._catalogue.root_causes.get(record["root_cause"])
        if cause and cause.needs_operator and cause.action and record["source"] == "kernel":
            low, high = REPAIR_HOURS
            yield from self._fault(row, record, cause.action, time + (low + repaired * (high - low)) * HOUR)

    def _fault(self, row: int, record: dict[str, Any], action: str, repaired: float) -> Iterator[dict[str, Any]]:
        opened = float(self._observed.incidents.time[row]) + OPENED_AFTER
        fault = {
            "kind": "fault", "node": record["node"], "signature": record["signature"], "root_cause": record["root_cause"],
            "gpu": record["gpu"], "job": None, "action": action, "cleared": None, "state": "open",
        }  # fmt: skip
        if opened < self._end:
            yield fault | {"time": rfc3339(opened)}
        if repaired + BOOT_SECONDS >= self._end:
            return
        now, by = rfc3339(repaired + BOOT_SECONDS), "reboot" if action in CLEARS["reboot"] else "card_swap"
        yield {
            "kind": "facts", "time": now, "node": record["node"], "facts": self._facts(row, repaired + BOOT_SECONDS),
            "boot": {"id": f"boot-{record['id']}", "time": rfc3339(repaired)},
        }  # fmt: skip
        yield fault | {"time": now, "state": "cleared", "cleared": {"kind": by, "time": rfc3339(repaired)}}

    def _facts(self, row: int, time: float) -> dict[str, str]:
        """The facts of the incident's node at a time."""
        facts = self._observed.facts
        own = np.flatnonzero((facts.node == self._observed.incidents.node[row]) & (facts.since <= time))
        codes = facts.codes[own[np.argmax(facts.since[own])]].tolist()
        return {name: values[c] for name, values, c in zip(facts.names, facts.values, codes, strict=True) if c >= 0}
