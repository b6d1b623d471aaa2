"""Why an incident happened: roles, causes from three-valued conditions, trust, exposure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_files import schema
from exporter.core.catalogue.pack_types import Condition
from exporter.core.diagnosis import incidents, open_incidents
from exporter.core.diagnosis.assessment import Assessment, Diagnosis
from exporter.core.diagnosis.causes import (
    EvidenceContext,
    SourcedValue,
    assess,
    best_cause,
    evidence_context,
    is_at_risk,
    judge,
)
from exporter.core.diagnosis.diagnose import diagnose, incident_id, root_of, ultimate_root
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.open_incidents import Entry
from exporter.core.model import ContextLine, Job, LogContext, Match, Truth
from tests.support.matches import NOW, WINDOW, catalogue_of, entries, match

# Roles

ROLES = catalogue_of("""
signatures:
  - {id: gpu_fault, sources: [job, kernel], patterns: ['aaaa']}
  - {id: other_fault, sources: [job, kernel], patterns: ['bbbb']}
  - {id: cuda_error, patterns: ['cccc'], follows: [xid_79, gpu_fault]}
  - {id: xid_79, sources: [kernel], patterns: ['dddd']}
  - {id: second_view, sources: [job, kernel], role: confirmation, patterns: ['eeee']}
  - {id: nccl_abort, role: cascade, patterns: ['ffff'], follows: ['cuda_*', exit_code]}
  - {id: exit_code, role: cascade, patterns: ['gggg'], follows: ['*_abort']}
  - {id: warning, role: context, patterns: ['hhhh']}
  - {id: ring_a, patterns: ['iiii'], follows: [ring_b]}
  - {id: ring_b, patterns: ['jjjj'], follows: [ring_c]}
  - {id: ring_c, patterns: ['kkkk'], follows: [ring_a]}
  - {id: rocm_blas, patterns: ['llll'], follows: ['rocm_*']}
""")


def roots(*matches: Match, catalogue: Catalogue = ROLES) -> dict[str, str]:
    """The ultimate root of each incident, by signature."""
    found = entries(*matches)

    def near_of(entry: Entry) -> list[Entry]:
        return [e for e in found if e is not entry and incidents.may_explain(e.incident, entry.incident, WINDOW)]

    told = {e.incident.signature: ultimate_root(e, near_of, catalogue).incident.signature for e in found}
    assert len(told) == len(found)
    return {signature: root for signature, root in told.items() if catalogue.signatures[signature].role != "context"}


@pytest.mark.parametrize(("offset", "root"), [(8_000, "gpu_fault"), (20_000, "unrecognised_crash")])
def test_in_a_log_without_times_a_crash_far_behind_another_is_one_of_its_own(offset: int, root: str) -> None:
    catalogue = catalogue_of("""
signatures:
  - {id: gpu_fault, patterns: ['aaaa']}
  - {id: unrecognised_crash, role: confirmation}
""")
    found = roots(
        match("gpu_fault", offset=0, time_source="observed"),
        match("unrecognised_crash", offset=offset, time_source="observed"),
        catalogue=catalogue,
    )
    assert found["unrecognised_crash"] == root


def test_of_two_faults_in_a_job_the_earlier_is_the_root() -> None:
    assert roots(match("other_fault", 1), match("gpu_fault", 2)) == {
        "other_fault": "other_fault",
        "gpu_fault": "other_fault",
    }


def test_a_fault_of_its_own_outweighs_an_earlier_view_or_consequence() -> None:
    found = roots(match("exit_code", 0), match("second_view", 1), match("gpu_fault", 2))
    assert set(found.values()) == {"gpu_fault"}


def test_a_second_view_alone_is_a_fault_of_its_own() -> None:
    assert roots(match("second_view", 1), match("exit_code", 0)) == {
        "second_view": "second_view",
        "exit_code": "second_view",
    }


def test_a_consequence_alone_is_a_root_here() -> None:
    assert roots(match("exit_code"), match("warning")) == {"exit_code": "exit_code"}


def test_what_follows_another_is_its_consequence_though_it_came_first() -> None:
    found = roots(match("cuda_error", 0), match("xid_79", 2, source="kernel"))
    assert found == {"cuda_error": "xid_79", "xid_79": "xid_79"}


def test_a_chain_ends_at_its_first_link() -> None:
    found = roots(
        match("xid_79", 0, source="kernel"), match("cuda_error", 1), match("nccl_abort", 2), match("exit_code", 3)
    )
    assert set(found.values()) == {"xid_79"}


def test_a_chain_reaches_further_than_one_window() -> None:
    found = roots(match("other_fault", 0), match("gpu_fault", 50), match("second_view", 100))
    assert set(found.values()) == {"other_fault"}


def test_kernel_faults_are_apart_unless_one_follows_the_other() -> None:
    kernel = [match("gpu_fault", 0, source="kernel"), match("other_fault", 1, source="kernel")]
    assert roots(*kernel) == {"gpu_fault": "gpu_fault", "other_fault": "other_fault"}
    assert roots(*kernel, match("second_view", 2, source="kernel"))["second_view"] == "gpu_fault"


def test_a_job_is_not_explained_by_a_kernel_fault_that_it_does_not_follow() -> None:
    found = roots(match("gpu_fault", 1), match("other_fault", 0, source="kernel"))
    assert found == {"gpu_fault": "gpu_fault", "other_fault": "other_fault"}


def test_of_two_that_follow_each_other_the_earlier_is_the_root() -> None:
    assert roots(match("exit_code", 1), match("nccl_abort", 2)) == {"exit_code": "exit_code", "nccl_abort": "exit_code"}
    assert roots(match("exit_code", 2), match("nccl_abort", 1)) == {
        "exit_code": "nccl_abort",
        "nccl_abort": "nccl_abort",
    }


def test_nothing_is_a_consequence_of_itself() -> None:
    assert roots(match("rocm_blas", 0), match("exit_code", 1)) == {"rocm_blas": "rocm_blas", "exit_code": "rocm_blas"}


def test_of_a_circle_the_earliest_is_the_root() -> None:
    circle = [match("ring_c", 3), match("ring_b", 1), match("ring_a", 2)]
    assert roots(*circle) == {"ring_a": "ring_b", "ring_b": "ring_b", "ring_c": "ring_b"}


def test_a_consequence_is_never_the_root() -> None:
    """Else cuda_error, the earliest fault, would take other_fault as its consequence, and all three go in a circle."""
    catalogue = catalogue_of("""
signatures:
  - {id: cuda_error, patterns: ['aaaa'], follows: [nccl_abort]}
  - {id: nccl_abort, role: cascade, patterns: ['bbbb']}
  - {id: other_fault, patterns: ['cccc']}
""")
    found = roots(match("cuda_error", 0), match("nccl_abort", 1), match("other_fault", 2), catalogue=catalogue)
    assert set(found.values()) == {"other_fault"}


def test_a_reported_role_does_not_change() -> None:
    early, late = entries(match("second_view", 0), match("gpu_fault", 1))
    told = Entry(early.number, early.incident, open_incidents.Reported("id", "id", "root", "unknown", 1))
    assert ultimate_root(late, lambda _: [told], ROLES) is late
    assert ultimate_root(early, lambda _: [late], ROLES) is late
    assert root_of(late, [told], ROLES) is None


# Conditions


def facts_context(**facts: str) -> EvidenceContext:
    return EvidenceContext(
        {name.replace("env_", "env."): SourcedValue(value, "node") for name, value in facts.items()}, {}, {}, {}
    )


def truth(view: EvidenceContext, condition: Mapping[str, Any]) -> Truth:
    return judge(schema(Condition).validate_python(condition), view)[0]


HELD, FAILED, UNDETERMINED = {"fact": "a", "equals": "1"}, {"fact": "a", "equals": "2"}, {"fact": "gone", "equals": "1"}
OF = {"held": HELD, "failed": FAILED, "undetermined": UNDETERMINED}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"all": ["held", "held"]}, "held"),
        ({"all": ["held", "undetermined"]}, "undetermined"),
        ({"all": ["undetermined", "failed"]}, "failed"),
        ({"any": ["held", "undetermined"]}, "held"),
        ({"any": ["failed", "undetermined"]}, "undetermined"),
        ({"any": ["failed", "failed"]}, "failed"),
        ({"not": "held"}, "failed"),
        ({"not": "failed"}, "held"),
        ({"not": "undetermined"}, "undetermined"),
    ],
)
def test_conditions_have_three_truths(tree: Mapping[str, Any], expected: str) -> None:
    ((word, parts),) = tree.items()
    condition = {word: OF[parts] if isinstance(parts, str) else [OF[part] for part in parts]}
    assert truth(facts_context(a="1"), condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"fact": "os", "equals": "Debian"}, "held"),
        ({"fact": "os", "equals": "debian"}, "failed"),
        ({"fact": "os", "in": ["SLES", "Debian"]}, "held"),
        ({"fact": "os", "matches": "^Deb"}, "held"),
        ({"fact": "os", "matches": "(x+x+)+y"}, "failed"),
        ({"fact": "rocm", "version": ">=6.2, <7"}, "held"),
        ({"fact": "rocm", "version": "<6.2.1"}, "undetermined"),  # 6.2 may be 6.2.0
        ({"fact": "several", "version": ">=6.2"}, "held"),
        ({"fact": "several", "version": ">=6.3"}, "undetermined"),  # any of them may have run
        ({"fact": "several", "version": ">=7"}, "failed"),
        ({"fact": "os", "exists": True}, "held"),
        ({"fact": "os", "exists": False}, "failed"),
        ({"fact": "gone", "exists": True}, "undetermined"),  # not known is not the same as not there
        ({"fact": "gone", "exists": False}, "undetermined"),
        ({"fact": "gone", "exists": False, "if_unknown": "held"}, "held"),
        ({"fact": "gone", "equals": "x", "if_unknown": "failed"}, "failed"),
        ({"fact": "os", "equals": "SLES", "if_unknown": "held"}, "failed"),
        ({"capture": "api", "equals": "hipMemset"}, "held"),
        ({"capture": "gone", "equals": "x"}, "failed"),  # the line does not say it: that is known
        ({"capture": "gone", "exists": False}, "held"),
        ({"job": "kind", "equals": "slurm"}, "held"),
        ({"job": "user", "exists": True}, "failed"),
        ({"match": "cache_*"}, "held"),
        ({"match": "cache_*", "where": {"folder": "^/home/"}}, "held"),
        ({"match": "cache_*", "where": {"folder": "^/scratch/"}}, "failed"),
        ({"match": "cache_*", "where": {"gone": "x"}}, "failed"),
        ({"match": "nccl_*"}, "failed"),
    ],
)
def test_a_leaf_asks_one_thing(condition: Mapping[str, Any], expected: str) -> None:
    view = EvidenceContext(
        {n: SourcedValue(v, "node") for n, v in {"os": "Debian", "rocm": "6.2", "several": "6.2.4,6.3.1"}.items()},
        {"api": SourcedValue("hipMemset", "log")},
        {"id": "7", "kind": "slurm"},
        {
            "cache_warning": [
                ContextLine(path="/job.log", line=1, text="a line", captures={"folder": "/tmp"}),
                ContextLine(path="/job.log", line=2, text="b line", captures={"folder": "/home/x"}),
            ]
        },
    )
    assert truth(view, condition) == expected


def test_the_fact_that_would_decide_is_named() -> None:
    condition = {"all": [HELD, {"fact": "rocm_version", "version": ">=6.2", "why": "the race was mended there"}]}
    _, leaves = judge(schema(Condition).validate_python(condition), facts_context(a="1"))
    (open_one,) = (leaf for leaf in leaves if leaf.truth is Truth.UNDETERMINED)
    assert (open_one.subject, open_one.requirement, open_one.value, open_one.reason) == (
        "fact rocm_version", ">=6.2", "unknown", "the race was mended there",
    )  # fmt: skip


def test_the_alternative_with_the_most_evidence_is_reported() -> None:
    condition = {"any": [HELD, {"all": [HELD, {"fact": "b", "exists": True}]}, FAILED]}
    _, leaves = judge(schema(Condition).validate_python(condition), facts_context(a="1", b="2"))
    assert [(leaf.subject, leaf.requirement) for leaf in leaves] == [("fact a", "= 1"), ("fact b", "known")]


def test_failed_conditions_are_reported() -> None:
    _, leaves = judge(
        schema(Condition).validate_python({"not": FAILED, "why": "it is no cluster"}), facts_context(a="1")
    )
    assert [(leaf.subject, leaf.requirement, leaf.value, leaf.truth, leaf.reason) for leaf in leaves] == [
        ("fact a", "not = 2", "1", "held", "it is no cluster")
    ]


# Causes

CAUSES = catalogue_of("""
signatures:
  - {id: gpu_fault, sources: [job, kernel], patterns: ['aaaa'], remediation: 'Look.', references: [ref]}
  - {id: xid_79, sources: [kernel], patterns: ['bbbb']}
  - {id: nccl_abort, role: cascade, patterns: ['cccc']}
  - {id: cache_warning, role: context, patterns: ['dddd']}
root_causes:
  - {id: plain, signatures: ['*_fault'], strength: A, when: {not: {job: user, exists: true}}}
  - {id: one_fact, signatures: [gpu_fault], strength: B, when: {fact: a, equals: '1'}}
  - {id: two_facts, signatures: [gpu_fault], strength: E, when: {all: [{fact: a, equals: '1'}, {fact: b, equals: '2'}]}}
  - {id: supported, signatures: [gpu_fault], strength: C, when: {fact: a, equals: '1'},
     supported_by: [{fact: c, equals: '3', why: c shows it}, {fact: d, equals: '4'}], against: [{fact: e, equals: '5'}]}
""")


def ranked(**facts: str) -> list[str]:
    """The causes of a gpu_fault that hold, best first."""
    return [a.cause.id for a in assess("gpu_fault", facts_context(**facts), CAUSES) if a.truth is Truth.HELD]


def test_the_cause_with_the_most_evidence_wins() -> None:
    assert ranked() == ["plain"]
    assert ranked(a="1") == ["one_fact", "supported", "plain"]  # of equals the better grade
    assert ranked(a="1", b="2") == ["two_facts", "one_fact", "supported", "plain"]
    assert ranked(a="1", c="3") == ["supported", "one_fact", "plain"]
    assert ranked(a="1", c="3", d="4", b="2") == ["supported", "two_facts", "one_fact", "plain"]
    assert ranked(a="1", c="3", e="5") == ["one_fact", "supported", "plain"]
    assert ranked(a="1", e="5") == ["one_fact", "plain", "supported"]


def test_an_assessment_says_what_did_what() -> None:
    (supported,) = (
        a for a in assess("gpu_fault", facts_context(a="1", c="3", e="5"), CAUSES) if a.cause.id == "supported"
    )
    assert [(leaf.subject, leaf.requirement) for leaf in supported.held] == [("fact a", "= 1")]
    assert [(leaf.subject, leaf.reason) for leaf in supported.supports] == [("fact c", "c shows it")]
    assert [leaf.subject for leaf in supported.against] == ["fact e"]
    (two,) = (a for a in assess("gpu_fault", facts_context(a="1"), CAUSES) if a.cause.id == "two_facts")
    assert (two.truth, [leaf.subject for leaf in two.undetermined]) == (Truth.UNDETERMINED, ["fact b"])


def test_only_what_holds_in_a_support_supports() -> None:
    catalogue = catalogue_of("""
signatures: [{id: gpu_fault, patterns: ['aaaa']}]
root_causes:
  - {id: a_cause, signatures: [gpu_fault], supported_by: [{not: {all: [{fact: a, equals: '1'}, {fact: b, equals: '1'}]}}]}
""")
    (cause,) = assess("gpu_fault", facts_context(a="1", b="2"), catalogue)
    assert [leaf.subject for leaf in cause.supports] == ["fact b"]


def test_without_a_satisfied_cause_there_is_no_best_cause() -> None:
    assert best_cause(assess("xid_79", facts_context(), CAUSES)) is None
    undetermined: list[Assessment] = [a for a in assess("gpu_fault", facts_context(), CAUSES) if a.cause.id != "plain"]
    assert best_cause(undetermined) is None


# Views


def test_a_jobs_own_log_outweighs_its_other_logs_and_those_the_node() -> None:
    own = match("gpu_fault", 5, context=LogContext(facts={"torch": "own", "cuda": "own"}))
    other = match("nccl_abort", 1, path="/other.log", context=LogContext(facts={"torch": "other", "rccl": "other"}))
    stranger = match("nccl_abort", 1, job="8", context=LogContext(facts={"miopen": "stranger"}))
    a, b, c = entries(own), entries(other), entries(stranger)
    view = evidence_context(
        a[0].incident, [b[0].incident, c[0].incident], {"torch": "node", "rccl": "node", "os": "node"}
    )
    assert {name: (fact.value, fact.source) for name, fact in view.facts.items()} == {
        "torch": ("own", "log"), "cuda": ("own", "log"), "rccl": ("other", "log"), "os": ("node", "node"),
    }  # fmt: skip


def test_a_fact_is_taken_as_it_was_at_the_first_line() -> None:
    early = match("gpu_fault", 0, context=LogContext(facts={"torch": "2.5"}))
    late = match("gpu_fault", 1, context=LogContext(facts={"torch": "2.6"}))
    assert evidence_context(entries(late, early)[0].incident, [], {}).facts["torch"].value == "2.5"


def test_what_a_process_mapped_outweighs_what_its_log_says_and_that_the_environment_it_was_started_with() -> None:
    said = LogContext(facts={"torch_version": "2.5", "env.HSA_XNACK": "1"})
    process = {"torch_version": "2.6.0", "env.HSA_XNACK": "0", "env.NCCL_DEBUG": "INFO"}
    (entry,) = entries(match("gpu_fault", context=said, process=process))
    view = evidence_context(entry.incident, [], {"torch_version": "node", "env.NCCL_DEBUG": "node"})
    assert {name: (fact.value, fact.source) for name, fact in view.facts.items()} == {
        "torch_version": ("2.6.0", "process"), "env.HSA_XNACK": ("1", "log"), "env.NCCL_DEBUG": ("INFO", "process"),
    }  # fmt: skip


def test_of_one_version_the_longer_telling_is_kept() -> None:
    said = LogContext(facts={"rocm_version": "6.2.3", "torch_version": "2.10.0"})
    wheel = {"rocm_version": "6.2", "torch_version": "2.1"}  # a wheel's name has two numbers
    (entry,) = entries(match("gpu_fault", context=said, process=wheel))
    assert {name: fact.value for name, fact in evidence_context(entry.incident, [], {}).facts.items()} == {
        "rocm_version": "6.2.3", "torch_version": "2.1",
    }  # fmt: skip


def test_a_line_of_the_same_log_is_evidence_though_it_is_long_ago() -> None:
    marks = {"cache_warning": ContextLine(path="/job.log", line=3, text="not writable", captures={"folder": "/home/x"})}
    (entry,) = entries(match("gpu_fault", 9000, context=LogContext(marks=marks)))
    assert (
        truth(evidence_context(entry.incident, [], {}), {"match": "cache_warning", "where": {"folder": "home"}})
        == "held"
    )


def test_a_job_is_described_as_far_as_it_is_known() -> None:
    (unknown,) = entries(match("gpu_fault", job=None))
    (known_one,) = entries(match("gpu_fault", job=Job(id="7", kind="slurm", user="ada")))
    assert evidence_context(unknown.incident, [], {}).job == {}
    assert evidence_context(known_one.incident, [], {}).job == {"id": "7", "kind": "slurm", "user": "ada"}


# Diagnoses


def alone(m: Match, catalogue: Catalogue = CAUSES, **facts: str) -> Diagnosis:
    (entry,) = entries(m)
    return diagnose(entry, [], entry, facts, catalogue, "node")


def test_a_diagnosis_tells_its_cause_and_the_evidence_for_it() -> None:
    told = alone(match("gpu_fault"), a="1", c="3")
    assert (told.role, told.root_cause, told.caused_by, told.remediation) == ("root", "supported", None, "Mend it.")
    assert [(e.subject, e.value, e.reason) for e in told.evidence] == [
        ("fact a", "1", ""),
        ("fact c", "3", "c shows it"),
    ]


def test_without_a_cause_the_signature_says_what_to_do() -> None:
    catalogue = catalogue_of(
        "signatures: [{id: gpu_fault, patterns: ['aaaa'], remediation: 'Look.', references: [ref]}]"
    )
    told = alone(match("gpu_fault"), catalogue)
    assert (told.root_cause, told.verdict, told.remediation, told.references) == (
        "unknown",
        "unclear",
        "Look.",
        ("ref",),
    )


def test_a_consequence_is_a_peers_failure_only_where_its_text_says_so_and_its_root_is_not_here() -> None:
    catalogue = catalogue_of("""
signatures:
  - {id: gpu_fault, patterns: ['aaaa']}
  - {id: nccl_abort, role: cascade, patterns: ['cccc']}
root_causes:
  - {id: peer_failure, signatures: [nccl_abort], verdict: unclear, when: {text: peer died}}
""")
    assert alone(match("nccl_abort", text="aborted"), catalogue).root_cause == "unknown"
    assert alone(match("nccl_abort", text="a peer died"), catalogue).root_cause == "peer_failure"
    tracker = IncidentTracker(catalogue, "node", window=WINDOW, settle=15.0)
    tracker.add([match("gpu_fault"), match("nccl_abort", 1, text="a peer died")])
    settled = tracker.settle(0.0, lambda _: {}, everything=True)
    assert [(d.role, d.root_cause) for d in settled] == [("root", "unknown"), ("cascade", "unknown")]


def test_repeated_evidence_is_reported_once_with_all_reasons() -> None:
    catalogue = catalogue_of("""
signatures: [{id: gpu_fault, patterns: ['aaaa']}]
root_causes:
  - {id: a_cause, signatures: [gpu_fault], when: {all: [
      {fact: a, equals: '1', why: first}, {fact: a, exists: true, why: second}, {fact: b, equals: x, if_unknown: held}]}}
""")
    assert [(e.subject, e.value, e.reason) for e in alone(match("gpu_fault"), catalogue, a="1").evidence] == [
        ("fact a", "1", "first; second")  # and nothing of b, which nobody knows
    ]


def test_a_consequence_names_its_root() -> None:
    root, cascade = entries(match("gpu_fault", 0), match("nccl_abort", 1))
    told = diagnose(cascade, [root], root, {}, CAUSES, "node")
    assert (told.role, told.caused_by) == ("cascade", incident_id(root.incident, "node"))


def test_a_reported_diagnosis_is_not_withdrawn_and_keeps_its_evidence() -> None:
    (entry,) = entries(match("gpu_fault"))
    settled = Entry(
        entry.number, entry.incident, open_incidents.Reported("first-id", "first-id", "root", "one_fact", 1)
    )
    told = diagnose(settled, [], settled, {"a": "1", "b": "2"}, CAUSES, "node")
    assert (told.id, told.root_cause, told.role, told.caused_by) == ("first-id", "one_fact", "root", None)
    assert [e.subject for e in told.evidence] == ["fact a"]


# Trust

TRUST = catalogue_of("""
signatures:
  - {id: gpu_fault, severity: critical, sources: [job, kernel], patterns: ['aaaa']}
  - {id: xid_79, sources: [kernel], patterns: ['bbbb']}
root_causes:
  - {id: bad_node, signatures: [gpu_fault], verdict: infrastructure, action: replace,
     when: {any: [{fact: a, equals: '1'}, {match: xid_79}, {fact: b, exists: true, if_unknown: held}]}}
""")


@pytest.mark.parametrize(
    ("m", "near", "facts", "cause", "verdict", "action"),
    [
        # A job can say anything, and name its libraries as it likes.
        (match("gpu_fault", context=LogContext(facts={"a": "1"})), [], {}, "bad_node", "infrastructure", None),
        (match("gpu_fault", process={"a": "1"}), [], {}, "bad_node", "infrastructure", None),
        (match("gpu_fault"), [], {"a": "1"}, "bad_node", "infrastructure", "replace"),  # we read it
        (
            match("gpu_fault"),
            [match("xid_79", source="kernel")],
            {},
            "bad_node",
            "infrastructure",
            "replace",
        ),  # the kernel said it
        (match("gpu_fault", source="kernel"), [], {}, "unknown", "unclear", None),  # an assumption is not evidence
        (match("gpu_fault"), [], {}, "unknown", "unclear", None),
    ],
)
def test_a_job_may_blame_the_infrastructure_but_cannot_call_an_operator(
    m: Match, near: list[Match], facts: Mapping[str, str], cause: str, verdict: str, action: str | None
) -> None:
    (entry,) = entries(m)
    told = diagnose(entry, entries(*near), entry, facts, TRUST, "node")
    assert (told.root_cause, told.verdict, told.action) == (cause, verdict, action)


def test_a_job_may_blame_its_workload_by_its_own_word() -> None:
    told = alone(match("gpu_fault", context=LogContext(facts={"a": "1"})))
    assert (told.root_cause, told.verdict) == ("one_fact", "workload")


# Ids


def test_an_id_is_the_same_in_a_replay_and_another_for_another_place() -> None:
    def told(**what: Any) -> str:
        return alone(match("gpu_fault", **what)).id

    assert told() == told(read_at=NOW + 1e6, rank="3", path="/renamed.log")
    assert (
        len({told(), told(origin="b"), told(offset=7), told(text="x"), told(time=NOW + 1), told(source="kernel")}) == 6
    )
    assert told(time_source="observed") == told(time_source="observed", time=NOW + 1)
    assert told(source="kernel") == told(source="kernel", time=NOW + 1)  # an estimate, other at each start
    by_number = told(source="kernel", seq=7)
    assert by_number == told(source="kernel", seq=7, offset=99, line=9)  # wherever a reading of the ring begins
    assert by_number == told(source="kernel", offset=7)  # as an earlier version stored it


def test_the_same_line_on_another_node_has_another_id() -> None:
    (entry,) = entries(match("gpu_fault"))
    assert incident_id(entry.incident, "a") != incident_id(entry.incident, "b")
    assert len(incident_id(entry.incident, "a")) == 16


# What would decide


@pytest.mark.parametrize(
    ("when", "ways"),
    [
        ("{fact: gone, equals: '1'}", [["fact gone"]]),
        ("{all: [{fact: a, equals: '1'}, {fact: gone, equals: '1'}]}", [["fact gone"]]),  # what holds is no question
        ("{any: [{fact: a, equals: '2'}, {fact: gone, equals: '1'}]}", [["fact gone"]]),  # nor what cannot hold
        (
            "{any: [{all: [{fact: far, equals: '1'}, {fact: gone, equals: '1'}]}, {fact: away, equals: '1'}]}",
            [["fact away"], ["fact far", "fact gone"]],
        ),
        ("{not: {any: [{fact: gone, equals: '1'}, {fact: far, equals: '1'}]}}", [["fact gone", "fact far"]]),
        ("{not: {all: [{fact: gone, equals: '1'}, {fact: far, equals: '1'}]}}", [["fact gone"], ["fact far"]]),
        ("{fact: a, equals: '1'}", []),
    ],
)
def test_an_undetermined_cause_names_what_would_do_the_shortest_first(when: str, ways: list[list[str]]) -> None:
    catalogue = catalogue_of(f"""
signatures: [{{id: gpu_fault, patterns: ['aaaa']}}]
root_causes: [{{id: a_cause, signatures: [gpu_fault], when: {when}}}]
""")
    (assessment,) = assess("gpu_fault", facts_context(a="1"), catalogue)
    assert ways == [[leaf.subject for leaf in way] for way in assessment.sufficient]


def test_a_cause_that_asks_for_a_fact_twice_has_no_more_evidence_for_it() -> None:
    catalogue = catalogue_of("""
signatures: [{id: gpu_fault, patterns: ['aaaa']}]
root_causes:
  - {id: asks_once, signatures: [gpu_fault], strength: A, when: {fact: a, equals: '1'}}
  - {id: asks_twice, signatures: [gpu_fault], strength: B, when: {all: [{fact: a, exists: true}, {fact: a, equals: '1'}]}}
""")
    best = best_cause(assess("gpu_fault", facts_context(a="1"), catalogue))
    assert best is not None
    assert best.cause.id == "asks_once"


def test_a_missing_fact_could_put_a_cause_above_another_only_with_enough_evidence() -> None:
    catalogue = catalogue_of("""
signatures: [{id: gpu_fault, patterns: ['aaaa']}]
root_causes:
  - {id: held, signatures: [gpu_fault], when: {all: [{fact: a, equals: '1'}, {fact: b, equals: '1'}]}}
  - {id: one_more, signatures: [gpu_fault], when: {fact: gone, equals: '1'}}
  - id: three_more
    signatures: [gpu_fault]
    when: {all: [{fact: a, equals: '1'}, {fact: gone, equals: '1'}, {fact: far, equals: '1'}]}
""")
    by_id = {a.cause.id: a for a in assess("gpu_fault", facts_context(a="1", b="1"), catalogue)}
    assert not by_id["one_more"].could_outrank(by_id["held"])
    assert by_id["three_more"].could_outrank(by_id["held"])


# Exposure


@pytest.mark.parametrize(
    ("when", "facts", "is_exposed"),
    [
        ("{fact: a, equals: '1'}", {"a": "1"}, True),
        ("{fact: a, equals: '1'}", {"a": "2"}, False),
        ("{fact: a, equals: '1'}", {}, False),
        ("{all: [{fact: a, equals: '1'}, {match: gpu_fault}, {capture: x, exists: true}]}", {"a": "1"}, True),
        ("{all: [{fact: a, equals: '1'}, {fact: b, equals: '1'}]}", {"a": "1"}, False),  # b may be anything
        ("{any: [{fact: a, equals: '1'}, {match: gpu_fault}]}", {"a": "2"}, False),
        ("{any: [{fact: a, equals: '1'}, {fact: b, equals: '1'}]}", {"a": "1"}, True),
        ("{all: [{fact: a, equals: '1'}, {fact: env.HSA_XNACK, equals: '1'}]}", {"a": "1"}, True),  # a job's, not known
        (
            "{all: [{fact: a, equals: '1'}, {fact: env.HSA_XNACK, equals: '1'}]}",
            {"a": "1", "env.HSA_XNACK": "0"},
            False,
        ),
        ("{not: {fact: a, equals: '1'}}", {"a": "2"}, False),  # what a node is not can only rule a cause out
        ("{all: [{fact: a, equals: '1'}, {not: {fact: b, equals: '1'}}]}", {"a": "1", "b": "2"}, True),
        ("{all: [{fact: a, equals: '1'}, {not: {fact: b, equals: '1'}}]}", {"a": "1", "b": "1"}, False),
        ("{not: {fact: a, equals: '1'}}", {}, False),
        ("{not: {any: [{fact: a, equals: '1'}, {fact: b, equals: '1'}]}}", {"a": "2"}, False),  # b may be 1
        ("{not: {all: [{fact: a, equals: '1'}, {fact: b, equals: '1'}]}}", {"a": "2"}, False),
        ("{all: [{fact: a, equals: '1'}, {not: {match: gpu_fault}}]}", {"a": "1"}, True),
        ("{match: gpu_fault}", {"a": "1"}, False),  # a cause that asks for no fact exposes nobody
        ("{fact: a, equals: '1', if_unknown: held}", {}, False),  # what is assumed of a crash is not known of a node
        ("{all: [{fact: a, equals: '1'}, {fact: b, equals: '1', if_unknown: failed}]}", {"a": "1"}, True),
    ],
)
def test_a_node_is_exposed_where_its_facts_meet_a_causes_conditions(
    when: str, facts: dict[str, str], is_exposed: bool
) -> None:
    catalogue = catalogue_of(f"""
signatures: [{{id: gpu_fault, patterns: ['aaaa']}}]
root_causes: [{{id: a_cause, signatures: [gpu_fault], when: {when}}}]
""")
    assert is_at_risk(catalogue.root_causes["a_cause"], facts) is is_exposed


def test_a_cause_without_conditions_puts_no_node_at_risk() -> None:
    assert not is_at_risk(CAUSES.root_causes["plain"], {"a": "1"})
