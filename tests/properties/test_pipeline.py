"""However a log is cut, offered and taken up again by new processes, its matches are those of reading it line by line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

import regex
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding import formats
from exporter.core.decoding.lines import MAX_BETWEEN
from exporter.core.decoding.prefixes import Clock
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import LogFormat
from exporter.core.patterns.prefilter import HyperscanEngine, PythonEngine
from exporter.core.patterns.required_literals import Gate
from exporter.core.patterns.syntax import FLAGS
from tests.support.matches import NOW, Tail, catalogue_of, chunk

Place = tuple[str, int, int]  # signature, line, offset
Step = tuple[int, str, bool]  # how many bytes come, what is said to follow, whether the process is killed then

SINGLE = catalogue_of(r"""
signatures:
  - {id: gpu_fault, patterns: ['GPU fault']}
  - {id: fault_at, patterns: ['fault at 0x\w']}
  - {id: out_of_memory, patterns: ['(?i)out of memory']}
  - {id: aaaaa, patterns: ['aaaaa']}
""")
SEVERAL = catalogue_of(r"""
signatures:
  - {id: thrown, lines: 3, patterns: ['thrown\n what(?:.*\n and)?']}
  - {id: whatever, patterns: [' what']}
  - {id: faults, lines: 2, patterns: ['GPU fault(?: 1)?(?:\n and)?']}
  - {id: numbered, lines: 2, patterns: ['GPU fault \d']}
""")


def steps(*ends: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ends), st.booleans()), max_size=12)


def read(
    log: bytes, taken: Sequence[Step], catalogue: Catalogue, carrier: LogFormat = "plain", line_bytes: int = 1 << 20
) -> Tail:
    """The log as it comes in these steps, and then to its end."""
    stored: dict[str, str] = {}
    tail = Tail(Pipeline(catalogue, engine="python", line_bytes=line_bytes), format=carrier)
    for size, end, killed in taken:
        tail.offer(log[:size], end)
        log = log[size:]
        assert end != "more" or len(tail.waiting) < line_bytes + 80  # nothing is held back for ever
        if killed:
            stored |= {name: text for name, text in tail.pipeline.unsaved().items() if text is not None}
            tail.pipeline = Pipeline(catalogue, engine="python", line_bytes=line_bytes)
            tail.pipeline.restore(json.loads(json.dumps(stored)))
    tail.offer(log, "final")
    assert tail.waiting == b""
    return tail


# The same, read line by line


def lines_of(log: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line."""
    offset = 0
    for number, line in enumerate(log.split(b"\n"), 1):
        yield number, offset, line
        offset += len(line) + 1


def text_of(raw: bytes) -> str:
    return formats.decode(raw, "plain", "job", Clock(NOW)).text


def shows(catalogue: Catalogue, signature: str, gated: bytes, text: str, first: str) -> bool:
    """Whether a text shows a signature in its first line, given the bytes in which its gate must be."""
    (pattern,) = catalogue.signatures[signature].patterns
    found = regex.search(pattern, text, FLAGS)
    return bool(found and found.start() <= len(first) and any(holds(gate, gated) for gate in catalogue.gates[pattern]))


def holds(gate: Gate, raw: bytes) -> bool:
    return gate.literal in (raw.lower() if gate.ignore_case else raw)


def line_by_line(log: bytes) -> list[Place]:
    found = []
    for number, offset, line in lines_of(log):
        for part in line.split(b"\r"):
            gated = line if any(holds(gate, part) for gates in SINGLE.gates.values() for gate in gates) else b""
            text = text_of(part)
            found += [(s, number, offset) for s in SINGLE.signatures if shows(SINGLE, s, gated, text, text)]
            offset += len(part) + 1
    return found


def block_by_block(log: bytes) -> list[Place]:
    texts = [text_of(line) for _, _, line in lines_of(log)]
    return [
        (s.id, number, offset)
        for number, offset, line in lines_of(log)
        for s in SEVERAL.signatures.values()
        if shows(SEVERAL, s.id, line, "\n".join(texts[number - 1 :][: s.lines]), texts[number - 1])
    ]


HAZARDS = [
    b"\n", b"\n", b"\r", b"\r\n", b"\x00", b"\xff", b"\x1b", b"\x1b[31m", b" ", b"x", b"a", b"aaa", b"3: ", b"[rank1]: ",
    b"GPU fault", b"GPU ", b"fault", b" at 0x1", b"fault at 0x", b"Out Of", b" MEMORY", b"out of memory",
    b"\xe2\x80\xa8", b"\x0b",
]  # fmt: skip
LOGS = st.lists(st.sampled_from(HAZARDS), max_size=25).map(b"".join)


@given(LOGS, steps("more", "quiet"))
def test_any_way_to_offer_a_log_shows_what_a_reading_line_by_line_does(log: bytes, taken: list[Step]) -> None:
    assert sorted(read(log, taken, SINGLE).places) == sorted(line_by_line(log))


@given(
    st.lists(
        st.sampled_from([b"\n", b"\r", b"GPU fault", b"fault at 0x1", b"aaaaa", b"x" * 30, b"y" * 7]), max_size=25
    ).map(b"".join),
    steps("more", "quiet"),
)
def test_lines_that_are_longer_than_a_chunk_are_no_exception(log: bytes, taken: list[Step]) -> None:
    assert sorted(read(log, taken, SINGLE, line_bytes=64).places) == sorted(line_by_line(log))


BLOCKS = st.lists(
    st.sampled_from([b"\n", b"\n", b"thrown", b" what", b" and", b"GPU fault", b" 1", b"\x00", b"\xff", b"3: ", b"x"]),
    max_size=25,
).map(b"".join)


@given(BLOCKS, steps("more"))
def test_a_block_of_lines_is_found_however_it_comes(log: bytes, taken: list[Step]) -> None:
    assert sorted(read(log, taken, SEVERAL).places) == sorted(block_by_block(log))


@st.composite
def containers(draw: st.DrawFn) -> tuple[bytes, list[Place]]:
    """A container's log of two streams whose lines are split up, and what it shows where."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for stream in ("stdout", "stderr"):
        texts = draw(
            st.lists(
                st.lists(st.sampled_from(["GPU fault", "GPU ", "fault", " at 0x1", "x"]), min_size=1, max_size=4),
                max_size=4,
            )
        )
        parts[stream] = [("P", part) for text in texts for part in text]
        for last in itertools.accumulate(map(len, texts)):
            parts[stream][last - 1] = ("F", parts[stream][last - 1][1])
    order = draw(st.permutations([s for s, found in parts.items() for _ in found]))
    log, number, found = b"", 0, []
    whole: dict[str, tuple[int, int, str]] = {}
    for stream in order:
        mark, text = parts[stream].pop(0)
        number += 1
        first_number, first_offset, before = whole.pop(stream, (number, len(log), ""))
        log += f"2025-11-20T23:41:00Z {stream} {mark} {text}\n".encode()
        if mark == "P":
            whole[stream] = (first_number, first_offset, before + text)
            continue
        found += [
            (s, first_number, first_offset)
            for s in SINGLE.signatures
            if shows(SINGLE, s, (before + text).encode(), before + text, before + text)
        ]
    return log, found


@given(containers(), steps("more"))
def test_lines_that_a_container_runtime_split_are_found_whole_and_once(
    container: tuple[bytes, list[Place]], taken: list[Step]
) -> None:
    log, found = container
    assert log.count(b"\n") <= 2 * MAX_BETWEEN  # so that no stream waits for longer than a pipeline does
    assert sorted(read(log, taken, SINGLE, carrier="cri").places) == sorted(found)


@given(BLOCKS, st.integers(0, 25))
def test_of_a_chunk_only_the_lines_before_a_place_may_be_taken(log: bytes, cut: int) -> None:
    starts = [0, *(at + 1 for at, byte in enumerate(log) if byte == 0x0A)]
    until = starts[cut % len(starts)]
    pipeline = Pipeline(SEVERAL, engine="python")
    before = pipeline.process(chunk(log), until)
    assert (before.consumed, before.newlines) == (until, log.count(b"\n", 0, until))
    behind = pipeline.process(chunk(log[until:], offset=until, line=1 + before.newlines))
    found = [(m.signature, m.line, m.offset) for m in (*before.matches, *behind.matches)]
    assert sorted(found) == sorted(block_by_block(log))


@given(LOGS, steps("more", "quiet"))
def test_the_times_of_matches_do_not_depend_on_how_a_log_is_cut(log: bytes, taken: list[Step]) -> None:
    log = log.replace(b"3: ", b"2025-11-20T23:41:00Z ").replace(b"[rank1]: ", b"2025-11-20T23:42:00Z ")
    cut = read(log, [(size, end, False) for size, end, _ in taken], SINGLE)
    whole = read(log, [], SINGLE)
    times = [{(m.signature, m.line, m.offset): (m.time, m.time_source) for m in tail.matches} for tail in (cut, whole)]
    assert times[0] == times[1]


# Two engines, one answer

LITERALS = st.sampled_from(
    [b"GPU ", b"GPU fault", b"fault", b"ault at 0x", b"out of memory", b"memory", b"aaaa", b"AAAA", b"\\x00", b"a.*("]
)
GATES = st.lists(st.builds(Gate, LITERALS.map(bytes.lower) | LITERALS, st.booleans()), unique=True, max_size=8).map(
    lambda gates: [Gate(gate.literal.lower() if gate.ignore_case else gate.literal, gate.ignore_case) for gate in gates]
)


@given(GATES, st.lists(st.sampled_from([*HAZARDS, b"AAA", b"gpu FAULT", b"\\x00"]), max_size=25).map(b"".join))
def test_both_engines_find_the_same_gates_at_the_same_places(gates: list[Gate], block: bytes) -> None:
    fast, plain = HyperscanEngine(gates).scan(block), PythonEngine(gates).scan(block)
    assert fast.ends == plain.ends
    assert sorted(zip(*fast, strict=True)) == sorted(zip(*plain, strict=True))


FAST, PLAIN = Pipeline(SINGLE, engine="hyperscan"), Pipeline(SINGLE, engine="python")


@given(LOGS)
def test_both_engines_show_the_same_matches(log: bytes) -> None:
    for pipeline in (FAST, PLAIN):
        pipeline.forget("log")
    assert FAST.process(chunk(log)) == PLAIN.process(chunk(log))
