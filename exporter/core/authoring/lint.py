"""Checks of a loaded pack: errors, which reject it, and warnings for its author.

The loader rejects schema errors, unsearchable patterns, duplicate ids and unknown signatures.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from exporter.core.authoring.claims import decided_branches, groups, unexplained_captures, unnamed_claims
from exporter.core.authoring.draft import is_placeholder
from exporter.core.authoring.example_checks import failed_examples
from exporter.core.catalogue.loader import LoadedPacks
from exporter.core.catalogue.pack_files import PackFile
from exporter.core.catalogue.pack_types import Echo, LogFact, Patterned, leaf_conditions
from exporter.core.facts import process
from exporter.core.matching.rules import longest_text, slots
from exporter.core.patterns.expression import TIMEOUT_SECONDS, Expression
from exporter.core.patterns.regex_safety import ambiguous_loop
from exporter.core.patterns.required_literals import MIN_LENGTH, Gate, derive
from exporter.core.patterns.syntax import literal_runs
from exporter.core.text.phrases import nearest
from exporter.core.text.problems import Loc, Problem
from exporter.core.values import replace

# Of a literal in a million words: it is in one of 700 lines of ten words.
MAX_FREQUENCY = 150
_RARER_PHRASE = 0.05  # how frequent a phrase is beside its rarest word, for each further word
_PHRASE = re.compile(r" ?[A-Za-z]+(?: [A-Za-z]+)*[:=.,]? ?")
_OF_EXCEPTIONS = ("Error:", "Exception:")  # with a colon they end the name of one; ordinary lines have them seldom


def errors(loaded: LoadedPacks) -> list[Problem]:
    """Placeholders, unknown captures, unmatched examples and matched near misses in a site's packs, else in the built-in
    ones.
    """
    files = loaded.own or loaded.builtin
    problems = [problem for file in files for problem in _placeholders(file)]
    problems += [problem for file in files for problem in _unknown_captures(file, loaded)]
    return [*problems, *(broken.problem for broken in failed_examples(files, loaded.catalogue, ["auto"]))]


def warnings(loaded: LoadedPacks, probed: Iterable[str], words: Mapping[str, int]) -> list[Problem]:
    """Problems that do not reject a pack. `probed`: the names of all facts of probes. `words`: the frequent words of
    ordinary text, by how many there are in a million.
    """
    files = loaded.own or loaded.builtin
    facts = set(probed) | {name for fact in loaded.catalogue.log_facts for name in fact.set}
    checks = (_unproven, _exponential, _without_conditions)
    problems = [problem for file in files for check in checks for problem in check(file)]
    problems += [problem for file in files for problem in _ordinary(file, words)]
    if not loaded.problems:  # a rejected log fact may report them
        problems += [problem for file in files for problem in _unknown_facts(file, facts)]
        problems += [problem for file in files for problem in _above_evidence(file, loaded)]
    for file in loaded.own:  # a test counts the steps of the built-in ones, on more texts
        problems += _slow(file)
    return sorted(problems, key=lambda problem: (problem.file, problem.line, problem.col))


def _placeholders(file: PackFile) -> Iterator[Problem]:
    """The texts of a draft that its author has not replaced."""
    document = replace(file.document, moved={})
    stack: list[tuple[Loc, Any]] = [((), document.data)]
    while stack:
        loc, value = stack.pop()
        if isinstance(value, str) and is_placeholder(value):
            yield document.problem(loc, f"is still the placeholder {value!r}; replace it")
        elif isinstance(value, dict | list):
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [((*loc, name), part) for name, part in reversed(list(parts))]


def _unproven(file: PackFile) -> Iterator[Problem]:
    for loc, item in file.items():
        if not isinstance(item, Patterned) or not item.patterns:
            continue
        if not item.examples:
            yield file.document.problem(loc, f"{item.id} has no examples; add a line as its emitter prints it")
        if not item.near_misses and not isinstance(item, LogFact):
            message = f"{item.id} has no near_misses; add a similar line that must not match"
            yield file.document.problem(loc, message)


def _without_conditions(file: PackFile) -> Iterator[Problem]:
    for number, cause in enumerate(file.pack.root_causes):
        if cause.when is None:
            message = (
                f"{cause.id} is never chosen, since it has no `when`; name what proves it beyond its signature: a number "
                "or words in the line, another line, a fact, or that the kernel reported it"
            )
            yield file.document.problem(("root_causes", number, "id"), message)


def _above_evidence(file: PackFile, loaded: LoadedPacks) -> Iterator[Problem]:
    """Causes that claim or advise more than their conditions prove."""
    for number, cause in enumerate(file.pack.root_causes):
        checks = {
            "title": unnamed_claims(cause, loaded.catalogue),
            "remediation": decided_branches(cause, loaded.catalogue),
            "when": unexplained_captures(cause),
        }
        for key, problems in checks.items():
            for message in problems:
                yield file.document.problem(("root_causes", number, key), f"{cause.id} claims too much: {message}")


def _exponential(file: PackFile) -> Iterator[Problem]:
    for loc, pattern in _patterns(file):
        if text := ambiguous_loop(pattern):
            message = (
                f"can take exponential time: a loop reads {text!r} in two ways; let the parts of the loop begin or end "
                "with different characters, or write the inner loop as *+ or ++"
            )
            yield file.document.problem(loc, message)


def _ordinary(file: PackFile, words: Mapping[str, int]) -> Iterator[Problem]:
    """Patterns that are tried on too many ordinary lines."""
    for loc, item in file.items():
        if not isinstance(item, Patterned) or isinstance(item, Echo):
            continue
        for number, pattern in enumerate(item.patterns):
            for gate in sorted(derive(pattern)):
                if (frequency := frequency_of(gate, words)) >= MAX_FREQUENCY:
                    message = (
                        f"is tried on each line with {gate.literal.decode()!r}, as about one of {1e6 / frequency:,.0f} "
                        "words is in ordinary text; give it a longer fixed text, or spell out what follows: "
                        "level=(?:fatal|panic) rather than level=\\w+"
                    )
                    yield file.document.problem((*loc, "patterns", number), message)


def frequency_of(gate: Gate, words: Mapping[str, int]) -> float:
    """How often a literal is in a million words; 0 for one that is not made of words alone."""
    text = gate.literal.decode()
    if not _PHRASE.fullmatch(text) or text in _OF_EXCEPTIONS:
        return 0.0
    parts = re.findall("[A-Za-z]+", text.lower() if gate.ignore_case else text)

    def of(part: str) -> int:
        spelt = ((word.lower() if gate.ignore_case else word, least) for word, least in words.items())
        return sum(least for word, least in spelt if (part == word if len(parts) > 1 else part in word))

    # Shorter words are in no table, and always frequent.
    rarest = min((of(part) for part in parts if len(part) >= MIN_LENGTH), default=10**6)
    return rarest * _RARER_PHRASE ** (len(parts) - 1)


def _slow(file: PackFile) -> Iterator[Problem]:
    """Patterns that time out on repetitive text."""
    for loc, item in file.items():
        if not isinstance(item, Patterned):
            continue
        for key in ("patterns", "unless"):
            for number, pattern in enumerate(getattr(item, key)):
                if repeated := _slow_on(pattern, item):
                    message = (
                        f"takes over {TIMEOUT_SECONDS * 1000:.0f} ms on a text that repeats "
                        f"{', then '.join(map(repr, repeated))}; bound the loops, as in .{{0,100}}, "
                        "or exclude the text before them; a pattern that times out is skipped for that log"
                    )
                    yield file.document.problem((*loc, key, number), message)


def _slow_on(pattern: str, item: Patterned) -> Sequence[str]:
    """What a text repeats on which a pattern times out. Exponential loops have their own warning."""
    if ambiguous_loop(pattern):
        return ()
    expression = Expression(pattern)
    for repeated in (literal_runs(pattern), *([example.text] for example in item.examples)):
        try:
            expression.find(repetitive(repeated, longest_text(item.lines)))
        except TimeoutError:
            return repeated
    return ()


def repetitive(pieces: Sequence[str], length: int) -> str:
    """A text of this length that repeats each piece, one after the other, in equal shares."""
    share = length // max(1, len(pieces))
    return "".join((piece * (share // len(piece) + 1))[:share] for piece in pieces)


def _patterns(file: PackFile) -> Iterator[tuple[Loc, str]]:
    """Every pattern of a pack, with its location."""
    for loc, item in file.items():
        if isinstance(item, Patterned):
            for key in ("patterns", "unless"):
                yield from (((*loc, key, n), pattern) for n, pattern in enumerate(getattr(item, key)))
    for number, cause in enumerate(file.pack.root_causes):
        for loc, leaf in leaf_conditions(cause):
            for key in ("matches", "text"):
                if pattern := getattr(leaf, key):
                    yield ("root_causes", number, *loc, key), pattern
            yield from ((("root_causes", number, *loc, "where", name), p) for name, p in leaf.where.items())


def _unknown_captures(file: PackFile, loaded: LoadedPacks) -> Iterator[Problem]:
    for number, cause in enumerate(file.pack.root_causes):
        own = _captures_of(cause.signatures, loaded)
        for loc, leaf in leaf_conditions(cause):
            here: Loc = ("root_causes", number, *loc)
            for key in ("capture", "of"):
                name = getattr(leaf, key)
                if name and own is not None and name not in own:
                    yield file.document.problem((*here, key), _no_capture(name, cause.signatures, own))
            for name in leaf.where:
                theirs = _captures_of([leaf.match or ""], loaded)
                if theirs is not None and name not in theirs:
                    yield file.document.problem((*here, "where", name), _no_capture(name, [leaf.match or ""], theirs))
    for number, table in enumerate(file.pack.tables):
        captures = _captures_of(table.signatures, loaded)
        names = (captures or set()) | {"signature", *process.FACTS}
        for index, row in enumerate(table.rows if captures is not None else ()):
            for name in row.where:
                if name not in names:
                    loc_of_row: Loc = ("tables", number, "rows", index, "where", name)
                    yield file.document.problem(loc_of_row, _no_capture(name, table.signatures, names))
    for number, signature in enumerate(file.pack.signatures):
        captures = groups(signature.patterns)
        for part, lines in (("recovery", signature.recovery), ("death", signature.death)):
            for name in lines.where if lines else ():
                if name not in captures:
                    here = ("signatures", number, part, "where", name)
                    yield file.document.problem(here, _no_capture(name, [signature.id], captures))
    for number, fact in enumerate(file.pack.log_facts):
        captures = groups(fact.patterns)
        for key, value in fact.set.items():
            for name in sorted(slots(key) | slots(value)):
                if name not in captures:
                    yield file.document.problem(
                        ("log_facts", number, "set", key), _no_capture(name, [fact.id], captures)
                    )


def _no_capture(name: str, of: Iterable[str], captures: Iterable[str]) -> str:
    message, captures = f"unknown capture {name!r} of {', '.join(of)}", sorted(captures)
    if near := nearest(name, captures):
        return f"{message}; did you mean {near}?"
    return f"{message}; use one of its captures ({', '.join(captures) or 'none'})"


def _captures_of(globs: Sequence[str], loaded: LoadedPacks) -> set[str] | None:
    """The captures of the signatures that match globs; None if one of the signatures may be rejected."""
    if loaded.may_be_rejected(globs):
        return None
    catalogue = loaded.catalogue
    return groups(p for s in catalogue.matching(globs) for p in catalogue.signatures[s].patterns)


def _unknown_facts(file: PackFile, fact_names: Iterable[str]) -> Iterator[Problem]:
    fact_names = set(fact_names)
    for number, cause in enumerate(file.pack.root_causes):
        for loc, leaf in leaf_conditions(cause):
            if leaf.fact and leaf.fact not in fact_names and not leaf.fact.startswith("env."):
                near = nearest(leaf.fact, fact_names)
                advice = f"did you mean {near}? Otherwise" if near else "correct its name, or"
                message = (
                    f"no probe and no log fact reports {leaf.fact!r}; {advice} add it to facts.extra or facts.commands of "
                    "the configuration"
                )
                yield file.document.problem(("root_causes", number, *loc, "fact"), message)
