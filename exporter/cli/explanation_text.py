"""The text that explains an incident: cause, evidence with line numbers, what could change the answer, what to do.

With --details also how each line was read, stage by stage: decoding, required literals, patterns. For a missing fact it has
the shell command that prints the fact.
"""

import difflib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.cli import incident_text
from exporter.cli.incident_text import INDENT, field, one_line, paint
from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.outcomes import Outcomes, Outlook, outlook
from exporter.core.catalogue.pack_types import MAX_LINES
from exporter.core.catalogue.reports import SettledReport
from exporter.core.collectives import collective_texts, collectives_of
from exporter.core.decoding.formats import decode
from exporter.core.decoding.prefixes import Clock
from exporter.core.diagnosis.assessment import Assessment, Diagnosis, Leaf
from exporter.core.diagnosis.causes import distinct_evidence
from exporter.core.diagnosis.incidents import gpu_of
from exporter.core.diagnosis.records import rfc3339
from exporter.core.diagnosis.restarts import restart_of
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.rules import Rule, Verdict, facts_of
from exporter.core.model import STRENGTHS, Incident, LogFormat, Record, SourceKind
from exporter.core.text.phrases import printable

SHOWN_CANDIDATES = 4  # the best of those that a missing fact leaves open; more would not help at 3 a.m.
SHOWN_REFERENCES = 2
SHOWN_SAME_TIME = 2
MARKS = {"held": "+", "failed": "-", "undetermined": "?"}


def explanation(
    diagnosis: Diagnosis,
    cascades: Sequence[Diagnosis],
    catalogue: Catalogue,
    fact_lines: Mapping[str, Sequence[int]],
    *,
    color: bool,
    log: str | None = None,
    recorder: Iterable[str] = (),
    facts: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The lines that explain a root incident. fact_lines: the line numbers of the log that state each fact.

    log: its path, if incidents of the kernel are among them. recorder: what the ranks' flight recorders show.
    facts: of the node and the log.
    """
    incident = diagnosis.incident
    in_log = (one.incident.first.line for one in (diagnosis, *cascades) if log in (None, one.incident.first.path))
    first_line = next(in_log, incident.first.line)
    signature = catalogue.signatures[incident.signature]
    chosen = next((a for a in diagnosis.considered if a.cause.id == diagnosis.root_cause), None)
    outcomes = packs.outcomes(catalogue, incident.signature)
    yield from incident_text.heading(
        _location(incident, log), signature.title, signature.severity, incident.first.text, color=color
    )
    extent = [f"{incident.lines} lines"] if incident.lines > 1 else []
    extent += [f"{len(incident.ranks)} ranks"] if len(incident.ranks) > 1 else []
    gpu = gpu_of(incident)
    extent += [f"GPU {gpu}"] if gpu else []
    yield from field("signature", " · ".join([incident.signature, *extent]))
    yield from _emphasised(field("cause", _cause(diagnosis, chosen, signature.undecided)), color=color)
    if not chosen:
        yield from incident_text.mostly(diagnosis.domain)
        yield from _reports(outlook(outcomes, facts))
    else:
        for leaf in distinct_evidence((*chosen.held, *chosen.supports)):
            yield from field("because", _evidence_text(leaf, first_line, fact_lines, log), breaks=True)
        for leaf in distinct_evidence(chosen.against):
            yield from field("although", _evidence_text(leaf, first_line, fact_lines, log), breaks=True)
    waiting = next((one.incident.waiting for one in (diagnosis, *cascades) if one.incident.waiting), ())
    for text in collective_texts(collectives_of(waiting)):
        yield from field("ranks", printable(text))
    for text in recorder:
        yield from field("recorder", printable(text))
    for other in diagnosis.same_time[:SHOWN_SAME_TIME]:
        text = incident_text.same_time(other.signature, other.first.text)
        yield from field("meanwhile", text, breaks=True)
    yield from _open_questions(diagnosis, chosen, outcomes, facts or {})
    if diagnosis.remediation:
        yield from _emphasised(field("do", diagnosis.remediation), color=color)
    yield from incident_text.restart(restart_of(diagnosis, catalogue))
    if cascades:
        text = ", ".join(f"{c.incident.signature} ({_location(c.incident, log)})" for c in cascades)
        yield from field("then", f"{text} – as a consequence")
    for reference in diagnosis.references[:SHOWN_REFERENCES]:
        yield f"  {'read':<{INDENT}}{reference}"


def _reports(shown: Outlook) -> Iterator[str]:
    """What the line turned out to be elsewhere. The examples of many reports follow what would decide between them."""
    for number, sentence in enumerate(shown.sentences):
        yield from field("" if number else "reports", sentence)
    for report in () if shown.checks else shown.examples:
        yield from _example(report)


def _example(report: SettledReport) -> Iterator[str]:
    yield from field("", f"Such as: {report.cause}")
    yield f"  {'':<{INDENT}}{one_line(report.address)}"


def _location(incident: Incident, log: str | None) -> str:
    if log is None or incident.first.path == log:
        return f"line {incident.first.line}"
    return f"kernel log, {rfc3339(incident.first.happened)}"


def _cause(diagnosis: Diagnosis, chosen: Assessment | None, undecided: str) -> str:
    if chosen:
        return incident_text.cause_text(chosen.cause, diagnosis.verdict)
    if any(a.sufficient for a in diagnosis.considered):
        return "unknown: facts are missing; the causes below are neither confirmed nor ruled out"
    if diagnosis.considered:
        return "unknown: no known cause fits"
    return f"unknown: {undecided or 'no cause is known for this; the advice is that of its signature'}"


def _evidence_text(leaf: Leaf, before: int, fact_lines: Mapping[str, Sequence[int]], log: str | None) -> str:
    if log and leaf.source == "kernel":  # its lines have no numbers in this log
        return incident_text.reason(leaf.subject, leaf.value, leaf.reason)
    line = leaf.line
    if line is None and leaf.source == "log":
        stated = fact_lines.get(leaf.subject.removeprefix("fact "), ())
        line = max((number for number in stated if number <= before), default=None)
    where = leaf.source if line is None else f"line {line}"
    return incident_text.reason(leaf.subject, leaf.value, leaf.reason, where)


def _open_questions(
    diagnosis: Diagnosis, chosen: Assessment | None, outcomes: Outcomes, facts: Mapping[str, str]
) -> Iterator[str]:
    """What could change the answer: assumptions, causes that a missing fact could favour, and what decides between domains.

    Without a cause, what settled reports make likely is asked first.
    """
    asked: set[str] = set()
    assumed = [leaf for leaf in chosen.held if leaf.subject.startswith("fact ") and not leaf.source] if chosen else []
    for leaf in {leaf.subject: leaf for leaf in assumed}.values():
        because = f" – {leaf.reason}" if leaf.reason else ""
        yield from field("unless", f"{_value(leaf, holds=False)}, which is not known here{because}")
        yield from _commands([leaf], asked)
    candidates = [a for a in diagnosis.considered if a.sufficient and (chosen is None or a.could_outrank(chosen))]
    if not chosen:
        shares = outlook(outcomes, facts).shares
        candidates.sort(key=lambda candidate: -shares.get(candidate.cause.domain, 0.0))
    for candidate in candidates[:SHOWN_CANDIDATES]:
        wanted = " and ".join(f"{_value(leaf)}{_because(leaf)}" for leaf in candidate.sufficient[0])
        yield from field(
            "or else" if chosen else "perhaps", f"{candidate.cause.title} ({candidate.cause.id}), if {wanted}"
        )
        yield from _commands(candidate.sufficient[0], asked)
    more = len(candidates) - SHOWN_CANDIDATES
    if more > 0:
        yield from field("", f"and {more} less likely; --details lists them")
    if not chosen:
        asked_for = {candidate.cause.domain for candidate in candidates}
        for number, check in enumerate(outlook(outcomes, facts, asked_for).checks):
            text = f"{check.noun} ({check.reports} of {check.of}), if {check.decided_by}"
            yield from field("" if number else "decided by", text)
            yield f"{' ' * (INDENT + 4)}$ {check.command}"
            yield from _example(check.example)
    if chosen and not assumed and not candidates and len(diagnosis.considered) > 1:
        yield from field("facts", "no missing fact would change this")


def _because(leaf: Leaf) -> str:
    return f" ({leaf.reason})" if leaf.reason else ""


def _value(leaf: Leaf, *, holds: bool = True) -> str:
    """A condition on a fact in words: `rocm_version is below 6.2`."""
    name, asked = leaf.subject.removeprefix("fact "), leaf.requirement
    while asked.startswith("not "):
        asked, holds = asked.removeprefix("not "), not holds
    if asked == "known":
        return f"{name} is {'set' if holds else 'not set'}"
    negation = "" if holds else "not "
    if asked.startswith("~ "):
        words = _in_words(asked.removeprefix("~ ")) or "it"
        return f"{name} {'shows' if holds else 'does not show'} {words}"
    if asked.startswith("= "):
        return f"{name} is {negation}{asked.removeprefix('= ')}"
    if asked.startswith("in "):
        return f"{name} is {negation}one of {asked.removeprefix('in ')}"
    bounds = [
        next(w + bound.removeprefix(s) for s, w in _BOUNDS.items() if bound.startswith(s))
        for bound in asked.split(", ")
    ]
    return f"{name} is {negation}{' and '.join(bounds)}"


def _in_words(pattern: str) -> str:
    """The alternatives of a pattern that read as plain text; "" if it has none."""
    plain = [part for part in pattern.split("|") if re.fullmatch(r"[\w .+\[\]-]+", part)]
    return " or ".join([", ".join(plain[:-1]), plain[-1]] if len(plain) > 1 else plain)


_BOUNDS = {"<=": "at most ", ">=": "at least ", "==": "", "!=": "other than ", "<": "below ", ">": "above "}


def _commands(leaves: Iterable[Leaf], asked: set[str]) -> Iterator[str]:
    """The commands that print these facts, each once."""
    for leaf in leaves:
        fact = leaf.subject.removeprefix("fact ")
        command = command_for(fact)
        if command and fact not in asked:
            asked.add(fact)
            yield f"{' ' * (INDENT + 4)}$ {command}"


def _emphasised(lines: list[str], *, color: bool) -> list[str]:
    return [paint(line, "1", color) for line in lines]


def every_candidate(diagnosis: Diagnosis) -> Iterator[str]:
    """Every cause that could explain an incident, condition by condition."""
    for assessment in diagnosis.considered:
        mark = ">" if assessment.cause.id == diagnosis.root_cause else MARKS[assessment.truth]
        yield f"  {mark} {assessment.cause.id}: {assessment.truth}; {STRENGTHS[assessment.cause.strength]}"
        for leaf in (*assessment.held, *assessment.failed, *assessment.undetermined):
            yield f"      {MARKS[leaf.truth]} {_condition(leaf)}"
        yield from (f"      + supported by {_condition(leaf)}" for leaf in assessment.supports)
        yield from (f"      - speaks against it: {_condition(leaf)}" for leaf in assessment.against)


def _condition(leaf: Leaf) -> str:
    value = f" ({leaf.value}{', from the ' + leaf.source if leaf.source else ''})" if leaf.value else ""
    return one_line(f"{leaf.subject} {leaf.requirement}{value}") + (f": {leaf.reason}" if leaf.reason else "")


# The shell command that prints each missing fact (docs/facts.md says what they mean). On the node of the crash:
ON_THE_NODE = {
    "amdgpu_core_package": "dpkg-query -W amdgpu-core",
    "amdgpu_rocm_release": "dpkg-query -W amdgpu-dkms amdgpu-core",
    "amdgpu_version": "cat /sys/module/amdgpu/version",
    "driver_version": "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
    "fabricmanager_running": "systemctl is-active nvidia-fabricmanager",
    "gfx_target": "rocminfo | grep -m1 -o 'gfx[0-9a-f]*'",
    "gpu_count": "gpufault facts | grep gpu_count",
    "gpu_has_driver": "lspci -k | grep -iEA3 'vga|3d|display|accelerators'",
    "gpu_model": "lspci | grep -iE 'vga|3d|display|accelerators'",
    "gpu_services_down": "gpufault facts | grep gpu_services_down",
    "gpus_lost": "gpufault timeline NODE --journal DIR",  # the facts of yesterday
    "iommu": "cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",  # identity is pt, DMA is translated
    "kernel_release": "uname -r",
    "linux_firmware": "dpkg-query -W linux-firmware || rpm -q linux-firmware",
    "neo_version": "dpkg-query -W intel-opencl-icd || rpm -q intel-opencl",
    "numa_balancing": "sysctl -n kernel.numa_balancing",
    "nvidia_mix": "cat /proc/driver/nvidia/version; ls -l /usr/lib*/libcuda.so.* /usr/lib/*/libcuda.so.*",
    "pcie_degraded": "grep . /sys/bus/pci/devices/*/{current,max}_link_width",
    "rocm_mix": "gpufault facts | grep rocm",
    "rocm_version": "cat /opt/rocm/.info/version",
    "rocm_versions": "ls -d /opt/rocm-*",
    "xid_13_jobs_on_sm": "journalctl -k | grep -E 'Xid .*: 13, .* on .GPC'",
}

# In the job, as its user, in its container, with its environment.
IN_THE_JOB = {
    "cuda_version": "python3 -c 'import torch; print(torch.version.cuda)'",
    "home_cache_writable": "touch ~/.cache/probe && echo true || echo false",
    "home_fs_type": "findmnt -no FSTYPE -T ~",
    "kokkos_malloc_async": "KOKKOS_PRINT_CONFIGURATION=1 ./program | grep MALLOC_ASYNC",
    "kokkos_options": "KOKKOS_PRINT_CONFIGURATION=1 ./program | grep UNIFIED_MEMORY",
    "kokkos_version": "KOKKOS_PRINT_CONFIGURATION=1 ./program | grep 'Kokkos Version'",
    "onednn_version": "ONEDNN_VERBOSE=1 python3 program.py | grep -m1 info,oneDNN",
    "torch_version": "python3 -c 'import torch; print(torch.__version__)'",
}


def command_for(fact: str) -> str:
    """The command that prints a fact, with a comment if it has to run in the job; "" for a custom fact."""
    if fact in ON_THE_NODE:
        return ON_THE_NODE[fact]
    inside = f"printenv {fact.removeprefix('env.')}" if fact.startswith("env.") else IN_THE_JOB.get(fact, "")
    return inside and f"{inside}  # in the job"


SHOWN_RULES = 6  # of those that look at the other kind of log only: a line of an Xid has fifty


@dataclass(frozen=True, slots=True)
class Reading:
    """One line with a required literal, or a single line given by the user."""

    number: int
    record: Record
    literals: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    elsewhere: tuple[Rule, ...]  # rules that would have been tried in the other kind of log

    def facts(self) -> dict[str, str]:
        """The facts of the job's software that the line states."""
        return {
            name: value
            for verdict in self.verdicts
            if verdict.outcome == "matched" and verdict.match and verdict.rule.kind == "fact"
            for name, value in facts_of(verdict.match, verdict.text).items()
        }


def read(lines: Sequence[str], source: SourceKind, form: LogFormat, pipeline: Pipeline) -> Iterator[Reading]:
    """The lines of a log that contain a required literal; a single line in any case."""
    gates = pipeline.matcher.gates[source]
    other: SourceKind = "kernel" if source == "job" else "job"
    for number, line in enumerate(lines, 1):
        raw = line.encode("utf-8", "backslashreplace")
        hits = {gate for gate in pipeline.engine_for(source).scan(raw).gates if gate < len(gates)}
        if not hits and len(lines) > 1:
            continue
        record = decode(raw, form, source, Clock(time.time()))
        rules = pipeline.matcher.tried_under(hits, source)
        there = set(pipeline.engine_for(other).scan(raw).gates)
        yield Reading(
            number,
            record,
            tuple(sorted(gates[gate].literal.decode() for gate in hits)),
            tuple(pipeline.evaluators.trace(hits, [record.text, *lines[number : number + MAX_LINES - 1]], source)),
            tuple(rule for rule in pipeline.matcher.tried_under(there, other) if rule not in rules),
        )


def stages_of(reading: Reading, source: SourceKind, pipeline: Pipeline) -> Iterator[str]:
    record = reading.record
    yield f"line {reading.number}   {record.text[:160]}"
    fields = {"time": record.time, "rank": record.rank, "host": record.host, "device": record.device}
    prefix = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
    if prefix:
        yield f"  prefix   {prefix}"
    if not reading.literals:
        yield "  gates    none: no signature's required literal occurs in it, so no pattern was tried"
        yield from _nearest(record.text, source, pipeline)
    else:
        yield f"  gates    {', '.join(map(repr, reading.literals))}"
    if reading.elsewhere:
        some = ", ".join(rule.id for rule in reading.elsewhere[:SHOWN_RULES])
        more = f" and {len(reading.elsewhere) - SHOWN_RULES} more" if len(reading.elsewhere) > SHOWN_RULES else ""
        yield f"  -        counts only in {'kernel' if source == 'job' else 'job'} logs: {some}{more}"
    for verdict in reading.verdicts:
        if verdict.outcome != "no pattern":
            yield from _outcome_text(verdict)
    tried = [verdict.rule.id for verdict in reading.verdicts if verdict.outcome == "no pattern"]
    if tried:
        yield f"  -        no pattern matches of: {', '.join(tried)}"


def _outcome_text(verdict: Verdict) -> Iterator[str]:
    rule = verdict.rule
    descriptions = {
        "matched": f"matches /{_short(verdict.by)}/",
        "unless": f"matches, but so does its `unless` /{_short(verdict.by)}/",
        "mid-message": f"/{_short(verdict.by)}/ matches, "
        "but amid what the kernel says, where a name that a user chose may stand",
        "echo": f"matches, but the line only quotes it (echo {verdict.by})",
        "yields": f"matches, but yields to {verdict.by}",
        "timeout": "ran out of time",
        "off": "is off for this log after timeouts",
    }
    yield f"  {'+' if verdict.outcome == 'matched' else '-'}        {rule.id}: {descriptions[verdict.outcome]}"
    if verdict.outcome == "matched" and verdict.match:
        for name, value in verdict.match.captures(verdict.text).items():
            yield f"             {name} = {value}"


def _short(pattern: str) -> str:
    """A pattern as one line; `gpufault signatures show ID` has it whole."""
    line = " ".join(pattern.split())
    return line if len(line) <= 120 else line[:119] + "…"


def _nearest(text: str, source: SourceKind, pipeline: Pipeline) -> Iterator[str]:
    """The required literal most similar to a part of the text: shows a changed wording."""
    lowered = text.lower()
    best, ratio = None, 0.6
    gates = pipeline.matcher.gates[source]
    for index, gate in enumerate(gates):
        literal = gate.literal.decode().lower()
        common = difflib.SequenceMatcher(None, lowered, literal, autojunk=False).find_longest_match()
        if common.size / len(literal) > ratio and pipeline.matcher.tried_under([index], source):
            best, ratio = index, common.size / len(literal)
    if best is not None:
        rules = ", ".join(rule.id for rule in pipeline.matcher.tried_under([best], source)[:3])
        yield f"  nearest  {gates[best].literal.decode()!r} of {rules}"
