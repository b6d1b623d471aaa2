"""Evidence in words."""

import pytest

from exporter.core.text.phrases import evidence_text


@pytest.mark.parametrize(
    ("what", "value", "where", "expected"),
    [
        ("fact rocm_version", "6.3.0", "node", "rocm_version is 6.3.0 (node) – why"),
        ("fact rocm_version", "", "", "rocm_version – why"),
        ("capture api", "hipMemset", "", "the line: api “hipMemset” – why"),
        ("line of torch_oom", "x", "", "torch_oom: “x” – why"),
        ("words", "x", "line 3", "line 3: “x” – why"),
        ("reported", "by the kernel", "", "reported by the kernel – why"),
    ],
)
def test_evidence_is_a_sentence_without_the_catalogues_words(what: str, value: str, where: str, expected: str) -> None:
    assert evidence_text(what, value, "why", where) == expected
