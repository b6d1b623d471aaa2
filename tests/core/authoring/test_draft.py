"""A pack that is made of a line shows that line, and others whose numbers differ."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.authoring.draft import draft
from exporter.core.text.yaml_text import parse

LINE = "acme: tile 3 of 0000:c1:00.0 hang at 0x7f0a1c (it's ver. 1.2.3), see /var/log/acme.log"


def drafted(text: str, source: str = "job", *others: str) -> dict[str, object]:
    (signature,) = parse(draft([text, *others], source, {"known"}), "draft.yaml").data["signatures"]  # type: ignore[arg-type]
    return dict(signature)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (LINE, True),
        ("acme: tile 12 of 0001:03:00.1 hang at 0xFF (it's ver. 2.10), see /tmp/x", True),
        ("acme: tile 3 of 0000:c1:00.0 hung at 0x7f0a1c (it's ver. 1.2.3), see /var/log/acme.log", False),
        (f"the manual says: {LINE}", False),
    ],
)
def test_what_varies_may_differ_and_nothing_else(other: str, same: bool) -> None:
    (pattern,) = drafted(LINE)["patterns"]  # type: ignore[misc]
    assert (regex.search(pattern, other) is not None) is same


def test_a_draft_captures_the_gpu_and_has_an_unused_id() -> None:
    assert drafted(LINE)["examples"] == [{"text": LINE, "captures": {"gpu": "0000:c1:00.0"}}]
    assert drafted(LINE)["id"] == "acme_tile_of_hang"
    assert drafted("known 17")["id"] == "known_2"
    assert drafted("17: 0x4")["id"] == "new_signature"


def test_a_draft_of_several_lines_matches_all_of_them_and_shows_them() -> None:
    lines = [f"ring {n} stalled on mlx{n}_{n} after {n} s, see state.{n}.tensor" for n in (0, 2, 127)]
    signature = drafted(lines[0], "job", *lines[1:], "another error")
    (pattern,) = signature["patterns"]  # type: ignore[misc]
    assert [example["text"] for example in signature["examples"]] == lines  # type: ignore[attr-defined]
    assert all(regex.search(pattern, line) for line in lines)
    assert drafted("no kernel for gfx90a in v2")["patterns"] == ["^no kernel for gfx90a in v2"]  # names stay


def test_a_line_of_the_kernel_counts_in_its_log_only() -> None:
    assert drafted(LINE, "kernel")["sources"] == ["kernel"]


PIECES = [*"aB7 .:/'\"\\#{}[]()|^$*+?-_%@,", "0x1f", "c1:00.0", "\x1b", "\t", "\u202e", "\x9b", "é", "\U0001f600"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=150).map("".join))
def test_every_line_gives_a_pack_that_can_be_read_and_shows_it(text: str) -> None:
    signature = drafted(text)
    assert signature["examples"][0]["text"] == text  # type: ignore[index]
    assert regex.search(signature["patterns"][0], text)  # type: ignore[index]
