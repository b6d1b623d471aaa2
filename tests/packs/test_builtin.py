"""The built-in packs match their examples in both engines. Lines that only quote an error are not counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.config import packs
from exporter.core.authoring.example_checks import failed_examples, run_text
from exporter.core.authoring.lint import errors, warnings
from exporter.core.catalogue.loader import Catalogue, LoadedPacks, compile_packs, load_compiled, load_packs
from exporter.core.facts import process
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import SourceKind
from exporter.probes import FACTS

QUOTES = Path(__file__).parent / "quotes"  # each line only mentions an error; none is a crash


def quotes() -> Iterator[tuple[SourceKind, str]]:
    """Yield each quoted line with the kind of log that contains it."""
    for path in sorted(QUOTES.glob("*.txt")):
        source: SourceKind = "kernel" if path.stem == "kernel" else "job"
        yield from ((source, line) for line in path.read_text().splitlines())


# Common words of quiet logs: a required literal among them would send every such line through Python.
QUIET = b"""\
[2025-11-20 23:41:00] epoch 3 step 1200 loss 0.1934 error rate 0.02 error: 0.01 lr 1.0e-4 GPU memory 61.2 GB
INFO failed: 0, Failed to parse 0 records, Failure rate 0.0, timed out: 0, Timeout 30 s, retries 0, aborted 0
WARNING: unable to find a cached copy; Error count 0, ERROR: 0, exceptions 0, fatal 0, killed 0, invalid 0
rank 3 of 8 on device cuda:3 (hip:3): connection to the process group not lost, signal handlers installed
"""


@pytest.fixture(scope="module")
def loaded() -> LoadedPacks:
    return packs.load_texts()


@pytest.fixture(scope="module")
def catalogue(loaded: LoadedPacks) -> Catalogue:
    return loaded.catalogue


@pytest.fixture(scope="module")
def pipeline(catalogue: Catalogue) -> Pipeline:
    return Pipeline(catalogue)


def test_examples_match_and_near_misses_do_not_in_both_engines(loaded: LoadedPacks) -> None:
    assert [str(broken.problem) for broken in failed_examples(loaded.builtin, loaded.catalogue)] == []


def test_the_built_in_packs_have_neither_errors_nor_warnings(loaded: LoadedPacks) -> None:
    assert [
        str(problem)
        for problem in (*errors(loaded), *warnings(loaded, {*FACTS, *process.FACTS}, packs.ordinary_words()))
    ] == []


def test_a_line_that_only_mentions_an_error_is_not_a_crash(catalogue: Catalogue, pipeline: Pipeline) -> None:
    crashes = [
        (text, match.signature)
        for source, text in quotes()
        for match in run_text(pipeline, text, source).matches
        if catalogue.signatures[match.signature].role != "context"
    ]
    assert crashes == []


def test_an_example_inside_a_library_name_is_not_counted(loaded: LoadedPacks, pipeline: Pipeline) -> None:
    segfault = "a.out[42]: segfault at 0 ip 00007f2c sp 00007ffd error 4 in lib "
    counted = {
        signature.id: example.text
        for signature in loaded.catalogue.signatures.values()
        if "kernel" in signature.sources and signature.trust == "kernel" and signature.id != "segfault_user"
        for example in signature.examples
        for line in example.text.splitlines()
        if signature.id in [m.signature for m in run_text(pipeline, segfault + line, "kernel").matches]
    }
    assert counted == {}


def test_no_required_literal_is_common_in_quiet_job_logs(pipeline: Pipeline) -> None:
    literals = pipeline.matcher.gates["job"]
    assert [literals[gate] for gate in pipeline.engine_for("job").scan(QUIET).gates] == []


def test_the_four_named_errors_keep_their_ids(catalogue: Catalogue) -> None:
    named = {"hsa_aperture_violation", "intel_gpu_page_fault", "hip_error_captured_event", "hip_error_invalid_value"}
    assert named <= catalogue.signatures.keys()


def test_the_founding_causes_keep_their_ids(catalogue: Catalogue) -> None:
    founding = {
        "network_home_cache_unwritable",
        "driver_older_than_rocm",
        "onednn_pvc_scoreboard_hazard",
        "kokkos_hip_memset_unregistered_memory",
        "kokkos_event_on_destroyed_stream",
        "pytorch_watchdog_query_during_capture",
        "miopen_backward_weights_rocm_6_3_0",
    }
    assert founding <= catalogue.root_causes.keys()


def test_every_signature_has_references_and_a_remediation(catalogue: Catalogue) -> None:
    incidents = [s for s in catalogue.signatures.values() if s.role != "context"]
    assert [s.id for s in incidents if not s.references] == []
    assert [s.id for s in incidents if not s.remediation] == []


def test_compiled_packs_equal_the_packs_without_examples() -> None:
    texts = packs.builtin()
    compiled, whole = load_packs([], load_compiled(compile_packs(texts))), load_packs(texts)
    bare: dict[str, Any] = {"examples": (), "near_misses": ()}
    assert compiled.gates == whole.gates
    assert compiled.signatures == {i: replace(s, **bare) for i, s in whole.signatures.items()}
    assert compiled.root_causes == whole.root_causes
    assert compiled.tables == whole.tables
    assert compiled.log_facts == tuple(replace(f, **bare) for f in whole.log_facts)
    assert compiled.pack_of == whole.pack_of
