"""What a decoded line shows: which rules match it, and what takes a match back."""

from __future__ import annotations

import time

import pytest

from exporter.core.matching.evaluators import Evaluators
from exporter.core.matching.quarantine import MAX_TIMEOUTS
from exporter.core.matching.rules import MAX_CAPTURE, Matcher, RuleMatch, Verdict, facts_of, gpu_of
from exporter.core.model import SourceKind
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.required_literals import Gate
from tests.support.matches import catalogue_of


def matcher(text: str) -> Matcher:
    return Matcher(catalogue_of(text))


def traced(matcher: Matcher, text: str, source: SourceKind) -> list[Verdict]:
    """The verdicts on the first line of a text, as if it held every required literal."""
    lines = text.split("\n") if source == "job" else [text]  # a kernel record may contain newlines
    return Evaluators(matcher).trace(range(len(matcher.gates[source])), lines, source)


def outcomes(matcher: Matcher, text: str, source: SourceKind = "job") -> dict[str, tuple[str, str]]:
    """What each rule of a source says to a line: the outcome, and what is behind it."""
    return {verdict.rule.id: (verdict.outcome, verdict.by) for verdict in traced(matcher, text, source)}


def found(matcher: Matcher, text: str, source: SourceKind = "job") -> RuleMatch:
    """What the one rule of a matcher finds in a line."""
    (verdict,) = traced(matcher, text, source)
    assert verdict.match
    return verdict.match


def captures(matcher: Matcher, text: str) -> dict[str, str]:
    return found(matcher, text).captures(text)


def test_a_rule_matches_with_the_first_of_its_patterns_that_does() -> None:
    faults = matcher(
        r"signatures: [{id: gpu_fault, patterns: ['GPU fault at (?P<address>\w+)', 'GPU fault(?P<nothing>x)?']}]"
    )
    assert outcomes(faults, "a GPU fault!") == {"gpu_fault": ("matched", "GPU fault(?P<nothing>x)?")}
    assert captures(faults, "a GPU fault at 0x1") == {"address": "0x1"}
    assert found(faults, "a GPU fault at 0x1").start == 2
    assert outcomes(faults, "a CPU fault") == {"gpu_fault": ("no pattern", "")}


def test_an_empty_capture_is_none_and_a_long_one_is_cut() -> None:
    faults = matcher("signatures: [{id: gpu_fault, patterns: ['GPU fault: (?P<empty>x*)(?P<reason>.*)']}]")
    assert captures(faults, "GPU fault: " + "y" * 10_000) == {"reason": "y" * MAX_CAPTURE}


def test_a_line_that_shows_an_excuse_does_not_count() -> None:
    faults = matcher("signatures: [{id: gpu_fault, patterns: ['GPU fault'], unless: ['injected for tests']}]")
    assert outcomes(faults, "GPU fault injected for tests") == {"gpu_fault": ("unless", "injected for tests")}


ECHOES = r"""
signatures: [{id: gpu_fault, sources: [job, kernel], patterns: ['GPU fault', 'terminate called\n  what\(\)'], lines: 3}]
log_facts: [{id: torch_version, patterns: ['torch (?P<version>\d\S+)'], set: {torch_version: '{version}'}}]
echoes: [{id: shell_trace, patterns: ['^\+ ']}, {id: search, patterns: ['^[\w./]+:\d+:']}]
"""


def test_a_line_that_quotes_an_error_does_not_count() -> None:
    faults = matcher(ECHOES)
    assert outcomes(faults, "+ grep 'GPU fault' log")["gpu_fault"] == ("echo", "shell_trace")
    assert outcomes(faults, "src/a.c:12: GPU fault")["gpu_fault"] == ("echo", "search")
    assert outcomes(faults, "GPU fault")["gpu_fault"] == ("matched", "GPU fault")


SEGFAULT = "a.out[42]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in "


@pytest.mark.parametrize(
    "lead",
    [
        SEGFAULT,
        f"{SEGFAULT}b.so: ",
        f"{SEGFAULT}b.so\n",
        "traps: a.out[42] general protection fault ip:7f2c sp:7ffd error:0 in ",
        "cgroup: fork rejected by pids controller in /user.slice/",
        "cgroup: fork rejected by pids controller in /user.slice/a: ",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/user.slice/a: ",
        "tmpfs: Bad mount option a: ",
        "tmpfs: Unknown parameter 'a: ",
    ],
)
def test_a_name_that_a_user_chose_does_not_speak_for_the_kernel(lead: str) -> None:
    faults = matcher("""signatures: [
        {id: gpu_fault, sources: [kernel], patterns: ['GPU fault', 'GPU gone'], lines: 2},
        {id: anyones, sources: [kernel], trust: anyone, patterns: ['GPU fault']}]""")
    assert outcomes(faults, f"{lead}GPU fault", "kernel") == {
        "gpu_fault": ("mid-message", "GPU fault"),
        "anyones": ("matched", "GPU fault"),
    }


@pytest.mark.parametrize(
    "lead",
    [
        "",
        "amdgpu ",
        "amdgpu 0000:c1:00.0: amdgpu: ",
        "xe 0000:03:00.0: [drm] *ERROR* ",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ",
        "amdgpu 0000:c1:00.0: [drm:gfx_v11_0_priv_reg_irq [amdgpu]] ",
        "EDAC sbridge MC0: ",
        "Kernel panic - not syncing: ",
        "Lustre: 4411:0:(client.c:2289:",
        "{1}[Hardware Error]: ",
        "---[ end ",
        "�� �!�",
    ],
)
def test_a_driver_may_put_its_names_before_its_message(lead: str) -> None:
    faults = matcher("signatures: [{id: gpu_fault, sources: [kernel], patterns: ['GPU fault']}]")
    assert outcomes(faults, f"{lead}GPU fault", "kernel") == {"gpu_fault": ("matched", "GPU fault")}


@pytest.mark.parametrize("part", ["a:", "a ", "[a", "a.-(", "[a]: ", "{1}[a]", "*ERROR* ", "-"])
def test_what_stands_before_a_message_takes_no_time(part: str) -> None:
    faults = matcher("signatures: [{id: gpu_fault, sources: [kernel], patterns: ['GPU fault']}]")
    started = time.process_time()
    outcomes(faults, f"{part * 16_000}!GPU fault", "kernel")
    assert time.process_time() - started < 1.0


def test_only_job_logs_quote() -> None:
    assert outcomes(matcher(ECHOES), "+ GPU fault", "kernel") == {"gpu_fault": ("matched", "GPU fault")}


def test_a_fact_may_stand_in_a_line_that_quotes() -> None:
    assert outcomes(matcher(ECHOES), "+ echo torch 2.6.0 GPU fault") == {
        "gpu_fault": ("echo", "shell_trace"),
        "torch_version": ("matched", r"torch (?P<version>\d\S+)"),
    }


def test_a_block_is_no_quotation_because_a_line_behind_it_is() -> None:
    faults = matcher(ECHOES)
    assert outcomes(faults, "terminate called\n  what()\n+ exit 1")["gpu_fault"][0] == "matched"
    assert outcomes(faults, "+ terminate called\n  what()\n")["gpu_fault"][0] == "echo"


YIELDING = """
signatures:
  - {id: nv_xid_generic, patterns: ['Xid .*'], yields_to: ['nv_xid_*']}
  - {id: nv_xid_79, patterns: ['Xid 79'], yields_to: [bus_lost]}
  - {id: bus_lost, patterns: ['off the bus']}
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Xid 13",
            {"nv_xid_generic": ("matched", "Xid .*"), "nv_xid_79": ("no pattern", ""), "bus_lost": ("no pattern", "")},
        ),
        (
            "Xid 79",
            {
                "nv_xid_generic": ("yields", "nv_xid_79"),
                "nv_xid_79": ("matched", "Xid 79"),
                "bus_lost": ("no pattern", ""),
            },
        ),
        (
            "Xid 79, off the bus",
            {
                "nv_xid_generic": ("yields", "nv_xid_79"),
                "nv_xid_79": ("yields", "bus_lost"),
                "bus_lost": ("matched", "off the bus"),
            },
        ),
    ],
)
def test_on_one_line_the_named_one_wins(text: str, shown: dict[str, tuple[str, str]]) -> None:
    assert outcomes(matcher(YIELDING), text) == shown


def test_a_pattern_that_runs_out_of_time_again_and_again_is_switched_off() -> None:
    slow = matcher(
        "signatures: [{id: slow_one, patterns: ['(x+x+)+[yw] GPU fault']}, {id: gpu_fault, patterns: ['GPU fault']}]"
    )
    for _ in range(MAX_TIMEOUTS):
        assert outcomes(slow, "x" * 5000 + "z GPU fault")["slow_one"] == ("timeout", "")
    assert outcomes(slow, "xxy GPU fault") == {"slow_one": ("off", ""), "gpu_fault": ("matched", "GPU fault")}
    slow.quarantine.begin("another log", "/another.log", 0.0)
    assert outcomes(slow, "xxy GPU fault")["slow_one"] == ("matched", "(x+x+)+[yw] GPU fault")


def test_an_excuse_that_runs_out_of_time_counts_against_its_rule() -> None:
    slow = matcher("signatures: [{id: gpu_fault, patterns: ['GPU fault'], unless: ['(x+x+)+[yw]']}]")
    assert outcomes(slow, "GPU fault " + "x" * 5000) == {"gpu_fault": ("timeout", "")}


def test_an_echo_that_runs_out_of_time_is_none() -> None:
    slow = matcher("""
signatures: [{id: gpu_fault, patterns: ['GPU fault']}]
echoes: [{id: slow_one, patterns: ['(x+x+)+y']}, {id: search, patterns: ['^grep: ']}]
""")
    assert outcomes(slow, "GPU fault " + "x" * 5000) == {"gpu_fault": ("matched", "GPU fault")}
    assert outcomes(slow, "grep: GPU fault " + "x" * 5000) == {"gpu_fault": ("echo", "search")}


def test_an_echo_that_runs_out_of_time_again_and_again_is_switched_off_alone() -> None:
    slow = matcher("""
signatures: [{id: gpu_fault, patterns: ['GPU fault']}]
echoes: [{id: slow_one, patterns: ['(x+x+)+[yw]', '^quoted: ']}, {id: search, patterns: ['^grep: ']}]
""")
    for _ in range(MAX_TIMEOUTS):
        assert slow.quarantine.off == frozenset()
        outcomes(slow, "GPU fault " + "x" * 5000)
    assert (slow.quarantine.off, slow.quarantine.timeouts) == ({"(x+x+)+[yw]"}, {"slow_one": MAX_TIMEOUTS})
    outcomes(slow, "GPU fault " + "x" * 5000)
    assert slow.quarantine.timeouts == {"slow_one": MAX_TIMEOUTS}, "it is not tried any more"
    assert outcomes(slow, "quoted: GPU fault") == {"gpu_fault": ("echo", "slow_one")}
    assert outcomes(slow, "grep: GPU fault") == {"gpu_fault": ("echo", "search")}


def test_a_rule_is_tried_under_each_of_its_gates_in_the_logs_of_its_source() -> None:
    both = matcher("""
signatures:
  - {id: gpu_fault, patterns: ['page fault|ring timeout', 'GPU hang']}
  - {id: ring_gone, patterns: ['ring timeout'], sources: [kernel, job]}
""")
    assert both.gates["job"] == (Gate(b"GPU hang"), Gate(b"page fault"), Gate(b"ring timeout"))
    assert both.gates["kernel"] == (Gate(b"ring timeout"),)
    assert [rule.id for rule in both.tried_under([0, 1, 2], "job")] == ["gpu_fault", "ring_gone"]
    assert [rule.id for rule in both.tried_under([0], "kernel")] == ["ring_gone"]
    (narrow,) = both.under_gates(both.tried_under([0], "job"), [0, 99], "job")
    assert [one.pattern for one in narrow.patterns] == ["GPU hang"], "the other pattern cannot match such a line"


def test_an_echo_is_looked_for_once_in_a_text_that_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []

    def find(_self: Expression, text: str) -> None:
        texts.append(text)

    quoting = matcher("echoes: [{id: search, patterns: ['^grep: ']}]")
    monkeypatch.setattr(Expression, "find", find)
    assert [quoting.echo(text) for text in ("grep: a", "grep: a", "b", "grep: a")] == [""] * 4
    assert texts == ["grep: a", "b", "grep: a"]


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            "torch 2.6.0+rocm6.2.4 from MIOpen",
            {"torch_version": "2.6.0+rocm6.2.4", "torch_minor": "2.6", "from.miopen": "yes"},
        ),
        (
            "torch 2.6.0+rocm6.2.4",
            {"torch_version": "2.6.0+rocm6.2.4", "torch_minor": "2.6"},
        ),  # a name with a gap is none
    ],
)
def test_a_fact_is_filled_in_from_what_the_line_tells(line: str, facts: dict[str, str]) -> None:
    versions = matcher(r"""
log_facts:
  - {id: torch_version, patterns: ['torch (?P<version>\S+)(?: from (?P<library>\w+))?'],
     set: {torch_version: '{version}', torch_minor: '{version|minor}', 'from.{library|lower}': 'yes'}}
""")
    assert facts_of(found(versions, line), line) == facts


@pytest.mark.parametrize(
    ("vendor", "layer", "text", "gpu"),
    [
        ("amd", "kernel", "GPU fault at PCI:0000:C1:00", "0000:c1:00.0"),  # what it names
        ("amd", "kernel", "GPU fault", "0000:0a:00.0"),  # else the device of a GPU driver's record
        ("any", "kernel", "GPU fault", None),  # a port is no GPU
        ("any", "host", "GPU fault at nowhere", None),
    ],
)
def test_a_gpu_is_named_by_the_line_or_by_its_driver(vendor: str, layer: str, text: str, gpu: str | None) -> None:
    faults = matcher(rf"""
signatures:
  - {{id: gpu_fault, vendor: {vendor}, layer: {layer}, sources: [kernel], patterns: ['GPU fault(?: at (?P<gpu>\S+))?']}}
""")
    one = found(faults, text, "kernel")
    assert gpu_of(one.rule, one.capture("gpu", text), "0000:0a:00.0") == gpu
