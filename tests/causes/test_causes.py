"""Each root cause of the packs in a crash where it is chosen, and in one where what decides is missing or otherwise.

The cases are in the YAML files here, grouped as the causes are; `case.py` says what a case holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import leaf_conditions
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.matching import pipeline
from exporter.core.matching.rules import Matcher
from exporter.core.model import Truth
from exporter.scan.plan import Task
from exporter.scan.run import scan
from tests.causes.case import Case, Variant, cases

CASES = cases(Path(__file__).parent)
ASKS = [(case, name) for case in CASES.values() for name in case.without]
VARIANTS = [(case, variant) for case in CASES.values() for variant in case.nearly]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


@pytest.fixture(scope="module", autouse=True)
def one_matcher(catalogue: Catalogue) -> Iterator[None]:
    """To make the rules of the catalogue takes longer than to scan the few lines of a case."""
    with pytest.MonkeyPatch.context() as patch:
        matcher = Matcher(catalogue)
        patch.setattr(pipeline, "Matcher", lambda _catalogue, _clock: matcher)
        yield


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def roots_of(case: Case | Variant, catalogue: Catalogue) -> list[Diagnosis]:
    """The root incidents of the case's logs, as `scan` and `explain` find them."""
    tasks = []
    for name, text, source in (("slurm-48213.out", case.job, "job"), ("kernel.log", case.kernel, "kernel")):
        if text:
            Path(name).write_text(text)
            tasks.append(Task(name, source, "plain"))
    # An engine for a few lines: Python's is ready in 4 ms, Hyperscan in 65; test_builtin holds that they agree.
    found = scan(tasks, catalogue, node="node", facts=case.facts, engine="python").diagnoses
    return [d for d in found if d.role == "root"]


def diagnosed(case: Case | Variant, catalogue: Catalogue) -> Diagnosis:
    """The diagnosis of the case's incident."""
    found = roots_of(case, catalogue)
    roots = [d for d in found if d.incident.signature == case.incident]
    assert len(roots) == 1, [(d.incident.signature, d.root_cause) for d in found]
    return roots[0]


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_a_cause_is_chosen_on_its_evidence(case: Case, catalogue: Catalogue) -> None:
    diagnosis = diagnosed(case, catalogue)
    assert case.cause == diagnosis.root_cause
    assert case.evidence == [evidence.subject for evidence in diagnosis.evidence]


@pytest.mark.parametrize(("case", "name"), ASKS, ids=str)
def test_without_a_fact_it_is_undetermined_and_the_fact_is_named(case: Case, name: str, catalogue: Catalogue) -> None:
    diagnosis = diagnosed(case.lacking(name), catalogue)
    assert case.without[name] == diagnosis.root_cause
    (considered,) = [a for a in diagnosis.considered if a.cause.id == case.cause]
    assert considered.truth is Truth.UNDETERMINED
    assert f"fact {name}" in [leaf.subject for leaf in considered.undetermined]


@pytest.mark.parametrize(("case", "variant"), VARIANTS, ids=str)
def test_in_a_crash_that_differs_where_it_matters_it_is_not_chosen(
    case: Case, variant: Variant, catalogue: Catalogue
) -> None:
    assert variant.instead != case.cause
    assert variant.instead == diagnosed(variant, catalogue).root_cause


def test_every_cause_has_a_case_and_no_case_is_of_no_cause(catalogue: Catalogue) -> None:
    assert sorted(catalogue.root_causes) == sorted(CASES)


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_a_case_says_what_would_decide_against_its_cause(case: Case, catalogue: Catalogue) -> None:
    diagnosis = diagnosed(replace(case, facts={}), catalogue)
    (considered,) = [a for a in diagnosis.considered if a.cause.id == case.cause]
    if considered.truth is Truth.UNDETERMINED:
        assert case.without, "facts decide: say which, under `without`"
    else:
        assert case.nearly, "the log decides: give a log that differs, under `nearly`"


def test_no_condition_asks_for_a_line_that_would_make_the_incident_a_consequence(catalogue: Catalogue) -> None:
    """A consequence has the cause of its root: what its own causes ask of that root's line is never asked.

    Of two that may follow each other, only the later is a consequence.
    """
    contexts = {s.id for s in catalogue.signatures.values() if s.role == "context"}
    vain = [
        (cause.id, leaf.match)
        for cause in catalogue.root_causes.values()
        for _, leaf in leaf_conditions(cause)
        if leaf.match
        and not any(
            line in contexts
            or (line != signature and (not catalogue.follows(signature, line) or catalogue.follows(line, signature)))
            for signature in catalogue.matching(cause.signatures)
            for line in catalogue.matching([leaf.match])
        )
    ]
    assert vain == []


def test_a_bus_error_of_a_worker_means_a_full_dev_shm_in_both_wordings(catalogue: Catalogue) -> None:
    handler = (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    )
    parent = "RuntimeError: DataLoader worker (pid 4411) is killed by signal: Bus error. It is possible that ...\n"
    for text in (handler, parent, handler + parent):
        case = replace(CASES["shared_memory_too_small"], incident="torch_dataloader_killed", job=text)
        assert diagnosed(case, catalogue).root_cause == "shared_memory_too_small"


def test_the_second_line_of_a_validation_error_names_the_rejected_option(catalogue: Catalogue) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/srv/serve.py", line 10, in <module>\n'
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, block_size must be a multiple of 16\n"
    )
    case = replace(CASES["program_options_rejected"], job=text)
    assert diagnosed(case, catalogue).root_cause == "program_options_rejected"


@pytest.mark.parametrize(
    ("end", "signature"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=48213.0. Some of the step tasks ...\n", "slurm_oom"),
        (CASES["gpu_memory_exhausted_by_job"].job, "torch_oom"),
        (CASES["program_assertion_on_gpu"].job, "cuda_device_assert"),
    ],
)
@pytest.mark.parametrize("lost", ["fabric_retries_exceeded", "nic_ends_do_not_reach_each_other"])
def test_the_end_of_a_peer_is_the_root_of_a_lost_connection_in_either_order(
    lost: str, end: str, signature: str, catalogue: Catalogue
) -> None:
    """Lines of several ranks without times come in any order."""
    case = CASES[lost]
    for text in (end + case.job, case.job + end):
        assert [d.incident.signature for d in roots_of(replace(case, job=text), catalogue)] == [signature]


def test_a_segmentation_fault_after_a_lost_connection_is_its_consequence(catalogue: Catalogue) -> None:
    lost = CASES["fabric_retries_exceeded"]
    crash = "[n017:04411] Signal: Segmentation fault (11)\n"
    assert [d.incident.signature for d in roots_of(replace(lost, job=lost.job + crash), catalogue)] == [lost.incident]
    first = roots_of(replace(lost, job=crash + lost.job), catalogue)
    assert [d.incident.signature for d in first] == ["process_segfault"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("api.py:874] failed (exitcode: -6) local_rank: 3 (pid: 5151) of binary: /usr/bin/python3", "exitcode: -6"),
        (
            "[launch.py:325:sigkill_handler] ['python3', 'train.py'] exits with return code = -11",
            "exits with return code = -11",
        ),
    ],
)
def test_the_exit_code_that_names_a_signal_is_quoted_whole(line: str, words: str, catalogue: Catalogue) -> None:
    [root] = roots_of(replace(CASES["named_process_died"], job=f"{line}\n"), catalogue)
    assert root.root_cause == "named_process_died"
    assert [(e.subject, e.value) for e in root.evidence] == [("words", words)]


def test_the_fabric_managers_own_line_explains_cudas_error_802(catalogue: Catalogue) -> None:
    not_ready = CASES["gpu_system_not_ready"]
    both = replace(not_ready, job=not_ready.job + CASES["fabricmanager_driver_mismatch"].job)
    assert diagnosed(both, catalogue).root_cause == "fabricmanager_driver_mismatch"
    other = replace(
        both, job=both.job.replace("802: system not yet initialized", "803: system has unsupported display driver")
    )
    assert diagnosed(other, catalogue).root_cause == "driver_library_mismatch"


@pytest.mark.parametrize(
    ("text", "cause", "verdict"),
    [
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_7a10'\n", "shared_memory_too_small", "unclear"),
        (
            "RuntimeError: unable to write to file </torch_4411_1234_0>: No space left on device (28)\n",
            "shared_memory_too_small",
            "unclear",
        ),
        ("cp: error writing '/lustre/mara/model.bin': No space left on device\n", "file_system_full", "workload"),
        ("cp: error writing '/tmp/model.bin': No space left on device\n", "node_file_system_full", "unclear"),
        ("mkdir /var/lib/docker/tmp/x: No space left on device\n", "node_file_system_full", "unclear"),
        ("OSError: [Errno 28] No space left on device\n", "file_system_full", "workload"),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/mara/x'\n", "quota_exceeded", "workload"),
    ],
)
def test_a_full_file_system_a_quota_and_shared_memory_are_kept_apart(
    text: str, cause: str, verdict: str, catalogue: Catalogue
) -> None:
    diagnosis = diagnosed(replace(CASES["file_system_full"], job=text), catalogue)
    assert (diagnosis.root_cause, diagnosis.verdict) == (cause, verdict)


HUNG_TASK = """\
[ 9931.210201] INFO: task python3:1234 blocked for more than 120 seconds.
[ 9931.210211]       Tainted: P           OE      6.5.0-27-generic #28-Ubuntu
[ 9931.210221] "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
[ 9931.210231] task:python3         state:D stack:0     pid:1234 ppid:1200  flags:0x00000002
[ 9931.210241] Call Trace:
[ 9931.210242]  <TASK>
[ 9931.210243]  __schedule+0x2cc/0x770
[ 9931.210244]  schedule+0x63/0x110
"""


@pytest.mark.parametrize(
    ("frames", "signature", "cause"),
    [
        (["down+0x54/0x80", "os_acquire_semaphore+0x32/0x70 [nvidia]"], "hung_task_gpu", "task_stuck_in_gpu_driver"),
        (["dma_fence_wait_timeout+0x116/0x140"], "hung_task_gpu", "task_stuck_in_gpu_driver"),
        (["xe_sync_entry_wait+0x4a/0x90 [xe]"], "hung_task_gpu", "task_stuck_in_gpu_driver"),
        (["ptlrpc_set_wait+0x4c2/0x6a0 [ptlrpc]"], "hung_task_lustre", "lustre_target_unreachable"),
        (["cxiWaitEventWait+0x1a8/0x2c0 [mmfslinux]"], "hung_task_gpfs", "unknown"),
        (["_ZN6ThCond5kWaitEiPKc+0x1d3/0x410 [mmfs26]"], "hung_task_gpfs", "unknown"),
        (["xfs_ilock+0x11/0x90 [xfs]", "nvidia_ioctl+0x6e0/0x8c0 [nvidia]"], "hung_task", "unknown"),
        (["? nvidia_ioctl+0x6e0/0x8c0 [nvidia]", "futex_wait+0x10/0x20"], "hung_task", "unknown"),
        ([], "hung_task", "unknown"),
    ],
)
def test_the_stack_of_a_hung_task_decides_after_an_nfs_server_stalled(
    frames: list[str], signature: str, cause: str, catalogue: Catalogue
) -> None:
    stalled = "[ 9901.100000] nfs: server filer02 not responding, still trying\n[ 9902.100000] nfs: server filer02 OK\n"
    stack = "".join(f"[ 9931.21025{number}]  {frame}\n" for number, frame in enumerate(frames))
    case = replace(CASES["task_stuck_in_gpu_driver"], incident=signature, kernel=stalled + HUNG_TASK + stack)
    assert diagnosed(case, catalogue).root_cause == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 22 RUNNING AT n4\n=   EXIT CODE: 139\n",
            "named_process_died",
        ),
        ("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n", "named_process_died"),
        ("=   KILLED BY SIGNAL: 11 (Segmentation fault)\n", "named_process_died"),
        (
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 22 RUNNING AT n4\n=   EXIT CODE: 1\n",
            "unknown",
        ),
        ("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)\n", "unknown"),
    ],
)
def test_hydra_names_the_signal_and_not_the_reason(text: str, cause: str, catalogue: Catalogue) -> None:
    case = replace(CASES["application_called_abort"], job=text)
    assert diagnosed(case, catalogue).root_cause == cause


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("cannot open eam/alloy potential file Cu.eam.alloy: No such file or directory", "simulation_input_rejected"),
        ("Cannot open data file x: Input/output error", "unknown"),
        ("Illegal fix nvt command", "simulation_input_rejected"),
        ("Bond atoms 12 88 missing on proc 0 at step 70", "unknown"),
    ],
)
def test_an_error_of_lammps_explains_the_abort_of_mpi(message: str, cause: str, catalogue: Catalogue) -> None:
    text = (
        f"ERROR on proc 0: {message} (src/force.cpp:65)\n"
        "Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0\n"
    )
    case = replace(CASES["application_called_abort"], incident="simulation_stopped", job=text)
    assert diagnosed(case, catalogue).root_cause == cause


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("Error reading item NCORE from file INCAR.", "simulation_input_rejected"),
        ("Error EDDDAV: Call to ZHEGV failed. Returncode = 7 2 8", "unknown"),
    ],
)
def test_the_message_in_a_box_of_vasp_decides(message: str, cause: str, catalogue: Catalogue) -> None:
    text = (
        "|     EEEEEEE  R     R  R     R  OOOOOOO  R     R     ###     ###     ###     |\n"
        f"|{' ' * 77}|\n|     {message:<72}|\n|{' ' * 77}|\n"
        "|       ---->  I REFUSE TO CONTINUE WITH THIS SICK JOB ... BYE!!! <----       |\n"
    )
    case = replace(CASES["simulation_input_rejected"], incident="simulation_stopped", job=text)
    assert diagnosed(case, catalogue).root_cause == cause


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "program_options_rejected"),
        ("ValueError: Bfloat16 is only supported on some of these GPUs", "unknown"),
    ],
)
def test_an_option_that_the_gpu_model_lacks_is_a_fault_of_the_job(
    message: str, cause: str, catalogue: Catalogue
) -> None:
    case = CASES["program_options_rejected"]
    text = case.job.replace("AssertionError: heads=12 not supported", message)
    assert diagnosed(replace(case, job=text), catalogue).root_cause == cause


def test_the_compiler_error_of_cupy_explains_that_of_nvrtc(catalogue: Catalogue) -> None:
    case = CASES["cupy_kernel_rejected"]
    text = "cupy_backends.cuda.libs.nvrtc.NVRTCError: NVRTC_ERROR_COMPILATION (6)\n" + case.job
    assert diagnosed(replace(case, job=text), catalogue).role == "root"


def test_the_data_loader_reports_a_fork_after_the_use_of_the_gpu(catalogue: Catalogue) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/srv/train.py", line 88, in <module>\n'
        "    for batch in loader:\n"
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/srv/env/torch/cuda/__init__.py", line 305, in _lazy_init\n'
        "    raise RuntimeError(\n" + CASES["cuda_used_before_fork"].job.splitlines()[-1] + "\n"
    )
    case = replace(CASES["cuda_used_before_fork"], job=text)
    assert diagnosed(case, catalogue).root_cause == "cuda_used_before_fork"


def test_the_jobs_environment_shows_the_limit_on_interfaces(catalogue: Catalogue) -> None:
    case = CASES["nccl_interface_not_usable"]
    alone = replace(case, job=case.job.splitlines()[-1] + "\n")
    assert diagnosed(alone, catalogue).root_cause == "unknown"
    limited = replace(alone, facts={"env.NCCL_SOCKET_IFNAME": "ib9"})
    assert diagnosed(limited, catalogue).root_cause == "nccl_interface_not_usable"
