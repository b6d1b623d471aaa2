"""What an author is told of a pack that can be read: errors, for which it is refused, and warnings."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.authoring.draft import draft
from exporter.core.authoring.example_checks import failed_examples
from exporter.core.authoring.lint import MAX_FREQUENCY, errors, warnings
from exporter.core.catalogue.loader import LoadedPacks, load
from exporter.core.text.problems import InvalidInput

WORDS = {"fault": 60, "Status": 100, "status": 150, "waiting": 3000}
BUILT_IN = """\
pack: builtin
signatures:
  - id: gpu_fault
    title: a GPU's fault
    vendor: any
    layer: host
    severity: error
    patterns: ['GPU fault at (?P<address>0x[0-9a-f]+)']
echoes:
  - {id: prompt, title: a prompt, patterns: ['^[$] ']}
log_facts:
  - {id: torch, title: torch, patterns: ['torch (?P<version>[0-9.]+)'], set: {torch_version: '{version}'}}
"""
OWN = """\
pack: own
signatures:
  - id: own_fault
    title: a fault of our own
    vendor: any
    layer: host
    severity: error
    patterns: ['own fault (?P<code>[0-9]+)']
    examples: ['own fault 7']
    near_misses: ['own fault seven']
"""


def loaded(own: str) -> LoadedPacks:
    return load([("own.yaml", own)], [("builtin.yaml", BUILT_IN)])


def told_errors(own: str) -> list[str]:
    return [str(problem) for problem in errors(loaded(own))]


def told_warnings(own: str) -> list[str]:
    return [str(problem) for problem in warnings(loaded(own), ["os"], WORDS)]


def cause(when: str, signatures: str = "[own_fault]") -> str:
    """OWN with a root cause, whose condition stands in line 15."""
    return f"""{OWN}root_causes:
  - id: own_cause
    title: a cause
    signatures: {signatures}
    when: {when}
    verdict: workload
    strength: A
    remediation: Mend it.
"""


def test_a_correct_pack_has_neither_errors_nor_warnings() -> None:
    assert told_errors(OWN) == []
    assert told_warnings(OWN) == []


@pytest.mark.parametrize(
    ("pattern", "example", "why"),
    [
        ("own fault (?P<code>[0-9]+)", "own fault x", "none of its patterns matches; fix a pattern or the example"),
        ("own fault (?P<code>[0-9]+)", "fault 7", "no line contains a required literal ('own fault')"),
        ("own fault (?P<code>[0-9]+)", "$ own fault 7", "echo prompt matches it as a quote"),
    ],
)
def test_an_unmatched_example_is_reported_with_the_reason(pattern: str, example: str, why: str) -> None:
    text = OWN.replace("['own fault 7']", f"['own fault 8', '{example}']").replace(
        "own fault (?P<code>[0-9]+)", pattern
    )
    (told,) = told_errors(text)
    assert told.startswith("own.yaml:9:31: signatures[0].examples[1]: example does not match own_fault: " + why)


def test_a_draft_is_rejected_until_its_placeholders_are_replaced() -> None:
    text = draft(["acme: card 0000:c1:00.0 hangs"], "job", ())
    assert told_errors(text) == [
        "own.yaml:5:5: signatures[0].title: is still the placeholder 'TODO: what happened, in a few words'; replace it",
        (
            "own.yaml:15:5: signatures[0].remediation: is still the placeholder 'TODO: what to do first, in one or two "
            "sentences'; replace it"
        ),
    ]
    filled = text.replace("TODO: what happened, in a few words", "a card hangs").replace("'TODO: what", "'What")
    assert told_errors(filled) == []
    (told,) = told_errors(filled.replace("near_misses: []", "near_misses: [{text: acme hangs, why: TODO}]"))
    assert told.startswith("own.yaml:14:38: signatures[0].near_misses[0].why: is still the placeholder 'TODO'")
    (told,) = told_errors(filled.replace("# references", "references"))
    assert "signatures[0].references[0]: is still the placeholder 'TODO: a link" in told


def test_a_text_that_only_mentions_todo_is_accepted() -> None:
    assert told_errors(OWN.replace("a fault of our own", "TODOs of our own are left")) == []


def test_an_unless_that_excludes_an_example_is_reported() -> None:
    (told,) = told_errors(OWN + "    unless: ['7$']\n".replace("7", "[7]"))
    assert "its own `unless` /[7]$/ excludes it; narrow that" in told


def test_a_matched_near_miss_is_reported_with_the_pattern() -> None:
    assert told_errors(OWN.replace("'own fault seven'", "'own fault 7 again'")) == [
        (
            "own.yaml:10:19: signatures[0].near_misses[0]: near miss is matched by patterns[0]; narrow the pattern, or "
            "exclude the line with `unless`"
        )
    ]


def test_a_wrong_capture_is_reported_with_its_location() -> None:
    assert told_errors(OWN.replace("['own fault 7']", "[{text: own fault 7, captures: {code: '8', kind: x}}]")) == [
        (
            "own.yaml:9:47: signatures[0].examples[0].captures.code: capture code is '7', not '8'; fix the group's pattern, "
            "or the example"
        ),
        (
            "own.yaml:9:58: signatures[0].examples[0].captures.kind: capture kind is missing, not 'x'; fix the group's "
            "pattern, or the example"
        ),
    ]


def test_a_signature_shadowed_by_others_is_reported_once() -> None:
    shadowed = OWN.replace("own fault 7", "GPU fault at 0x7', 'GPU fault at 0x8").replace(
        "own fault (?P<code>[0-9]+)", "fault at 0x(?P<code>[0-9]+)"
    )
    assert told_errors(shadowed) == []
    assert told_errors(shadowed + "    yields_to: [gpu_fault]\n") == [
        (
            "own.yaml:3:5: signatures[0].id: own_fault never counts: gpu_fault takes each of its examples; narrow that one, "
            "or remove it from `yields_to`"
        )
    ]


def test_a_signature_shadowed_by_an_echo_is_reported_once() -> None:
    (told,) = told_errors(OWN.replace("['own fault 7']", "['$ own fault 7', '$ own fault 8']"))
    assert told.startswith("own.yaml:3:5: signatures[0].id: own_fault never counts: prompt takes each of its examples")


def test_an_echo_shadowed_by_another_is_reported() -> None:
    echo = (
        "echoes:\n  - {id: own_prompt, title: ours, patterns: ['^[$] own'], examples: ['$ own'], near_misses: [own]}\n"
    )
    (told,) = told_errors(OWN + echo)
    assert "own_prompt never counts: prompt takes each of its examples" in told


def test_an_example_without_its_log_fact_is_reported() -> None:
    fact = "log_facts:\n  - {id: own_fact, title: ours, patterns: ['rack (?P<rack>r[0-9]+)'], set: {rack: '{rack}'}, "
    assert told_errors(f"{OWN}{fact}examples: ['rack r12']}}\n") == []
    (told,) = told_errors(f"{OWN}{fact}examples: ['rack row 12, torch 2.5']}}\n")
    assert "example does not match own_fact: none of its patterns matches" in told


@pytest.mark.parametrize(
    ("when", "place", "what"),
    [
        (
            "{capture: coode, exists: true}",
            "15:12: root_causes[0].when.capture",
            "unknown capture 'coode' of own_fault; did you mean code?",
        ),
        (
            "{all: [{not: {capture: address, exists: true}}]}",
            "15:25: root_causes[0].when.all[0].not.capture",
            "unknown capture 'address' of own_fault; use one of its captures (code)",
        ),
        (
            "{match: gpu_fault, where: {code: '7'}}",
            "15:38: root_causes[0].when.where.code",
            "unknown capture 'code' of gpu_fault",
        ),
    ],
)
def test_a_condition_on_an_unknown_capture_is_an_error(when: str, place: str, what: str) -> None:
    (told,) = told_errors(cause(when))
    assert told.startswith(f"own.yaml:{place}: {what}")


def test_a_condition_on_a_capture_that_is_given_is_none() -> None:
    assert told_errors(cause("{any: [{capture: code, exists: true}, {match: 'gpu_*', where: {address: '0'}}]}")) == []


def test_a_template_that_names_no_capture_is_an_error() -> None:
    fact = "log_facts:\n  - {id: own_fact, title: ours, patterns: ['rack (?P<rack>r[0-9]+)'], set: {rack: '{raack|lower}'}}\n"
    (told,) = told_errors(OWN + fact)
    assert "log_facts[0].set.rack: unknown capture 'raack' of own_fact; did you mean rack?" in told


def test_a_condition_on_a_fact_that_nothing_tells_is_a_warning_since_a_site_may_tell_it() -> None:
    (told,) = told_warnings(cause("{any: [{fact: os, exists: true}, {fact: rack, equals: r12}]}"))
    assert told.startswith("own.yaml:15:45: root_causes[0].when.any[1].fact: no probe and no log fact reports 'rack'; ")
    assert told_warnings(cause("{any: [{fact: env.HOME, exists: true}, {fact: torch_version, version: '>=2'}]}")) == []


def test_a_misspelt_fact_is_reported_with_the_one_that_is_meant() -> None:
    (told,) = told_warnings(cause("{fact: torch_verison, version: '>=2'}"))
    assert told.startswith(
        "own.yaml:15:12: root_causes[0].when.fact: no probe and no log fact reports 'torch_verison'; "
    )
    assert "did you mean torch_version? Otherwise add it to facts.extra" in told


def test_a_signature_without_examples_or_near_misses_gets_a_warning_for_each() -> None:
    bare = OWN.partition("    examples:")[0]
    assert told_errors(bare) == []
    assert told_warnings(bare) == [
        "own.yaml:3:5: signatures[0]: own_fault has no examples; add a line as its emitter prints it",
        "own.yaml:3:5: signatures[0]: own_fault has no near_misses; add a similar line that must not match",
    ]


def test_a_loop_that_takes_exponential_time_is_a_warning_wherever_a_pattern_may_stand() -> None:
    text = cause("{match: gpu_fault, where: {address: '(?:x+)+y'}}").replace(
        "    near_misses", "    unless: ['(?:[0-9]+ ?)+$']\n    near_misses"
    )
    assert [told.split(": ")[1] for told in told_warnings(text)] == [
        "signatures[0].unless[0]",
        "root_causes[0].when.where.address",
    ]
    assert "a loop reads '00' in two ways" in told_warnings(text)[0]


def test_a_pattern_that_times_out_on_a_repetitive_text_is_a_warning_with_the_repeated_text() -> None:
    slow = OWN.replace("own fault ", "own fault .*a.*b.*", 1)
    assert slow != OWN
    (warning,) = [one for one in told_warnings(slow) if " ms " in one]
    assert "takes over 50 ms on a text that repeats 'own fault ', then 'a', then 'b'; bound the loops" in warning


def test_both_engines_are_asked_and_named() -> None:
    packs = loaded(OWN.replace("own fault 7", "own fault"))
    (broken,) = failed_examples(packs.own, packs.catalogue)
    assert (broken.engines, broken.shows, broken.text) == (("hyperscan", "python"), (), "own fault")


def test_a_pattern_that_the_analysis_cannot_read_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        loaded(OWN.replace("own fault (?P<code>[0-9]+)", "own fault{e<=1}"))
    (problem,) = refused.value.problems
    where, _, what = str(problem).partition(": {")
    assert where == "own.yaml:8:16: signatures[0].patterns[0]"
    assert what == "e<=1} is fuzzy matching, which is not supported; to match a brace, write \\{"


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (
            "status: \\d+",
            ["signatures[0].patterns[0]: is tried on each line with 'status:', as about one of 6,667 words is"],
        ),
        ("(?i)status: \\d+", ["'status:', as about one of 4,000 words"]),
        ("statu[a-z]+: \\d+", ["'statu'"]),
        ("status=(?:dead|lost)", []),
        ("statuses \\d", []),
        ("waiting for \\w+", ["'waiting for'"]),
        ("waiting at fault \\w+", []),
        ("\\w+ waiting_", []),
        ("\\w+Error: ", []),  # the name of an exception
    ],
)
def test_a_literal_that_is_a_word_of_ordinary_text_is_a_warning(pattern: str, told: list[str]) -> None:
    own = OWN.replace("patterns: ['own fault (?P<code>[0-9]+)']", f"patterns: ['{pattern}']")
    warned = [warning for warning in told_warnings(own) if "is tried on each line" in warning]
    assert len(warned) == len(told)
    assert all(part in warning for part, warning in zip(told, warned, strict=True))


def test_ordinary_words_are_counted() -> None:
    words = packs.ordinary_words()
    assert {"found", "failed", "Create", "level", "status", "timeout"} <= words.keys()
    assert min(words.values()) == MAX_FREQUENCY, "no word is missing that would be told"
    assert "hipErrorInvalidValue" not in words
