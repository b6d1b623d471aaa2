"""What a line turned out to be elsewhere: counts of settled reports, a smoothed distribution, and the words of every view.

Pure: the caller reads the reports. A share stands only beside its number of reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from exporter.core.model import Domain, Truth, Vendor
from exporter.core.text.phrases import counted
from exporter.core.text.versions import VersionRange
from exporter.core.values import dataclass, field

if TYPE_CHECKING:
    from exporter.core.catalogue.reports import SettledReport

BACK_OFF = 2.0  # reports that the wider level weighs: `python -m benchmarks.reports` loses more with 1 or with 5
LEAST = 4  # reports: fewer say what happened, not what is usual
SHOWN = 3  # domains: a fourth has few reports, and nobody reads it at night
NAMED_FIXES = 3
DOMAINS: tuple[Domain, ...] = tuple(domain for domain in get_args(Domain) if domain != "unknown")
NOUNS: Mapping[Domain, str] = {
    "hardware": "a card, a link or the node",
    "driver": "the driver or firmware",
    "library": "a library's bug",
    "mismatch": "a build or version that does not fit",
    "configuration": "a setting",
    "resources": "too little memory, disk or time",
    "program": "the program or its input",
    "network": "the network",
    "storage": "a file system or a disk",
    "scheduler": "the batch system",
}
BY_UPDATE = ("fix merged", "fixed by update")
NAMES = {
    "cuda": "CUDA", "cudnn": "cuDNN", "guc": "GuC", "nccl": "NCCL", "onednn": "oneDNN", "pytorch": "PyTorch", "rocm": "ROCm",
    "tensorrt": "TensorRT", "torch": "PyTorch", "vllm": "vLLM",
}  # fmt: skip
FACTS = {"pytorch": "torch_version", "kernel": "kernel_release"}  # of others: their name and _version
IN_THE_JOB = "  # in the job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The settled reports of one signature: public ones, the site's own; and how many public ones of all lines lay where."""

    public: tuple[SettledReport, ...] = ()
    site: tuple[SettledReport, ...] = ()
    everywhere: Mapping[Domain, int] = field(default_factory=dict)
    vendor: Vendor = "any"  # of the signature

    @property
    def count(self) -> int:
        """How many reports."""
        return len(self.public) + len(self.site)

    def shares(self) -> Mapping[Domain, float]:
        """Where a fault of this line probably lies. Two reports of the site outweigh all public ones."""
        levels = (self.everywhere, domains_of(_undisputed(self.public)), domains_of(_undisputed(self.site)))
        return smoothed(levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What decides for a domain, the command to run, and the newest report of it. share: of all, smoothed."""

    domain: Domain
    noun: str
    reports: int
    of: int
    share: float
    decided_by: str
    command: str
    example: SettledReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What every view shows of a line's settled reports. Empty without any."""

    sentences: tuple[str, ...] = ()
    brief: str = ""  # for a table or a summary; empty for few reports
    shares: Mapping[Domain, float] = field(default_factory=dict)  # empty for few reports, as checks
    checks: tuple[Check, ...] = ()  # the likeliest first
    examples: tuple[SettledReport, ...] = ()  # the newest of each of the most frequent domains


def smoothed(levels: Iterable[Mapping[Domain, int]], back_off: float = BACK_OFF) -> dict[Domain, float]:
    """A distribution over domains from counts, the widest level first: each backs off to the one before it."""
    shares = dict.fromkeys(DOMAINS, 1 / len(DOMAINS))
    for counts in levels:
        total = sum(counts.values()) + back_off
        shares = {domain: (counts.get(domain, 0) + back_off * shares[domain]) / total for domain in DOMAINS}
    return shares


def domains_of(reports: Iterable[SettledReport]) -> Counter[Domain]:
    """How many reports lay where."""
    return Counter(report.domain for report in reports)


def outlook(outcomes: Outcomes, facts: Mapping[str, str] | None = None, besides: Collection[Domain] = ()) -> Outlook:
    """The words for an incident with these facts. besides: domains that known causes and their facts already ask for."""
    sentences = [_sentence("settled report", outcomes.public, facts or {})] if outcomes.public else []
    if outcomes.site:
        sentence = _sentence("settled incident", outcomes.site, facts or {})
        sentences.append(f"On this fleet: {sentence[:1].lower()}{sentence[1:]}")
    both = (*_undisputed(outcomes.site), *_undisputed(outcomes.public))
    shares = outcomes.shares() if len(both) >= LEAST else {}
    return Outlook(
        sentences=tuple(sentences),
        brief=_brief(both) if shares else "",
        shares=shares,
        checks=tuple(_checks(both, outcomes, facts or {}, besides)) if shares else (),
        examples=tuple(_newest(both, domain) for domain, _ in domains_of(both).most_common(SHOWN)),
    )


def _newest(reports: Iterable[SettledReport], domain: Domain) -> SettledReport:
    return max((report for report in reports if report.domain == domain), key=lambda report: report.date)


def _undisputed(reports: Sequence[SettledReport]) -> tuple[SettledReport, ...]:
    """Each report once; without those that were entered twice, with two domains."""
    by_address: dict[str, SettledReport] = {}
    disputed = set()
    for report in reports:
        if by_address.setdefault(report.address, report).domain != report.domain:
            disputed.add(report.address)
    return tuple(report for address, report in by_address.items() if address not in disputed)


def _sentence(noun: str, entries: Sequence[SettledReport], facts: Mapping[str, str]) -> str:
    """`In 14 settled reports of this line: 6 a library's bug, mostly fixed by an update (PyTorch 2.6); 8 settings.`"""
    reports = _undisputed(entries)
    counts = domains_of(reports).most_common()
    parts = [
        f"{count if len(counts) > 1 else ''} {NOUNS[domain]}{_ending([r for r in reports if r.domain == domain])}".strip()
        for domain, count in counts
    ]
    always = "always " if len(counts) == 1 < len(reports) else ""
    text = f"In {counted(len(reports), noun)} of this line: {always}{'; '.join(parts)}." if parts else ""
    if len(reports) >= LEAST and 2 * counts[0][1] <= len(reports):
        text += " They disagree: no kind of fault has more than half of them."
    if 1 < len(reports) < LEAST:
        text += " Too few to say what is usual."
    if disputed := len({report.address for report in entries}) - len(reports):
        text += (
            f" {counted(disputed, 'report')} with contradicting ends {'is' if disputed == 1 else 'are'} not counted."
        )
    if fixed := [report for report in reports if has_fix(report, facts)]:
        text += f" {len(fixed)} of them ended with versions that this one already has."
    return text.strip()


def _brief(reports: Sequence[SettledReport]) -> str:
    """`6 of 8 settled reports: a setting`, or that they disagree."""
    [(domain, count)] = domains_of(reports).most_common(1)
    if 2 * count > len(reports):
        return f"{count} of {len(reports)} settled reports: {NOUNS[domain]}"
    return f"{len(reports)} settled reports disagree; most often {NOUNS[domain]} ({count})"


def _ending(reports: Sequence[SettledReport]) -> str:
    """How the reports of one domain ended, if mostly by an update or another part."""
    for ends, verb in ((BY_UPDATE, "fixed by an update"), (("hardware replaced",), "ended by a replacement")):
        count = sum(report.settled in ends for report in reports)
        if 2 * count > len(reports):
            often = "" if len(reports) == 1 else "all " if count == len(reports) else "mostly "
            fixes = f" ({', '.join(fixes_of(reports))})" if any(report.fixed_in for report in reports) else ""
            return f", {often}{verb}{fixes}"
    return ""


def fixes_of(reports: Iterable[SettledReport]) -> list[str]:
    """The newest versions that fixed it: `PyTorch 2.6`."""
    versions: dict[str, str] = {}
    for report in sorted(reports, key=lambda report: report.date, reverse=True):
        for name, version in report.fixed_in.items():
            versions.setdefault(NAMES.get(name.lower(), name), version)
    return [f"{name} {version}" for name, version in versions.items()][:NAMED_FIXES]


def has_fix(report: SettledReport, facts: Mapping[str, str]) -> bool:
    """Whether a version among the facts is one in which the report was fixed."""
    for name, version in report.fixed_in.items():
        present = facts.get(FACTS.get(name.lower(), f"{name.lower()}_version"))
        try:
            bound = VersionRange.parse(f">={version}")
        except ValueError:  # a date, a commit, a branch
            continue
        if present and bound.holds_for(present) is Truth.HELD:
            return True
    return False


def _checks(
    reports: Sequence[SettledReport], outcomes: Outcomes, facts: Mapping[str, str], besides: Collection[Domain]
) -> Iterator[Check]:
    """What would decide between the domains of these reports. Versions that have every fix of a domain exclude it."""
    counts, shares = domains_of(reports), outcomes.shares()
    possible = domains_of(report for report in reports if not has_fix(report, facts))
    ranked = sorted(possible.keys() - set(besides), key=lambda domain: (-shares[domain], DOMAINS.index(domain)))
    for domain in ranked[:SHOWN]:
        decided_by, commands = DECIDING[domain]
        yield Check(
            domain=domain,
            noun=NOUNS[domain],
            reports=counts[domain],
            of=len(reports),
            share=shares[domain],
            decided_by=decided_by,
            command=commands.get(outcomes.vendor) or commands["any"],
            example=_newest(reports, domain),
        )


TORCH = "python3 -c 'import torch; print(torch.__version__, torch.version.{}, torch.cuda.get_arch_list())'" + IN_THE_JOB
# What decides for a domain, and the command of each vendor.
DECIDING: Mapping[Domain, tuple[str, Mapping[Vendor, str]]] = {
    "hardware": (
        "other jobs fail on this card or node too, and this job runs on another node",
        {
            "nvidia": "dcgmi diag -r 2",
            "amd": "amd-smi metric --ecc",
            "intel": "xpu-smi diag -d 0 -l 1",
            "any": "journalctl -k | grep -iE 'xid|amdgpu|i915|xe |mce|aer'",
        },
    ),
    "driver": (
        "the kernel log has errors of the driver, and another driver version runs the same job",
        {
            "nvidia": "cat /proc/driver/nvidia/version; journalctl -k | grep NVRM",
            "amd": "cat /sys/module/amdgpu/version; journalctl -k | grep amdgpu",
            "intel": "uname -r; journalctl -k | grep -E 'i915|xe '",
            "any": "uname -r; journalctl -k -p warning",
        },
    ),
    "library": ("a later release of the failing library runs the same job", {"any": f"python3 -m pip list{IN_THE_JOB}"}),
    "mismatch": (
        "the build lacks this GPU's architecture, or versions do not fit each other",
        {
            "nvidia": TORCH.format("cuda"),
            "amd": TORCH.format("hip"),
            "intel": f"sycl-ls{IN_THE_JOB}",
            "any": f"python3 -m pip check; ldd ./program | grep 'not found'{IN_THE_JOB}",
        },
    ),
    "configuration": (
        "variables, limits, devices or mounts of the job differ from those of a job that runs",
        {"any": f"env | sort; ulimit -a; ls /dev/nvidia* /dev/kfd /dev/dri{IN_THE_JOB}"},
    ),
    "resources": (
        "memory, shared memory or disk is nearly used up while the job runs",
        {
            "nvidia": f"nvidia-smi; free -h; df -h /tmp /dev/shm{IN_THE_JOB}",
            "amd": f"rocm-smi --showmeminfo vram; free -h; df -h /tmp /dev/shm{IN_THE_JOB}",
            "any": f"free -h; df -h /tmp /dev/shm{IN_THE_JOB}",
        },
    ),
    "program": (
        "it fails at the same step on another node, and not with other code or input",
        {
            "nvidia": "CUDA_LAUNCH_BLOCKING=1 python3 program.py  # on another node",
            "amd": "AMD_SERIALIZE_KERNEL=3 python3 program.py  # on another node",
            "any": "python3 program.py  # on another node, with the same input",
        },
    ),
    "network": ("a link of this node or its peer is down or counts errors", {"any": "ibstat; rdma link; ip -s link"}),
    "storage": (
        "other jobs wait for the same file system, or the kernel log has its errors",
        {"any": "df -hT .; journalctl -k | grep -iE 'nfs|lustre|gpfs|I/O error'"},
    ),
    "scheduler": ("the batch system says that it ended the job", {"any": "sacct -j JOB -o JobID,State,ExitCode,Reason"}),
}  # fmt: skip
