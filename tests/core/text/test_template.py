"""Templates: two occurrences of one error are alike, two errors are not."""

from __future__ import annotations

import pytest

from exporter.core.text.template import MAX_TEMPLATE, error_of, template_of


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("ValueError: got 17, expected 3.5", "ValueError: got <n>, expected <n>"),
        ("OSError: /scratch/ann/run-7/x.bin: gone", "OSError: <path>: gone"),
        ("fault at 0x7f3b2c000000 on 0000:c1:00.0", "fault at <hex> on <pci>"),
        ("no route to 10.4.0.12:29500", "no route to <address>"),
        ("lost nid0017.cluster.example.org", "lost <host>"),
        ("hash 9f86d081884c7d65 differs", "hash <hex> differs"),
        ("see https://example.org/a/b?c=1 for help", "see <url> for help"),
        ("two  \t blanks", "two blanks"),
        ("torch.cuda.OutOfMemoryError: no", "torch.cuda.OutOfMemoryError: no"),
    ],
)
def test_what_varies_is_masked(message: str, template: str) -> None:
    assert template_of(message) == template


def test_a_template_is_bounded() -> None:
    assert len(template_of("word " * 10_000)) <= MAX_TEMPLATE


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("pkg.ShapeError: 3 is not 4\n[INFO] killing subprocess 17", "pkg.ShapeError: 3 is not 4"),
        ("RuntimeError: \n    the mesh is empty", "RuntimeError: \n    the mesh is empty"),
        ("KeyError: 'x'", "KeyError: 'x'"),
    ],
)
def test_an_error_is_its_line_unless_the_message_begins_below(text: str, error: str) -> None:
    assert error_of(text) == error
