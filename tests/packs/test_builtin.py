"""The built-in packs keep what they promise, with both engines, and quote-only texts count for nothing."""

from __future__ import annotations

import pytest

from exporter import packs
from exporter.core.catalogue import Catalogue, Loaded, compile_packs, load_compiled, load_packs
from exporter.core.check import errors, warnings
from exporter.core.model import SourceKind
from exporter.core.pipeline import Pipeline
from exporter.core.promises import broken_promises, run_text

# Texts that only mention an error, each in the log that it turns up in. None of them is a crash.
QUOTES: list[tuple[SourceKind, str]] = [
    ("job", "See HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION in the ROCR documentation for details."),
    ("job", "+ grep -c 'HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION' job.log"),
    ("job", "old.log:12:Memory access fault by GPU node-4 (Agent handle: 0x55d1c3a0b5c0) on address (nil). Reason: Unknown."),
    ("job", "    HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION = 0x29,"),
    ("job", "    if err == hipError_t.hipErrorInvalidValue:"),
    ("job", "  if (e == hipErrorCapturedEvent) { retry(); }  // operation handled"),
    ("job", '1024:   out << name << " error( " << hipGetErrorName(e)'),
    ("job", 'fprintf(stderr, "Segmentation fault from GPU at 0x%llx, ctx_id: %u (%s) type: %d (%s), aborting.\\n",'),
    ("job", "    # Segmentation fault from GPU at 0xff00000fff600000, ctx_id: 1 (CCS), banned: 1, aborting."),
    ("job", "tests/test_gpu.py::test_hipErrorInvalidValue_is_raised PASSED"),
    ("job", "[ RUN      ] Unit_hipMemsetAsync_hipErrorInvalidValue"),
    ("job", "hipMemset(nullptr) returned hipErrorInvalidValue as expected"),
    ("job", "Search for `hipErrorIllegalAddress' in https://rocm.docs.amd.com/projects/HIP/ for more information."),
    ("job", "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace may be wrong."),
    ("job", "{'question': 'What does CUDA error: an illegal memory access was encountered mean?'}"),
    ("job", "Segmentation fault detection is switched on"),
    ("job", "Killed 12 zombie workers"),
    ("job", "Estimating whether the model runs out of memory on this GPU"),
    ("job", "epoch 3 loss 0.1 error( 5%): 0.2"),
    ("job", "config: {'on_error': 'abort', 'nccl_warn': True}"),
    ("job", "NVIDIA Xid 79 means GPU has fallen off the bus"),
    ("job", "[  123.4] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ("job", "n1:88:88 [0] NCCL INFO Channel 00/02 :    0   1"),
    ("job", "PMIX ERROR: PMIX_ERR_NOT_FOUND in file dstore_base.c at line 2866"),
    ("kernel", '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.'),
    ("kernel", "amdgpu 0000:c1:00.0: amdgpu: RAS: optional ras ta ucode is not available"),
    ("kernel", "amdgpu 0000:c1:00.0: amdgpu: MEM ECC is active."),
    ("kernel", "mlx5_core 0000:1a:00.0: Port module event: module 0, Cable plugged"),
    ("kernel", "pcieport 0000:00:01.0: AER: enabled with IRQ 28"),
    ("kernel", "AMD-Vi: Interrupt remapping enabled"),
    ("kernel", "NVRM: GPU at PCI:0000:3b:00: GPU-1234abcd-0000-0000-0000-000000000000"),
    ("kernel", "NVRM: Persistence mode is deprecated and will be removed in a future release."),
    ("kernel", "kfd kfd: amdgpu: added device 1002:740f"),
    ("kernel", "Command line: BOOT_IMAGE=/vmlinuz iommu=pt amdgpu.ras_enable=1"),
    ("kernel", "Nov 20 23:41:00 n1 monitor[12]: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
]  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return packs.load_texts()


@pytest.fixture(scope="module")
def catalogue(loaded: Loaded) -> Catalogue:
    return loaded.catalogue


@pytest.fixture(scope="module")
def pipeline(catalogue: Catalogue) -> Pipeline:
    return Pipeline(catalogue)


def test_every_example_is_matched_and_no_near_miss_is_with_both_engines(loaded: Loaded) -> None:
    assert [str(broken.problem) for broken in broken_promises(loaded.builtin, loaded.catalogue)] == []


def test_the_built_in_packs_have_neither_errors_nor_warnings(loaded: Loaded) -> None:
    assert [str(problem) for problem in (*errors(loaded), *warnings(loaded))] == []


@pytest.mark.parametrize(("source", "text"), QUOTES)
def test_what_only_mentions_an_error_is_no_crash(
    source: SourceKind, text: str, catalogue: Catalogue, pipeline: Pipeline
) -> None:
    shown = [m.signature for m in run_text(pipeline, text, source).matches]
    assert [s for s in shown if catalogue.signatures[s].role != "context"] == []


def test_the_four_named_errors_are_known_under_their_ids(catalogue: Catalogue) -> None:
    named = {"hsa_aperture_violation", "intel_gpu_page_fault", "hip_error_captured_event", "hip_error_invalid_value"}
    assert named <= catalogue.signatures.keys()


def test_the_founding_causes_have_their_fixed_ids(catalogue: Catalogue) -> None:
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


def test_every_signature_says_where_it_was_read_and_what_to_do(catalogue: Catalogue) -> None:
    incidents = [s for s in catalogue.signatures.values() if s.role != "context"]
    assert [s.id for s in incidents if not s.references] == []
    assert [s.id for s in incidents if not s.remediation] == []


def test_compiled_packs_are_the_packs_without_their_examples() -> None:
    texts = packs.builtin()
    compiled, whole = load_packs([], load_compiled(compile_packs(texts))), load_packs(texts)
    bare = {"examples": [], "near_misses": []}
    assert compiled.gates == whole.gates
    assert compiled.signatures == {i: s.model_copy(update=bare) for i, s in whole.signatures.items()}
    assert compiled.root_causes == whole.root_causes
    assert compiled.log_facts == tuple(f.model_copy(update=bare) for f in whole.log_facts)
    assert compiled.pack_of == whole.pack_of
