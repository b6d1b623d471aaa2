"""Lines that the lines before them introduce as quotations."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.quotations import SEEN_BYTES, is_introduced
from tests.support.matches import Tail

FAULT = b"    Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x2. Reason: Unknown.\n"


@pytest.mark.parametrize(
    "before",
    [
        b"If the job prints\n",
        b"Ask for more memory. If the job prints:\n",
        b"  When a process ends with:\n\n",
        b"You may see messages like this:\n    another quoted line\n",
        b"The log then shows, for example::\n\n",
        b"<|user|>\n",
    ],
)
def test_an_introduced_line_is_quoted(before: bytes) -> None:
    assert is_introduced(before, FAULT)


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"step 1 loss 2.0\n",
        b"Command error:\n",
        b"The above exception was the direct cause of the following exception:\n",
        b"If the job prints\nstep 1 loss 2.0\n",
        b"   If the job prints\n",  # one column less is no indentation
        b"Worker 3 died while the monitor prints:\n",
        b"If the job prints\n" + b"    x\n" * SEEN_BYTES,  # too far away
        b"Was " * (SEEN_BYTES // 4 - 4) + b"If the job prints\n",  # does not begin within what is seen
    ],
)
def test_other_lines_before_it_do_not_hide_a_crash(before: bytes) -> None:
    assert not is_introduced(before, FAULT)


def test_a_line_in_the_first_column_is_not_quoted() -> None:
    assert not is_introduced(b"If the job prints\n", FAULT.strip())


@pytest.mark.parametrize("size", [1, 7, 30, 1000])
def test_a_quotation_is_recognised_however_the_log_arrives(size: int) -> None:
    log, text = Tail(Pipeline(packs.load(whole=True))), b"If the job prints\n\n" + FAULT + b"run it again.\n" + FAULT
    for at in range(0, len(text), size):
        log.offer(text[at : at + size])
    log.offer(b"", "final")
    assert [match.line for match in log.matches] == [5]
