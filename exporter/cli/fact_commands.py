"""The shell command that prints each missing fact of an explanation.

See `docs/facts.md` for what facts mean, and `exporter.probes` for how `gpufault facts` reads them.
"""

from __future__ import annotations

# On the node that the crash was on.
ON_THE_NODE = {
    "amdgpu_core_package": "dpkg-query -W amdgpu-core",
    "amdgpu_rocm_release": "dpkg-query -W amdgpu-dkms amdgpu-core",
    "amdgpu_version": "cat /sys/module/amdgpu/version",
    "driver_version": "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
    "fabricmanager_running": "systemctl is-active nvidia-fabricmanager",
    "gfx_target": "rocminfo | grep -m1 -o 'gfx[0-9a-f]*'",
    "gpu_count": "gpufault facts | grep gpu_count",
    "gpu_has_driver": "lspci -k | grep -iEA3 'vga|3d|display|accelerators'",
    "gpu_model": "lspci | grep -iE 'vga|3d|display|accelerators'",
    "gpu_services_down": "gpufault facts | grep gpu_services_down",
    "gpus_lost": "gpufault timeline NODE --journal DIR",  # the facts of yesterday
    "iommu": "cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",  # identity is pt, DMA is translated
    "kernel_release": "uname -r",
    "linux_firmware": "dpkg-query -W linux-firmware || rpm -q linux-firmware",
    "neo_version": "dpkg-query -W intel-opencl-icd || rpm -q intel-opencl",
    "numa_balancing": "sysctl -n kernel.numa_balancing",
    "nvidia_mix": "cat /proc/driver/nvidia/version; ls -l /usr/lib*/libcuda.so.* /usr/lib/*/libcuda.so.*",
    "pcie_degraded": "grep . /sys/bus/pci/devices/*/{current,max}_link_width",
    "rocm_mix": "gpufault facts | grep rocm",
    "rocm_version": "cat /opt/rocm/.info/version",
    "rocm_versions": "ls -d /opt/rocm-*",
    "xid_13_jobs_on_sm": "journalctl -k | grep -E 'Xid .*: 13, .* on .GPC'",
}

# In the job: as its user, in its container, with its environment.
IN_THE_JOB = {
    "cuda_version": "python3 -c 'import torch; print(torch.version.cuda)'",
    "home_cache_writable": "touch ~/.cache/probe && echo true || echo false",
    "home_fs_type": "findmnt -no FSTYPE -T ~",
    "kokkos_malloc_async": "KOKKOS_PRINT_CONFIGURATION=1 ./program | grep MALLOC_ASYNC",
    "kokkos_options": "KOKKOS_PRINT_CONFIGURATION=1 ./program | grep UNIFIED_MEMORY",
    "kokkos_version": "KOKKOS_PRINT_CONFIGURATION=1 ./program | grep 'Kokkos Version'",
    "onednn_version": "ONEDNN_VERBOSE=1 python3 program.py | grep -m1 info,oneDNN",
    "torch_version": "python3 -c 'import torch; print(torch.__version__)'",
}


def command_for(fact: str) -> str:
    """The command that prints a fact, with a comment if it has to run in the job; "" for a custom fact."""
    if fact in ON_THE_NODE:
        return ON_THE_NODE[fact]
    inside = f"printenv {fact.removeprefix('env.')}" if fact.startswith("env.") else IN_THE_JOB.get(fact, "")
    return inside and f"{inside}  # in the job"
