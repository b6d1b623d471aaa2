"""Packs: what is refused, where it is, and what to do; all of it at once."""

from __future__ import annotations

import pytest

from exporter.core.catalogue.loader import Catalogue, compile_packs, load_compiled, load_packs
from exporter.core.catalogue.pack_types import leaf_conditions
from exporter.core.text.problems import InvalidInput
from tests.support.matches import catalogue_of

PACK = """\
pack: {pack}
signatures:
  - id: {id}
    title: a crash
    vendor: any
    layer: host
    severity: error
    patterns: ['GPU fault at (?P<address>0x[0-9a-f]+)']
"""


def pack(name: str, signature: str, more: str = "") -> tuple[str, str]:
    """The file name and text of a pack with one signature, and `more` behind that."""
    return f"{name}.yaml", PACK.format(pack=name, id=signature) + more


def problems(*texts: tuple[str, str]) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        load_packs(texts)
    return [str(problem) for problem in caught.value.problems]


def test_a_pack_becomes_a_catalogue() -> None:
    catalogue = load_packs([pack("amd", "gpu_fault"), pack("intel", "xe_fault")])
    assert list(catalogue.signatures) == ["gpu_fault", "xe_fault"]
    assert catalogue.pack_of == {"gpu_fault": "amd", "xe_fault": "intel"}
    assert catalogue.signatures["gpu_fault"].role == "root"


def test_all_problems_of_all_files_are_reported_in_text_order() -> None:
    first = pack("amd", "Bad-Id", "    severty: high\n    lines: 17\n")
    second = ("intel.yaml", "pack: intel\nsignatures:\n  - id: xe_fault\n    patterns: ['[']\n")
    third = ("nvidia.yaml", "pack: [\n")
    told = problems(first, second, third)
    assert [line.split(": ", 2)[:2] for line in told] == [
        ["amd.yaml:3:5", "signatures[0].id"],
        ["amd.yaml:9:5", "signatures[0].severty"],
        ["amd.yaml:10:5", "signatures[0].lines"],
        ["intel.yaml:3:5", "signatures[0].title"],
        ["intel.yaml:3:5", "signatures[0].vendor"],
        ["intel.yaml:3:5", "signatures[0].layer"],
        ["intel.yaml:3:5", "signatures[0].severity"],
        ["intel.yaml:4:16", "signatures[0].patterns[0]"],
        ["nvidia.yaml:2:1", "not YAML"],
    ]
    assert told[1].endswith("no such key here; did you mean severity?")
    assert told[3].endswith("missing; add it")


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("GPU [fault", "not in the common syntax of re and regex: "),
        ("(?P<x>GPU fault)(?P<x>a)", "not in the common syntax of re and regex: "),
        ("(?:" * 5000 + ")" * 5000, "nests groups 5000 deep, over 50; write it flat"),
        ("(?:GPU fault)?", "can match without any text, and so every line; require some"),
        ("^$", "can match without any text"),
        (r"(?=GPU fault)\b", "can match without any text"),
        ("((G{1000}){1000}){1000}", "written out, its repeats are 1000000000 characters, over 20000; repeat less"),
        ("GPU fault(?:, line){100000}", "written out, its repeats are 600009 characters"),
        ("GPU fault(?=(?:x{1000}){1000})", "written out, its repeats are 1000009 characters"),
        (r"\d+ \w+", "has no literal of 4 characters that every match must contain in its first line; add one"),
        ("GPU|fault at", "has no literal of 4 characters"),
        (r"(?P<first>.*)\nGPU fault", "has no literal of 4 characters"),  # the literal must lead to the first line
        (r"GPU fault \p{Lu}", "not in the common syntax of re and regex: "),
        ("[[:digit:]] GPU fault", "not in the common syntax of re and regex: "),
        ("GPU fault{99999999999}", "not in the common syntax of re and regex: "),
    ],
)
def test_a_pattern_that_cannot_be_searched_for_is_refused_at_its_place(pattern: str, what: str) -> None:
    quoted = pattern.replace("'", "''")
    text = PACK.replace("'GPU fault at (?P<address>0x[0-9a-f]+)'", f"'GPU fault here', '{quoted}'")
    (problem,) = problems(("amd.yaml", text.replace("{pack}", "amd").replace("{id}", "gpu_fault")))
    assert problem.startswith(f"amd.yaml:8:34: signatures[0].patterns[1]: {what}")


def test_all_unsearchable_patterns_are_reported_at_once() -> None:
    text = PACK.replace("'GPU fault at (?P<address>0x[0-9a-f]+)'", r"'\d+', '(?:GPU fault)?', '\w+'")
    told = problems(("amd.yaml", text.replace("{pack}", "amd").replace("{id}", "gpu_fault")))
    assert [line.split(": ")[:2] for line in told] == [
        ["amd.yaml:8:16", "signatures[0].patterns[0]"],
        ["amd.yaml:8:23", "signatures[0].patterns[1]"],
        ["amd.yaml:8:41", "signatures[0].patterns[2]"],
    ]


def test_a_duplicate_id_is_reported_with_its_first_location() -> None:
    assert problems(pack("amd", "gpu_fault"), pack("intel", "gpu_fault")) == [
        "intel.yaml:3:5: signatures[0].id: gpu_fault is already in amd.yaml:3; rename or remove one"
    ]


def test_a_reference_to_a_rejected_signature_is_not_an_error_of_its_own() -> None:
    more = "    yields_to: [xe_fault, nv_fault]\n"
    rejected = pack("intel", "xe_fault", "    lines: 17\n")
    told = problems(rejected, pack("amd", "gpu_fault", more))
    assert [line.split(": ")[:2] for line in told] == [
        ["intel.yaml:9:5", "signatures[0].lines"],
        ["amd.yaml:9:27", "signatures[0].yields_to[1]"],
    ]
    assert len(problems(("intel.yaml", "pack: ["), pack("amd", "gpu_fault", more))) == 1
    assert len(problems(("intel.yaml", "pack: intel\nsignaturs: []\n"), pack("amd", "gpu_fault", more))) == 1


def test_a_cause_may_bear_the_name_of_a_signature() -> None:
    cause = """
root_causes:
  - {id: gpu_fault, title: a cause, signatures: [gpu_fault], verdict: workload, strength: A, remediation: Mend it.}
"""
    assert list(load_packs([pack("amd", "gpu_fault", cause)]).root_causes) == ["gpu_fault"]


def test_whatever_names_a_signature_must_name_one_of_any_pack() -> None:
    more = """
    yields_to: [gpu_fult]
    follows: ['xe_*', 'nv_*', gpu_fault]
root_causes:
  - id: a_cause
    title: a cause
    signatures: [gpu_fault, 'cuda_*']
    when: {all: [{match: xe_fault}, {not: {match: 'rocm_*'}}]}
    verdict: workload
    strength: A
    remediation: Mend it.
"""
    assert problems(pack("amd", "gpu_fault", more), pack("intel", "xe_fault")) == [
        f"amd.yaml:{place}: {glob!r} matches no signature of any pack; {advice}"
        for place, glob, advice in [
            ("10:17: signatures[0].yields_to[0]", "gpu_fult", "did you mean gpu_fault?"),
            ("11:23: signatures[0].follows[1]", "nv_*", "see `gpufault signatures list`"),
            ("15:29: root_causes[0].signatures[1]", "cuda_*", "see `gpufault signatures list`"),
            ("16:44: root_causes[0].when.all[1].not.match", "rocm_*", "see `gpufault signatures list`"),
        ]
    ]


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("{}", "give exactly one of all, any, not, fact, capture, job, match, text, reported_by"),
        (
            "{fact: os, capture: pid, exists: true}",
            "give exactly one of all, any, not, fact, capture, job, match, text, reported_by",
        ),
        ("{fact: os}", "give exactly one of equals, in, matches, exists, version, at_least"),
        ("{fact: os, equals: a, matches: b}", "give exactly one of equals, in, matches, exists, version, at_least"),
        ("{match: gpu_fault, equals: a}", "equals needs a fact, capture or job beside it"),
        ("{match: gpu_fault, in: [a]}", "in needs a fact, capture or job beside it"),
        ("{fact: os, equals: a, where: {pid: '1'}}", "where needs a match beside it"),
        ("{capture: pid, equals: a, if_unknown: held}", "if_unknown needs a fact beside it"),
    ],
)
def test_a_condition_asks_one_thing_of_one_subject(condition: str, what: str) -> None:
    cause = f"""
root_causes:
  - {{id: a_cause, title: a cause, signatures: [gpu_fault], verdict: workload, strength: A, remediation: Mend it.,
      when: {condition}}}
"""
    assert problems(pack("amd", "gpu_fault", cause)) == [f"amd.yaml:12:7: root_causes[0].when: {what}"]


def test_an_invalid_version_bound_is_rejected() -> None:
    cause = """
root_causes:
  - {id: a_cause, title: a cause, signatures: [gpu_fault], verdict: workload, strength: A, remediation: Mend it.,
      when: {fact: rocm_version, version: 6.x}}
"""
    (problem,) = problems(pack("amd", "gpu_fault", cause))
    assert problem.startswith(
        "amd.yaml:12:34: root_causes[0].when.version: invalid version bound '6.x'; use for example"
    )


@pytest.mark.parametrize("text", ["", "[]", "7", "pack: amd\nsignatures: {}\n", "pack: 'Big Name'\n"])
def test_a_text_that_is_not_a_pack_is_rejected(text: str) -> None:
    assert len(problems(("amd.yaml", text))) == 1


def test_an_example_may_be_just_its_text() -> None:
    more = "    examples: ['GPU fault at 0x1', {text: GPU fault at 0x2, captures: {address: '0x2'}}]\n"
    signature = load_packs([pack("amd", "gpu_fault", more)]).signatures["gpu_fault"]
    assert [(e.text, e.captures) for e in signature.examples] == [
        ("GPU fault at 0x1", {}),
        ("GPU fault at 0x2", {"address": "0x2"}),
    ]


@pytest.fixture(scope="module")
def xids() -> Catalogue:
    return catalogue_of("""
signatures:
  - {id: nv_xid_13, patterns: ['NVRM: Xid 13']}
  - {id: nv_xid_79, patterns: ['NVRM: Xid 79']}
  - {id: cuda_error, patterns: ['CUDA error'], follows: ['nv_xid_?9', nv_xid_13]}
root_causes:
  - {id: bad_cable, signatures: ['nv_*'], when: {any: [{fact: a, exists: true}, {not: {fact: b, exists: true}}]},
     against: [{fact: c, exists: true}]}
  - {id: bad_code, signatures: [cuda_error]}
""")


def test_globs_name_signatures(xids: Catalogue) -> None:
    assert xids.matching(["nv_*"]) == {"nv_xid_13", "nv_xid_79"}
    assert xids.matching(["nv_xid_7?", "cuda_error", "none"]) == {"nv_xid_79", "cuda_error"}
    assert [cause.id for cause in xids.causes_of("nv_xid_13")] == ["bad_cable"]
    assert xids.follows("cuda_error", "nv_xid_79")
    assert not xids.follows("nv_xid_79", "cuda_error")


def test_a_signature_switched_off_is_gone_and_what_names_it_stays(xids: Catalogue) -> None:
    less = xids.without(["nv_xid_1*"])
    assert list(less.signatures) == ["nv_xid_79", "cuda_error"]
    assert [cause.id for cause in less.causes_of("nv_xid_79")] == ["bad_cable"]
    assert not less.follows("cuda_error", "nv_xid_13")


def test_every_leaf_of_a_cause_is_found(xids: Catalogue) -> None:
    assert sorted(str(leaf.fact) for _, leaf in leaf_conditions(xids.root_causes["bad_cable"])) == ["a", "b", "c"]


def test_packs_that_were_compiled_load_as_they_were() -> None:
    texts = [pack("amd", "gpu_fault", "    examples: ['GPU fault at 0x1']\n"), pack("intel", "xe_fault")]
    loaded = load_packs([pack("site", "own_fault")], load_compiled(compile_packs(texts)))
    assert list(loaded.signatures) == ["gpu_fault", "xe_fault", "own_fault"]
    assert loaded.gates == load_packs([*texts, pack("site", "own_fault")]).gates


def test_an_own_pack_may_not_take_the_id_of_one_that_was_compiled() -> None:
    with pytest.raises(
        InvalidInput,
        match=r"site.yaml:3:5: .*gpu_fault is built in; choose another id, or add `override: true` to replace it",
    ):
        load_packs([pack("site", "gpu_fault")], load_compiled(compile_packs([pack("amd", "gpu_fault")])))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_own_pack_replaces_a_built_in_signature_only_where_it_says_so(compiled: bool) -> None:
    texts = [pack("amd", "gpu_fault"), pack("intel", "xe_fault")]
    builtin = load_compiled(compile_packs(texts)) if compiled else texts
    catalogue = load_packs([pack("site", "gpu_fault", "    override: true\n")], builtin)
    assert list(catalogue.signatures) == ["gpu_fault", "xe_fault"]
    assert catalogue.pack_of == {"gpu_fault": "site", "xe_fault": "intel"}
    assert catalogue.signatures["gpu_fault"].override


def test_a_replaced_log_fact_and_a_replaced_cause_count_once() -> None:
    rest = """
root_causes:
  - {{id: a_cause, title: {title}, signatures: [gpu_fault], verdict: workload, strength: A, remediation: Mend it.{more}}}
log_facts:
  - {{id: a_fact, title: {title}, patterns: ['os is (?P<os>.+)'], set: {{os: '{{os}}'}}{more}}}
"""
    builtin = pack("amd", "gpu_fault", rest.format(title="theirs", more=""))
    own = ("site.yaml", "pack: site" + rest.format(title="ours", more=", override: true"))
    catalogue = load_packs([own], [builtin])
    assert [fact.title for fact in catalogue.log_facts] == ["ours"]
    assert [cause.title for cause in catalogue.causes_of("gpu_fault")] == ["ours"]


def test_what_replaces_nothing_is_refused_and_so_is_a_second_replacement() -> None:
    override = "    override: true\n"
    own = [pack("mine", "gpu_fault", override), pack("yours", "gpu_fault", override), pack("theirs", "new", override)]
    with pytest.raises(InvalidInput) as caught:
        load_packs(own, [pack("amd", "gpu_fault")])
    told = [str(problem) for problem in caught.value.problems]
    assert [line.split(": ", 1)[0] for line in told] == ["yours.yaml:3:5", "theirs.yaml:3:5"]
    assert "gpu_fault is already in mine.yaml:3; rename or remove one" in told[0]
    assert "override: unknown built-in id new; correct the id, or remove `override`" in told[1]


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        (
            "layer: libary",
            "layer: host",
            "kernel, runtime, library, framework, fabric or host, not 'libary'; did you mean library?",
        ),
        ("sevrity: error", "severity: error", "7:5: signatures[0].sevrity: no such key here; did you mean severity?"),
        (
            "id: Gpu-Fault",
            "id: gpu_fault",
            "3:5: signatures[0].id: invalid name 'Gpu-Fault'; use 3 to 80 characters of a-z, 0-9 or _, beginning with a-z",
        ),
        ("title: ab", "title: a crash", "4:5: signatures[0].title: is too short; use at least 3 characters, not 2"),
        ("title: [a]", "title: a crash", "4:5: signatures[0].title: must be text, not a list"),
        ("patterns: {a: b}", "patterns: ['GPU fault at (?P<address>0x[0-9a-f]+)']", "must be a list, not a mapping"),
    ],
)
def test_a_wrong_key_or_value_is_reported_once_in_plain_words(wrong: str, right: str, told: str) -> None:
    file, text = pack("amd", "gpu_fault")
    assert right in text
    (problem,) = problems((file, text.replace(right, wrong)))
    assert told in problem
