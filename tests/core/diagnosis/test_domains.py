"""Where a fault lies: by its cause, else by its line, and for a consequence by its root."""

import pytest

from exporter.config import packs
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.model import LogContext, Match, SourceKind, implied_verdict
from exporter.core.text.problems import InvalidInput
from tests.support.matches import catalogue_of, match

PACK = """
signatures:
  - {id: card_lost, patterns: ['aaaa'], domain: hardware}
  - {id: call_failed, patterns: ['bbbb'], domain: library}
  - {id: driver_too_old, layer: runtime, patterns: ['kkkk'], domain: mismatch}
  - {id: was_set_wrong, patterns: ['eeee'], domain: configuration}
  - {id: said_nothing, patterns: ['cccc']}
  - {id: peer_gone, role: cascade, patterns: ['dddd'], domain: network, follows: [call_failed]}
  - {id: link_flapped, severity: warning, patterns: ['eeee'], domain: network}
  - {id: queue_hung, sources: [kernel], reach: job, patterns: ['ffff'], domain: driver}
  - {id: disk_hung, sources: [kernel], patterns: ['gggg'], domain: storage}
  - {id: memory_short, severity: info, patterns: ['hhhh'], domain: resources}
  - {id: index_wrong, patterns: ['iiii'], domain: program}
  - {id: disk_full, patterns: ['jjjj'], domain: resources, verdict: unclear}
root_causes:
  - {id: peer_failure, title: a peer, signatures: [peer_gone], verdict: unclear, strength: B, remediation: Look there.,
     when: {text: peer died}}
  - {id: wedged, title: a card or its driver, signatures: [queue_hung], verdict: unclear, strength: B, remediation: Reset it.,
     when: {text: reset}}
  - id: too_old
    title: The version is too old
    signatures: [call_failed]
    when: {fact: version, version: '<2'}
    verdict: unclear
    domain: mismatch
    strength: B
    remediation: Update it.
"""
# A line of these causes cannot tell a card from its driver, or a program from what it calls.
OPEN = {
    "channels_cleaned_up", "crash_without_message", "gpu_action_required", "gpu_job_never_ended", "gpu_not_initialised",
    "gpu_reset_required", "iommu_refused_dma", "killed_without_message", "named_process_died", "node_reboot_required",
    "peer_failure", "triton_kernel_exceeds_gpu", "triton_launch_rejected",
}  # fmt: skip


def diagnosed(*matches: Match, facts: dict[str, str] | None = None) -> dict[str, Diagnosis]:
    tracker = IncidentTracker(catalogue_of(PACK), "n1", window=60.0, settle=15.0)
    tracker.add(matches)
    diagnoses = tracker.settle(1e12, lambda _: facts or {}, everything=True)
    return {diagnosis.incident.signature: diagnosis for diagnosis in diagnoses}


@pytest.mark.parametrize(
    ("signature", "facts", "domain"),
    [
        ("card_lost", {}, "hardware"),
        ("said_nothing", {}, "unknown"),
        ("call_failed", {"version": "1.9"}, "mismatch"),
        ("call_failed", {"version": "2.0"}, "library"),
        ("call_failed", {}, "library"),
    ],
)
def test_a_cause_tells_it_and_without_one_the_line(signature: str, facts: dict[str, str], domain: str) -> None:
    assert diagnosed(match(signature), facts=facts)[signature].domain == domain


def test_a_consequence_has_the_domain_of_its_root() -> None:
    both = diagnosed(match("call_failed", 0), match("peer_gone", 1), facts={"version": "1"})
    assert both["peer_gone"].domain == both["call_failed"].domain == "mismatch"
    assert diagnosed(match("peer_gone"))["peer_gone"].domain == "network"


def test_a_cause_that_cannot_tell_leaves_it_to_the_line_but_what_a_peer_met_is_unknown() -> None:
    wedged = match("queue_hung", source="kernel", text="reset")
    assert diagnosed(wedged)["queue_hung"].domain == "driver"
    assert diagnosed(match("peer_gone", text="peer died"))["peer_gone"].domain == "unknown"


@pytest.mark.parametrize(
    ("signature", "source", "verdict"),
    [
        ("card_lost", "job", "infrastructure"),
        ("disk_hung", "kernel", "infrastructure"),
        ("link_flapped", "job", "unclear"),  # a warning condemns nothing
        ("queue_hung", "kernel", "unclear"),  # a user's program can provoke it
        ("peer_gone", "job", "unclear"),  # its root may be elsewhere
        ("memory_short", "job", "workload"),
        ("index_wrong", "job", "workload"),
        ("disk_full", "job", "unclear"),  # its pack says so
        ("call_failed", "job", "unclear"),  # whose library it is decides
        ("said_nothing", "job", "unclear"),
    ],
)
def test_without_a_cause_the_verdict_follows_the_domain(signature: str, source: SourceKind, verdict: str) -> None:
    assert diagnosed(match(signature, source=source))[signature].verdict == verdict


@pytest.mark.parametrize(
    "signature", ["nccl_ib_completion_error", "amdkfd_hws_hang", "cuda_unknown_error", "stale_file_handle"]
)
def test_a_domain_that_is_only_usual_condemns_no_node(signature: str) -> None:
    usual = packs.load().signatures[signature]
    assert implied_verdict(usual.domain, usual.severity) == "infrastructure"
    assert usual.usual_verdict == "unclear"


@pytest.mark.parametrize(
    ("signature", "source", "owner", "verdict"),
    [
        ("call_failed", "job", "user", "workload"),
        ("call_failed", "job", "others", "unclear"),
        ("driver_too_old", "job", "user", "unclear"),  # the node's driver may be what does not fit
        ("was_set_wrong", "job", "user", "unclear"),  # a setting is not of a package
        ("call_failed", "kernel", "user", "unclear"),  # no log of a job decides what the kernel reports
        ("card_lost", "job", "user", "infrastructure"),
        ("said_nothing", "job", "user", "unclear"),
    ],
)
def test_a_fault_of_a_package_is_the_jobs_if_its_user_installed_it(
    signature: str, source: SourceKind, owner: str, verdict: str
) -> None:
    context = LogContext(facts={"traceback_owner": owner})
    diagnosis = diagnosed(match(signature, source=source, context=context))[signature]
    assert diagnosis.verdict == verdict
    assert ("fact traceback_owner" in [e.subject for e in diagnosis.evidence]) == (verdict == "workload")


def test_no_line_that_a_user_can_provoke_condemns_a_node_by_its_domain() -> None:
    provoked = [s for s in packs.load().signatures.values() if "kernel" in s.sources and s.reach == "job"]
    assert {s.id for s in provoked if s.verdict is None and s.usual_verdict != "unclear"} == set()


def test_a_verdict_of_a_line_that_contradicts_its_domain_is_refused() -> None:
    with pytest.raises(InvalidInput, match="verdict: workload contradicts domain: hardware"):
        catalogue_of(PACK.replace("domain: hardware", "domain: hardware, verdict: workload"))


@pytest.mark.parametrize(
    ("domain", "verdict"), [("hardware", "workload"), ("storage", "workload"), ("program", "infrastructure")]
)
def test_a_verdict_that_contradicts_the_domain_is_refused(domain: str, verdict: str) -> None:
    pack = PACK.replace("verdict: unclear\n", f"verdict: {verdict}\n").replace("domain: mismatch", f"domain: {domain}")
    with pytest.raises(InvalidInput, match=f"verdict: {verdict} contradicts domain: {domain}"):
        catalogue_of(pack)


def test_each_built_in_cause_has_a_domain_but_those_that_cannot_tell() -> None:
    causes = packs.load().root_causes.values()
    assert {cause.id for cause in causes if cause.domain == "unknown"} == OPEN
