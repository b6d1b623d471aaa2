"""Installed versions of ROCm, CUDA and oneAPI below /opt and /usr/local; there may be several."""

from exporter.core.facts import amd, intel, nvidia
from exporter.core.facts.values import sorted_versions
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts


def _rocm(host: Host) -> ProbeResult:
    def release(folder: str) -> str | None:
        return amd.rocm_release(host.read(f"/opt/{folder}/.info/version") or "")

    installed = [release(folder) for folder in host.names("/opt") if folder.startswith("rocm")]
    versions = sorted_versions(version for version in installed if version)
    return ProbeResult(facts=known_facts(rocm_version=release("rocm"), rocm_versions=",".join(versions)))


ROCM = Probe(
    collect=_rocm,
    facts={
        "rocm_version": Fact("ROCm version of /opt/rocm", "/opt/rocm/.info/version"),
        "rocm_versions": Fact("all installed ROCm versions", "/opt/rocm*/.info/version"),
    },
)


def _cuda(host: Host) -> ProbeResult:
    def release(path: str) -> str | None:
        version = nvidia.cuda_version(host.read(f"{path}/version.json") or "")
        return version or nvidia.cuda_version_of_folder(host.resolve(path))

    folders = [name for name in host.names("/usr/local") if name.startswith("cuda-")]
    versions = sorted_versions(version for name in folders if (version := release(f"/usr/local/{name}")))
    chosen = release("/usr/local/cuda") if host.exists("/usr/local/cuda") else None
    return ProbeResult(facts=known_facts(cuda_version=chosen, cuda_versions=",".join(versions)))


CUDA = Probe(
    collect=_cuda,
    facts={
        "cuda_version": Fact(
            "CUDA toolkit version of /usr/local/cuda",
            "/usr/local/cuda/version.json, or the folder's name",
        ),
        "cuda_versions": Fact("all installed CUDA toolkits", "/usr/local/cuda-*"),
    },
)


def _oneapi(host: Host) -> ProbeResult:
    folder = "/opt/intel/oneapi/compiler"
    versions = sorted_versions(intel.oneapi_versions(host.names(folder)))
    return ProbeResult(
        facts=known_facts(oneapi_version=host.link(f"{folder}/latest"), oneapi_versions=",".join(versions))
    )


ONEAPI = Probe(
    collect=_oneapi,
    facts={
        "oneapi_version": Fact("latest oneAPI compiler", "/opt/intel/oneapi/compiler/latest"),
        "oneapi_versions": Fact("all installed oneAPI compilers", "/opt/intel/oneapi/compiler"),
    },
)
