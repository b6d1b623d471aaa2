"""Which signatures, log facts and crash shapes a decoded text shows. Compiled from a catalogue; knows no blocks or files.

Every regex call has a time budget. A rule that runs out of it again and again on one log is not tried there for a while.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import CrashShape, LogFact, Patterned, Signature
from exporter.core.facts.pci import normalise_pci
from exporter.core.matching.quarantine import Quarantine
from exporter.core.model import SourceKind
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.required_literals import Gate
from exporter.core.values import dataclass, field, replace

if TYPE_CHECKING:
    import regex

MAX_TEXT = (
    2048  # characters of a line that a regex sees, five times the longest example; longer lines are seen around a gate
)
LONG_TEXT = (
    256  # characters: the cost is at most quadratic, so a shorter text costs under 1/64 of the longest; not timed
)
MAX_FOLLOWING_TEXT = 512  # characters of each following line of a block; of the examples, none is longer than 389
MAX_CAPTURE = 512  # characters of a capture: an API call with its arguments fits, a tensor dump does not

Kind = Literal["signature", "fact", "shape"]
Outcome = Literal["matched", "no pattern", "unless", "mid-message", "echo", "yields", "timeout", "off", "needs lines"]
_TEMPLATE = re.compile(r"\{(\w+)(?:\|(minor|lower))?\}")
# What the kernel puts before what it says: `amdgpu 0000:c1:00.0: [drm:fn [amdgpu]] *ERROR* `, `EDAC sbridge MC0: `. More
# words than these tell of something, and may go on with what a user chose: the name of a cgroup, of a file that crashed
# (`a.out[42]: segfault at 0 ip … in NAME`), of an option to mount. So may what stands behind a newline in a record.
LEAD = re.compile(
    r"(?x)[^\w\n]{0,16}"  # `---[ `, or what a serial line made of bytes
    r"(?:Kernel\ panic\ -\ not\ syncing:\ | [\w.-]+\ (?:[\w.-]+\ (?=[\w.-]+:))?)?"
    r"(?:[\w.()-]+:\ ? | (?:\{\d+\})?\[[^]]{1,64}\]{1,2}:?\ | \*ERROR\*\ )*"
)

# A record that begins with the name of a process, which its user chose: up to 15 characters of anything (`TASK_COMM_LEN`).
# Such a record speaks of that process and of nothing else: arch/x86/kernel/traps.c, mm/page_alloc.c, kernel/signal.c.
PROCESS = re.compile(
    r"(?s)(?:traps: )?(?P<comm>.{1,15}?)"
    r"(?:\[\d{1,10}\]:? |/\d{1,10}: | \(\d{1,10}\): |: page allocation failure| invoked oom-killer)"
)


class RuleMatch(NamedTuple):
    """A rule that matches a text: the start of the match, and its captures: name, constant value or "", start and stop."""

    rule: Rule
    start: int
    groups: tuple[tuple[str, str, int, int], ...]

    def captures(self, text: str) -> dict[str, str]:
        """The captures that are not empty."""
        return {
            name: constant or text[start : min(stop, start + MAX_CAPTURE)]
            for name, constant, start, stop in self.groups
        }

    def capture(self, name: str, text: str) -> str:
        """One of them; "" if it is empty or no capture of the rule."""
        for group, constant, start, stop in self.groups:
            if group == name:
                return constant or text[start : min(stop, start + MAX_CAPTURE)]
        return ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one rule for one line, for `explain`, and the pattern, echo or signature that decided it."""

    rule: Rule
    outcome: Outcome
    by: str = ""
    match: RuleMatch | None = None
    text: str = ""  # in which the rule matched


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A compiled signature, log fact or crash shape. Equal is only what is the same."""

    id: str
    kind: Kind
    sources: tuple[SourceKind, ...]
    lines: int
    patterns: tuple[Expression, ...]
    unless: tuple[Expression, ...]
    of_gpu_driver: bool = False
    of_process: bool = False  # a kernel line that a user's program can provoke
    named_last: bool = False  # its driver names the process in the last line of a report, not in the first
    ends_report: bool = False  # a line about what became of the process, as Xid 43
    is_context: bool = False
    crash: str = ""  # the kind of a crash shape; the next are of such too
    ends_process: bool = False
    in_traceback: bool = False
    needs_report: bool = False
    reports_end: bool = False
    reports_success: bool = False
    reports_start: bool = False
    shows_waiting: bool = False  # its lines say where a rank waits in a collective
    ends_job: bool = False  # counts only where its log ends with it
    forgeable: bool = False  # also where a user wrote the line into the kernel log
    yields_to: frozenset[str] = frozenset()
    set: Mapping[str, str] = field(default_factory=dict)


class Matcher:
    """All rules of a catalogue, and the gates under which each is to be tried."""

    def __init__(self, catalogue: Catalogue, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.rules: tuple[Rule, ...] = (
            *(_rule(s, "signature", catalogue) for s in catalogue.signatures.values()),
            *(_rule(f, "fact", catalogue) for f in catalogue.log_facts),
            *(_rule(s, "shape", catalogue) for s in catalogue.crash_shapes),
        )
        self._echoes = tuple(
            (echo.id, expression) for echo in catalogue.echoes for expression in catalogue.expressions(echo.patterns)
        )
        self.echo_expressions = [expression for _, expression in self._echoes]
        self._last_echo = ("", "")  # the text, and the echo that it is
        self.quarantine = Quarantine(clock)
        self._gates_of = catalogue.gates
        under: dict[SourceKind, defaultdict[Gate, list[Rule]]] = {"job": defaultdict(list), "kernel": defaultdict(list)}
        for rule in self.rules:
            for gate in {gate for one in rule.patterns for gate in catalogue.gates[one.pattern]}:
                for source in rule.sources:
                    under[source][gate].append(rule)
        self.gates: dict[SourceKind, tuple[Gate, ...]] = {s: tuple(sorted(rules)) for s, rules in under.items()}
        self._under = {s: tuple(tuple(under[s][gate]) for gate in gates) for s, gates in self.gates.items()}

    def tried_under(self, hit: Iterable[int], source: SourceKind) -> list[Rule]:
        """The rules of a source to try on a line that holds these gates, each once, in the catalogue's order.

        An engine may look for more literals than gates; their indices come behind, and lead to no rule.
        """
        under = self._under[source]
        rules = {id(rule): rule for gate in sorted(hit) if gate < len(under) for rule in under[gate]}
        return list(rules.values())

    def under_gates(self, rules: Iterable[Rule], hit: Iterable[int], source: SourceKind) -> list[Rule]:
        """Rules with only those patterns that can match a line with these gates."""
        all_gates = self.gates[source]
        gates = {all_gates[index] for index in hit if index < len(all_gates)}
        return [
            replace(rule, patterns=tuple(one for one in rule.patterns if gates & self._gates_of[one.pattern]))
            for rule in rules
        ]

    def echo(self, text: str) -> str:
        """The echo that a line is, or "". Asked again of one text while the lines behind it are looked at."""
        last, echo = self._last_echo
        if last != text or self.quarantine.off:
            before = self.quarantine.unsure
            echo = self._echo(text)
            if before == self.quarantine.unsure:
                self._last_echo = text, echo
        return echo

    def _echo(self, text: str) -> str:
        for name, expression in self._echoes:
            if self.quarantine.off and self.quarantine.is_off(expression.pattern):
                continue
            started = self.quarantine.clock() if len(text) >= LONG_TEXT else 0.0
            try:
                if expression.find(text):
                    return name
            except TimeoutError:
                self.quarantine.ran_out(expression.pattern, name)
            finally:
                if started:
                    self.quarantine.took(expression.pattern, name, self.quarantine.clock() - started)
        return ""


def longest_text(lines: int) -> int:
    """The characters of the longest text in which a rule of so many lines is searched for."""
    return MAX_TEXT + (lines - 1) * (MAX_FOLLOWING_TEXT + 1)


def slots(template: str) -> set[str]:
    """The captures that a log fact's template asks for."""
    return {slot[1] for slot in _TEMPLATE.finditer(template)}


def facts_of(match: RuleMatch, text: str) -> dict[str, str]:
    """The facts that a matched log fact sets by its templates. A template whose capture is empty sets nothing."""
    facts, captures = {}, match.captures(text)
    for name_template, value_template in match.rule.set.items():
        name, value = _fill(name_template, captures), _fill(value_template, captures)
        if name and value:
            facts[name] = value
    return facts


def gpu_of(rule: Rule, gpu: str | None, device: str | None) -> str | None:
    """The PCI address in a match's `gpu` capture, else, for a GPU's own driver, that of the record's device.

    The device in a record of a port, NIC or disk is not a GPU.
    """
    return (gpu and normalise_pci(gpu)) or (normalise_pci(device) if device and rule.of_gpu_driver else None)


def _rule(item: Patterned, kind: Kind, catalogue: Catalogue) -> Rule:
    yields_to = item.yields_to if isinstance(item, Signature) else ()
    return Rule(
        id=item.id,
        kind=kind,
        sources=item.sources,
        lines=item.lines,
        patterns=catalogue.expressions(item.patterns),
        unless=catalogue.expressions(item.unless),
        of_gpu_driver=isinstance(item, Signature) and item.vendor != "any" and item.layer == "kernel",
        of_process=isinstance(item, Signature) and item.reach == "job",
        named_last=isinstance(item, Signature) and item.vendor == "nvidia",
        ends_report=isinstance(item, Signature) and item.role == "cascade",
        is_context=isinstance(item, Signature) and item.role == "context",
        crash=(item.kind or "") if isinstance(item, CrashShape) else "",
        ends_process=isinstance(item, CrashShape) and item.ends_process,
        in_traceback=isinstance(item, CrashShape) and item.in_traceback,
        needs_report=isinstance(item, CrashShape) and item.needs_report,
        reports_end=isinstance(item, CrashShape) and item.reports_end,
        reports_success=isinstance(item, CrashShape) and item.reports_success,
        reports_start=isinstance(item, CrashShape) and item.reports_start,
        shows_waiting=isinstance(item, Signature) and any("(?P<seq>" in pattern for pattern in item.patterns),
        ends_job=isinstance(item, Signature) and item.counts == "last",
        forgeable=isinstance(item, Signature) and item.trust == "anyone",
        yields_to=catalogue.matching(yields_to) - {item.id} if yields_to else frozenset(),
        set=item.set if isinstance(item, LogFact) else {},
    )


def search(
    rule: Rule, text: str, source: SourceKind, quarantine: Quarantine, first: int | None = None, *, alone: bool = False
) -> tuple[Outcome, str, RuleMatch | None]:
    """The outcome of a rule on a text; which of its patterns and excuses decided; the match.

    A match begins in the first `first` characters, a line with others after it. `alone`: the following lines are unknown,
    and the outcome is "needs lines" if they decide.
    """
    if quarantine.off and quarantine.is_off(rule.id):
        return "off", "", None
    line = text if first is None else text[:first]
    anywhere = source != "kernel" or rule.forgeable or (rule.kind == "shape" and not rule.crash)
    mid_message = ""
    started = quarantine.clock() if len(text) >= LONG_TEXT else None
    try:
        for pattern in rule.patterns:
            if alone and not pattern.needs.one_line:
                if pattern.may_begin_in(text):
                    return "needs lines", pattern.pattern, None
                continue
            match = pattern.find(line if pattern.needs.one_line else text)
            if not match or match.start() > len(line):
                continue
            if not anywhere and not _is_kernel_message(match, text):
                mid_message = pattern.pattern
                continue
            if alone and rule.unless:
                return "needs lines", pattern.pattern, None
            for excuse in rule.unless:
                if excuse.find(text):
                    return "unless", excuse.pattern, None
            return "matched", pattern.pattern, RuleMatch(rule, match.start(), tuple(_groups(match)))
    except TimeoutError:
        quarantine.ran_out(rule.id, rule.id)
        return "timeout", "", None
    finally:
        if started is not None:
            quarantine.took(rule.id, rule.id, quarantine.clock() - started)
    return ("mid-message", mid_message, None) if mid_message else ("no pattern", "", None)


def _is_kernel_message(match: regex.Match[str], text: str) -> bool:
    """Whether a match begins where a kernel message does. If that begins with a process's name, the match is about it."""
    if not LEAD.fullmatch(text, 0, match.start()):
        return False
    process = PROCESS.match(text)
    return process is None or ("process" in match.re.groupindex and match.start("process") == process.start("comm"))


def _groups(match: regex.Match[str]) -> Iterator[tuple[str, str, int, int]]:
    """The groups that took part. One named `emitter__torch` says by its name alone what it stands for: emitter = torch."""
    for group in match.re.groupindex:
        start, stop = match.span(group)
        if stop > start:
            name, _, constant = group.partition("__")
            yield name, constant, start, stop


def _fill(template: str, captures: Mapping[str, str]) -> str:
    missing = False

    def value(slot: re.Match[str]) -> str:
        nonlocal missing
        text = captures.get(slot[1], "")
        missing = missing or not text
        if slot[2] == "minor":
            return ".".join(text.split(".")[:2])
        return text.lower() if slot[2] == "lower" else text

    filled = _TEMPLATE.sub(value, template)
    return "" if missing else filled.strip()
