"""Facts of a process: mapped libraries, Python packages, environment, limits and mounts.

Users control all of it, so values must have the expected form. Only variables for GPUs, libraries and launchers are
read, and none with a secret-like name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.core.facts.amd import rocm_release_of_suffix
from exporter.core.facts.mounts import mount_holding, mount_options, parse_mountinfo, shm_size
from exporter.core.facts.parsing import single_line, sorted_versions
from exporter.core.text.redact import redact

MAX_VARIABLES = 64  # jobs that configure NCCL, UCX, MPI and MIOpen set about thirty
_MAX_FOLDERS = 4  # of Python packages: an environment, the one below it, ~/.local


@dataclass(frozen=True, slots=True)
class Library:
    """A fact from the file name of a mapped library."""

    fact: str
    meaning: str
    pattern: re.Pattern[str]


def _library(fact: str, meaning: str, pattern: str) -> Library:
    return Library(fact, meaning, re.compile(pattern))


_N = r"[0-9]{1,6}"
LIBRARIES = (
    _library("onednn_version", "oneDNN", rf"libdnnl\.so\.({_N}\.{_N}(?:\.{_N})?)"),
    _library("nccl_version", "NCCL", rf"libnccl\.so\.({_N}\.{_N}\.{_N})"),
    _library("libcuda_version", "the user-mode half of NVIDIA's driver", rf"libcuda\.so\.({_N}\.{_N}(?:\.{_N})?)"),
    _library("cuda_version", "the CUDA runtime", rf"libcudart\.so\.({_N}\.{_N})\.{_N}"),
    _library("cudnn_version", "cuDNN", rf"libcudnn\.so\.({_N}\.{_N}\.{_N})"),
    _library("neo_build", "the build of Intel's compute runtime", rf"libze_intel_gpu\.so\.{_N}\.{_N}\.({_N})(?:\.{_N})?"),
    _library("level_zero_version", "the Level Zero loader", rf"libze_loader\.so\.({_N}\.{_N}\.{_N})"),
    _library("igc_version", "Intel's graphics compiler", rf"libigc\.so\.({_N}\.{_N}\.{_N}(?:\.{_N})?)"),
    _library("kokkos_version", "Kokkos", rf"libkokkoscore\.so\.({_N}\.{_N}\.{_N})"),
    _library("nccl_plugin", "the network plug-in of NCCL or RCCL", r"lib((?:nccl|rccl)-net(?:-[a-z]{1,20})?)\.so(?:\.\d+)*"),
)  # fmt: skip
_ROCM = re.compile(r"lib(?:amdhip64|hsa-runtime64|MIOpen|rccl|rocblas|amd_comgr)\.so[.0-9]*")
_ROCM_FOLDER = re.compile(rf"/opt/rocm-({_N}\.{_N}\.{_N})/")
_MAPPED = re.compile(r" (/[^\n]{1,4096}?\.so(?:\.[0-9.]{1,40})?)(?: \(deleted\))?$", re.MULTILINE)
_PACKAGES = re.compile(r"(/.{1,1000}?/(?:site|dist)-packages)/")


def mapped_libraries(maps: str) -> frozenset[str]:
    """The paths of the libraries in `/proc/<pid>/maps`, below the process's root."""
    return frozenset(_MAPPED.findall(maps))


def library_facts(paths: Iterable[str]) -> dict[str, str]:
    """Facts from library names; several versions of one are joined by commas."""
    versions: dict[str, set[str]] = {}
    for path in paths:
        name = path.rpartition("/")[2]
        for library in LIBRARIES:
            if match := library.pattern.fullmatch(name):
                versions.setdefault(library.fact, set()).add(match[1])
        if _ROCM.fullmatch(name):
            folder = _ROCM_FOLDER.match(path)
            if release := rocm_release_of_suffix(name) or (folder and folder[1]):
                versions.setdefault("rocm_version", set()).add(release)
    return {fact: ",".join(sorted(values)) for fact, values in versions.items()}


def uses_rocm(paths: Iterable[str]) -> bool:
    return any(_ROCM.fullmatch(path.rpartition("/")[2]) for path in paths)


def package_folders(paths: Iterable[str]) -> list[str]:
    """The folders of Python packages with mapped libraries."""
    matches = (_PACKAGES.match(path) for path in paths)
    return sorted({match[1] for match in matches if match})[:_MAX_FOLDERS]


DISTRIBUTIONS = {
    "torch": "torch_version",
    "jaxlib": "jax_version",
    "tensorflow": "tensorflow_version",
    "triton": "triton_version",
    "pytorch_triton_rocm": "triton_version",
    "pytorch_triton_xpu": "triton_version",
    "intel_extension_for_pytorch": "ipex_version",
    "vllm": "vllm_version",
    "deepspeed": "deepspeed_version",
    "nvidia_nccl_cu11": "nccl_version",
    "nvidia_nccl_cu12": "nccl_version",
    "nvidia_nccl_cu13": "nccl_version",
}
_DISTRIBUTION = re.compile(r"([A-Za-z0-9_]{1,60})-([0-9][0-9A-Za-z.+]{0,60})\.dist-info")


def distribution_facts(names: Iterable[str]) -> dict[str, str]:
    """Facts from the names in a folder of Python packages: `torch-2.5.1+rocm6.2.dist-info`.

    A wheel contains its own ROCm or CUDA; its version has the first two numbers.
    """
    facts: dict[str, str] = {}
    for name in sorted(names):
        match = _DISTRIBUTION.fullmatch(name)
        fact = DISTRIBUTIONS.get(match[1].lower()) if match else None
        if match and fact:
            facts[fact] = match[2]
    if rocm := re.search(rf"\+rocm({_N}\.{_N}(?:\.{_N})?)", facts.get("torch_version", "")):
        facts["rocm_version"] = rocm[1]
    if cuda := re.search(r"\+cu(\d{2})(\d)$", facts.get("torch_version", "")):
        facts["cuda_version"] = f"{cuda[1]}.{cuda[2]}"
    return facts


_VARIABLE = re.compile(
    r"(?:AMD|CUDA|DNNL|FI|GPU|HIP|HSA|KOKKOS|MIOPEN|MPICH|NCCL|OMP|ONEAPI|ONEDNN|PYTORCH|RCCL|ROCM|ROCR|SYCL|TORCH|TRITON"
    r"|TF_CPP|TF_GPU|TF_XLA|UCX|UR|XLA|ZE|ZES|SLURM_GPUS)_\w{1,60}"
    r"|SLURM_GPUS|SLURM_JOB_PARTITION|SLURM_JOB_NUM_NODES|XDG_CACHE_HOME|XDG_CONFIG_HOME|EnableImplicitScaling|NEOReadDebugKeys"
    r"|OverrideThreadArbitrationPolicy|PrintDebugSettings|APPTAINER_CONTAINER|SINGULARITY_CONTAINER"
)
_SECRET = re.compile(r"(?i)token|(?<!debug)key|secret|pass|cred|auth")  # NEOReadDebugKeys is harmless


def environment(environ: str) -> dict[str, str]:
    """Facts `env.NAME` from `/proc/<pid>/environ`: the environment at the start of the process."""
    facts: dict[str, str] = {}
    for entry in environ.split("\0"):
        name, _, text = entry.partition("=")
        value = single_line(text)
        if value and _VARIABLE.fullmatch(name) and not _SECRET.search(name) and len(facts) < MAX_VARIABLES:
            facts[f"env.{name}"] = redact(value)
    for name in ("env.APPTAINER_CONTAINER", "env.SINGULARITY_CONTAINER"):
        if image := facts.pop(name, None):
            facts["container_image"] = image
    return facts


LIMITS = {
    "Max locked memory": ("ulimit_memlock", "bytes that a process may pin"),
    "Max open files": ("ulimit_nofile", "files that it may open"),
    "Max core file size": ("ulimit_core", "size of its core dumps"),
    "Max stack size": ("ulimit_stack", "size of its stack"),
    "Max processes": ("ulimit_nproc", "processes and threads of its user"),
}


def limit_facts(limits: str) -> dict[str, str]:
    """The soft limits of `/proc/<pid>/limits`."""
    rows = re.findall(r"^(Max [a-z ]{1,30}?) {2,}(\d{1,20}|unlimited) ", limits, re.MULTILINE)
    return {LIMITS[name][0]: value for name, value in rows if name in LIMITS}


def mount_facts(mountinfo: str, environ: str, memory_bytes: int | None) -> dict[str, str]:
    """Facts about the home and /dev/shm from the process's mounts, without access to file systems."""
    mounts = parse_mountinfo(mountinfo)
    facts = {"shm_size": shm_size(mounts, memory_bytes)}
    home = re.search(r"(?:^|\0)HOME=(/[^\0]{1,1000})", environ)
    mount = mount_holding(mounts, home[1]) if home else None
    if mount and mount.fs_type != "autofs":
        facts |= {"home_fs_type": single_line(mount.fs_type), "home_mount_options": mount_options(mount)}
        facts["home_cache_writable"] = "false" if mount.read_only else None
    return {name: value for name, value in facts.items() if value}


def _packages_of(fact: str) -> str:
    return " or ".join(f"`{name}`" for name, of in DISTRIBUTIONS.items() if of == fact)


FACTS = {  # meaning and source
    **{fact: f"from the folder of {_packages_of(fact)}" for fact in DISTRIBUTIONS.values()},
    **{library.fact: f"{library.meaning}, from the name of the mapped library" for library in LIBRARIES},
    "nccl_version": f"NCCL, from the name of the mapped library, else the folder of {_packages_of('nccl_version')}",
    "rocm_version": "ROCm, from the names of its mapped libraries, else the PyTorch wheel",
    "rocm_versions": "all ROCm versions below the process's root",
    **dict(LIMITS.values()),
    "home_fs_type": "file system of its HOME, from its mounts",
    "home_mount_options": "options of that mount, on NFS",
    "home_cache_writable": "`false` if that mount is read-only",
    "shm_size": "maximum size of its /dev/shm",
    "xid_13_jobs_on_sm": "jobs of the last 7 days with Xid 13 from only this SM of the GPU; known from 3 on",
    "container_image": "container image of Apptainer or Singularity",
    "env.NAME": "variables for GPUs, their libraries and launchers; none with a secret-like name",
}


def combine_facts(processes: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The facts of a job from its processes; different values are joined by commas."""
    values_of: dict[str, set[str]] = {}
    for facts in processes:
        for name, value in facts.items():
            values_of.setdefault(name, set()).add(value)
    return {name: ",".join(sorted(values)) for name, values in values_of.items()}


def releases(versions: Iterable[str | None]) -> str | None:
    """The ROCm releases in a container, sorted by version."""
    return ",".join(sorted_versions(version for version in versions if version)) or None
