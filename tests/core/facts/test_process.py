"""What a process shows of its own stack, and what of it is nobody's business."""

import pytest

from exporter.core.facts import process

MAPS = """\
55e0c0000000-55e0c0001000 r--p 00000000 103:02 1234   /opt/conda/bin/python3.10
7f0000000000-7f0000001000 r--p 00000000 00:2f 1   /opt/rocm-6.2.3/lib/libamdhip64.so.6.2.60203
7f0000001000-7f0000002000 r-xp 00001000 00:2f 1   /opt/rocm-6.2.3/lib/libamdhip64.so.6.2.60203
7f0000003000-7f0000004000 r--p 00000000 00:2f 2   /opt/my libs/libdnnl.so.3.7 (deleted)
7f0000005000-7f0000006000 rw-p 00000000 00:00 0   [heap]
7f0000007000-7f0000008000 rw-s 00000000 00:06 9   /dev/kfd
"""


def test_libraries_are_mapped_once_each_even_where_they_were_deleted_since() -> None:
    assert process.mapped_libraries(MAPS) == {
        "/opt/rocm-6.2.3/lib/libamdhip64.so.6.2.60203",
        "/opt/my libs/libdnnl.so.3.7",
    }


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        ("/opt/rocm-6.2.3/lib/libamdhip64.so.6.2.60203", {"rocm_version": "6.2.3"}),
        ("/usr/lib/libhsa-runtime64.so.1.14.60204", {"rocm_version": "6.2.4"}),
        ("/opt/rocm-6.1.3/lib/librccl.so", {"rocm_version": "6.1.3"}),
        ("/venv/lib/python3.10/site-packages/torch/lib/libamdhip64.so", {}),
        ("/usr/lib/libdnnl.so.3.7", {"onednn_version": "3.7"}),
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5", {"nccl_version": "2.21.5"}),
        ("/usr/lib/libnccl.so.2", {}),
        ("/usr/lib64/libcuda.so.550.90.07", {"libcuda_version": "550.90.07"}),
        ("/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127", {"cuda_version": "12.4"}),
        ("/usr/lib/libcudnn.so.9.1.0", {"cudnn_version": "9.1.0"}),
        ("/usr/lib/libze_intel_gpu.so.1.6.31294", {"neo_build": "31294"}),
        ("/usr/lib/libze_intel_gpu.so.1.3.27642.40", {"neo_build": "27642"}),
        ("/usr/lib/libze_loader.so.1.17.6", {"level_zero_version": "1.17.6"}),
        ("/usr/lib/libigc.so.1.0.17791.9", {"igc_version": "1.0.17791.9"}),
        ("/app/lib/libkokkoscore.so.4.4.1", {"kokkos_version": "4.4.1"}),
        ("/opt/aws/lib/libnccl-net-ofi.so", {"nccl_plugin": "nccl-net-ofi"}),
        ("/home/u/libnccl.so.9999999.1.1", {}),
        ("/home/u/libnccl.so.2.21.5/other.so", {}),
    ],
)
def test_a_librarys_name_tells_its_version(path: str, facts: dict[str, str]) -> None:
    assert process.library_facts([path]) == facts


def test_two_versions_of_one_library_are_both_reported() -> None:
    paths = ["/opt/rocm-6.2.3/lib/libamdhip64.so.6.2.60203", "/x/librocblas.so.4.1.60102"]

    assert process.library_facts(paths) == {"rocm_version": "6.1.2,6.2.3"}


def test_wheels_are_looked_for_where_libraries_were_mapped_from() -> None:
    paths = ["/venv/lib/python3.10/site-packages/torch/lib/libtorch.so", "/usr/lib/libc.so.6"]

    assert process.package_folders(paths) == ["/venv/lib/python3.10/site-packages"]


def test_a_wheels_name_tells_its_version_and_that_of_the_rocm_or_cuda_it_brings() -> None:
    names = ["torch-2.5.1+rocm6.2.dist-info", "torch", "numpy-1.26.4.dist-info", "nvidia_nccl_cu12-2.21.5.dist-info"]

    assert process.distribution_facts(names) == {
        "torch_version": "2.5.1+rocm6.2",
        "rocm_version": "6.2",
        "nccl_version": "2.21.5",
    }
    assert process.distribution_facts(["torch-2.6.0+cu124.dist-info"])["cuda_version"] == "12.4"


def test_only_variables_that_gpu_work_reads_are_facts() -> None:
    environ = "HSA_XNACK=1\0PATH=/usr/bin\0LD_PRELOAD=/x\0OverrideThreadArbitrationPolicy=2\0NEOReadDebugKeys=1\0"

    assert process.environment(environ) == {
        "env.HSA_XNACK": "1",
        "env.OverrideThreadArbitrationPolicy": "2",
        "env.NEOReadDebugKeys": "1",
    }


@pytest.mark.parametrize(
    "entry",
    [
        "WANDB_API_KEY=abcdef",
        "HF_TOKEN=hf_abcdef",
        "TORCH_HUB_TOKEN=abcdef",
        "NCCL_SECRET=abcdef",
        "AMD_PASSWORD=abcdef",
        "CUDA_API_KEY=abcdef",
        "HIP_VISIBLE_DEVICES=0\n1",
        "HIP_VISIBLE_DEVICES=\x1b[31m",
        f"HIP_VISIBLE_DEVICES={'0,' * 200}",
        "HIP_VISIBLE_DEVICES",
        "HSA_X\ud800=1",
        "=",
    ],
)
def test_secrets_and_garbage_are_no_facts(entry: str) -> None:
    assert process.environment(f"{entry}\0") == {}


def test_a_value_leaves_without_what_must_not_leave_the_node() -> None:
    environ = "MIOPEN_USER_DB_PATH=/home/alice/.cache/miopen\0"

    assert process.environment(environ) == {"env.MIOPEN_USER_DB_PATH": "/home/[user]/.cache/miopen"}


def test_a_process_tells_no_more_variables_than_a_few() -> None:
    environ = "\0".join(f"NCCL_V{number}=1" for number in range(1000))

    assert len(process.environment(environ)) == process.MAX_VARIABLES


def test_the_image_of_a_container_is_a_fact_of_its_own() -> None:
    assert process.environment("APPTAINER_CONTAINER=/images/torch.sif\0") == {"container_image": "/images/torch.sif"}


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max core file size        0                    unlimited            bytes
Max open files            1024                 1048576              files
Max locked memory         unlimited            unlimited            bytes
Max realtime priority     0                    0
"""


def test_limits_are_the_soft_ones() -> None:
    assert process.limit_facts(LIMITS) == {
        "ulimit_stack": "8388608",
        "ulimit_core": "0",
        "ulimit_nofile": "1024",
        "ulimit_memlock": "unlimited",
    }


MOUNTS = """\
900 800 0:70 / / rw - overlay overlay rw
901 900 0:71 / /dev/shm rw - tmpfs shm rw,size=65536k
902 900 0:51 / /home ro - nfs4 nfs01:/home rw,vers=4.2,soft
"""


def test_the_home_of_a_container_is_where_its_own_mounts_say() -> None:
    assert process.mount_facts(MOUNTS, "A=1\0HOME=/home/u\0", None) == {
        "shm_size": "64 MiB",
        "home_fs_type": "nfs4",
        "home_mount_options": "soft,vers=4.2",
        "home_cache_writable": "false",
    }
    assert process.mount_facts(MOUNTS, "HOME=/root\0", None)["home_fs_type"] == "overlay"
    assert "home_fs_type" not in process.mount_facts(MOUNTS, "XHOME=/home/u\0", None)


def test_equal_facts_of_ranks_are_reported_once_and_different_ones_together() -> None:
    ranks = [{"rocm_version": "6.2.3", "env.HSA_XNACK": "1"}, {"rocm_version": "6.2.4", "env.HSA_XNACK": "1"}]

    assert process.combine_facts(ranks) == {"rocm_version": "6.2.3,6.2.4", "env.HSA_XNACK": "1"}
