"""ROCm, CUDA and oneAPI as they are installed below /opt and /usr/local, several at once where a site keeps old ones."""

from exporter.core.facts import amd, intel, nvidia
from exporter.core.facts.values import sorted_versions
from exporter.probes.base import Fact, Found, Host, Probe, known_facts


def _rocm(host: Host) -> Found:
    def release(folder: str) -> str | None:
        return amd.rocm_release(host.read(f"/opt/{folder}/.info/version") or "")

    installed = [release(folder) for folder in host.names("/opt") if folder.startswith("rocm")]
    versions = sorted_versions(version for version in installed if version)
    return Found(facts=known_facts(rocm_version=release("rocm"), rocm_versions=",".join(versions)))


ROCM = Probe(
    look=_rocm,
    facts={
        "rocm_version": Fact("ROCm, the one that /opt/rocm leads to", "/opt/rocm/.info/version"),
        "rocm_versions": Fact("all ROCm that are installed", "/opt/rocm*/.info/version"),
    },
)


def _cuda(host: Host) -> Found:
    def release(path: str) -> str | None:
        version = nvidia.cuda_version(host.read(f"{path}/version.json") or "")
        return version or nvidia.cuda_version_of_folder(host.resolve(path))

    folders = [name for name in host.names("/usr/local") if name.startswith("cuda-")]
    versions = sorted_versions(version for name in folders if (version := release(f"/usr/local/{name}")))
    chosen = release("/usr/local/cuda") if host.exists("/usr/local/cuda") else None
    return Found(facts=known_facts(cuda_version=chosen, cuda_versions=",".join(versions)))


CUDA = Probe(
    look=_cuda,
    facts={
        "cuda_version": Fact(
            "the CUDA toolkit, the one that /usr/local/cuda leads to",
            "/usr/local/cuda/version.json, or the folder's name",
        ),
        "cuda_versions": Fact("all CUDA toolkits that are installed", "/usr/local/cuda-*"),
    },
)


def _oneapi(host: Host) -> Found:
    folder = "/opt/intel/oneapi/compiler"
    versions = sorted_versions(intel.oneapi_versions(host.names(folder)))
    return Found(facts=known_facts(oneapi_version=host.link(f"{folder}/latest"), oneapi_versions=",".join(versions)))


ONEAPI = Probe(
    look=_oneapi,
    facts={
        "oneapi_version": Fact("oneAPI's compiler, the latest", "/opt/intel/oneapi/compiler/latest"),
        "oneapi_versions": Fact("all of oneAPI's compilers that are installed", "/opt/intel/oneapi/compiler"),
    },
)
