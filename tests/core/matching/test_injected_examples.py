"""An example that `gpufault inject --signature` writes shows only the test line, and only if its signature is recognised."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.authoring.example_checks import run_text
from exporter.core.catalogue.pack_types import Signature
from exporter.core.decoding.formats import decode
from exporter.core.decoding.prefixes import Clock
from exporter.core.matching.pipeline import Pipeline

TAG = "gpufault inject: test line 0123456789abcdef"
TEST_LINE = "gpufault_test_line"


def injected(signature: Signature, as_id: str) -> str:
    lines = signature.examples[0].text.strip("\n").encode().split(b"\n")
    texts = [decode(line, "plain", signature.sources[-1], Clock(0.0)).text for line in lines]
    return "".join(f"{TAG} of {as_id}: {text}\n" for text in texts)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline(packs.load(whole=True))


def test_the_example_of_each_signature_counts_as_a_test_and_as_nothing_else(pipeline: Pipeline) -> None:
    others = {}
    for id_, signature in pipeline.catalogue.signatures.items():
        if signature.examples:
            shown = run_text(pipeline, injected(signature, id_), signature.sources[-1])
            if {match.signature for match in shown.matches} != {TEST_LINE} or shown.unmatched:
                others[id_] = shown
    assert others == {}


def test_an_example_of_another_signature_is_not_counted_at_all(pipeline: Pipeline) -> None:
    text = injected(pipeline.catalogue.signatures["cuda_illegal_address"], "nccl_watchdog_timeout")
    shown = run_text(pipeline, text, "job")
    assert (list(shown.matches), shown.unmatched) == ([], 0)


def test_a_kernel_line_that_only_mentions_the_tag_is_a_kernel_line(pipeline: Pipeline) -> None:
    text = (
        f"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus. {TAG} of x: y\n"
    )
    assert "nv_xid_79_fallen_off_bus" in {match.signature for match in run_text(pipeline, text, "kernel").matches}
