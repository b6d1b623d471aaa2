"""Each example, quoted and in the formats that carry job output. Quoting hides a crash; a carrier format does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exporter.config import packs
from exporter.core.authoring.example_checks import run_text
from exporter.core.catalogue.loader import Catalogue
from exporter.core.matching.pipeline import Pipeline

QUOTATIONS = {
    "a search in files": "old.log:12:{}",
    "a search with context": "docs/faq.md-14-{}",
    "a shell's trace": "+ grep -c '{}' job.log",
    "a prompt": '$ grep "{}" log',
    "a comment": "# {}",
    "a comment in C": "    // {}",
    "code in Markdown": "- `{}`",
    "a table in Markdown": "| `{}` | a word |",
    "an exception in source": '        raise RuntimeError("{}")',
    "a call of a logger": '    logger.error("{}")',
    "a pattern in source": "PATTERN = re.compile(r'{}')",
    "an assertion of a test": 'E       assert "{}" in out',
    "the name of a test": "tests/test_x.py::test_message[{}] PASSED",
    "an expected error": "  got {}, as expected",
    "a turn of a chat": '{{"role": "user", "content": "{}"}}',
    "a sample of a data set": '{{"text": "{}"}}',
    "a question": "What does {} mean?",
    "a reference": "See {} in the documentation.",
    "HTML": "<p>{}</p>",
    "a rule in YAML": '    description: "{}"',
    "a quoted mail": "> {}",
    "a numbered listing": "    12\t{}",
}
CARRIERS = {
    "torchrun": "[rank3]: {}",
    "srun --label": " 3: {}",
    "mpirun --tag-output": "[1,3]<stderr>:{}",
    "PALS": "x1000c0s0b0n0.hsn.cm 3: {}",
    "CI": "2025-11-20T23:41:00.1234567Z {}",
    "a stamp in brackets": "[2025-11-20 23:41:00,123] {}",
    "compose": "trainer-1  | {}",
    "colours": "\x1b[31m{}\x1b[0m",
    "a progress bar": "Training 12%|###   | 120/1000 [00:10<01:20]\r{}",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load(whole=True)


@pytest.fixture(scope="module")
def pipeline(catalogue: Catalogue) -> Pipeline:
    return Pipeline(catalogue)


def examples(catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Yield the signature and text of each one-line example from a job log."""
    for signature in catalogue.signatures.values():
        if signature.role != "context" and "job" in signature.sources:
            yield from ((signature.id, e.text) for e in signature.examples if "\n" not in e.text)


@pytest.mark.parametrize("quotation", QUOTATIONS)
def test_a_quoted_example_is_not_a_crash(quotation: str, catalogue: Catalogue, pipeline: Pipeline) -> None:
    quoted = [QUOTATIONS[quotation].format(text.strip()) for _, text in examples(catalogue)]
    matched = {line: [m.signature for m in run_text(pipeline, line, "job").matches] for line in quoted}
    crashes = {line: [s for s in found if catalogue.signatures[s].role != "context"] for line, found in matched.items()}
    assert [line for line, found in crashes.items() if found] == []


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_carrier_format_does_not_hide_a_crash(carrier: str, catalogue: Catalogue, pipeline: Pipeline) -> None:
    lost = [
        (signature, text)
        for signature, text in examples(catalogue)
        if signature not in {m.signature for m in run_text(pipeline, CARRIERS[carrier].format(text), "job").matches}
    ]
    assert lost == []
