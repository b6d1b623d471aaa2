"""Installed packages, and versions of ROCm, CUDA and oneAPI below /opt and /usr/local; there may be several.

Packages are those of dpkg (text) and rpm since 4.16 (SQLite). Older rpm databases (Berkeley DB of RHEL 8, ndb of SLES 15)
are unsupported; there the versions of drivers and toolkits remain.
"""

import contextlib
import errno
import sqlite3
from pathlib import Path

from exporter.core.facts import amd, intel, nvidia, packages
from exporter.core.facts.parsing import sorted_versions
from exporter.probes.probe import Fact, Host, Probe, ProbeResult, available

_DPKG = "/var/lib/dpkg/status"
_DPKG_BYTES = 64 << 20  # 2 to 10 MB on a node with everything installed
_RPM = ("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite")


def _packages(host: Host) -> ProbeResult:
    versions = packages.dpkg_versions(host.read(_DPKG, most=_DPKG_BYTES) or "")
    for path in _RPM:
        if host.exists(path):
            versions = {**_rpm_versions(host.real(path)), **versions}
    return ProbeResult(facts=packages.package_facts(versions))


def _rpm_versions(database: Path) -> dict[str, str]:
    # immutable: without locks and journal files.
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            numbers = [n for name, n in connection.execute("SELECT key, hnum FROM Name") if packages.wanted(str(name))]
            headers = (connection.execute("SELECT blob FROM Packages WHERE hnum = ?", (n,)).fetchone() for n in numbers)
            return dict(version for (header,) in headers if (version := packages.rpm_version(header)))
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"{database}: {error}") from None


PACKAGES = Probe(
    collect=_packages,
    facts={
        **{
            name: Fact(f"package: {fact.meaning}", f"{_DPKG} or {_RPM[1]}: {fact.names.replace(' ', ', ')}")
            for name, fact in packages.FACTS.items()
        },
        "rocm_packages": Fact("ROCm releases of the installed packages; several are a mix", f"{_DPKG} or {_RPM[1]}"),
    },
)


def _rocm(host: Host) -> ProbeResult:
    def release(folder: str) -> str | None:
        return amd.rocm_release(host.read(f"/opt/{folder}/.info/version") or "")

    installed = [release(folder) for folder in host.names("/opt") if folder.startswith("rocm")]
    versions = sorted_versions(version for version in installed if version)
    return ProbeResult(facts=available(rocm_version=release("rocm"), rocm_versions=",".join(versions)))


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
    return ProbeResult(facts=available(cuda_version=chosen, cuda_versions=",".join(versions)))


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
        facts=available(oneapi_version=host.link(f"{folder}/latest"), oneapi_versions=",".join(versions))
    )


ONEAPI = Probe(
    collect=_oneapi,
    facts={
        "oneapi_version": Fact("latest oneAPI compiler", "/opt/intel/oneapi/compiler/latest"),
        "oneapi_versions": Fact("all installed oneAPI compilers", "/opt/intel/oneapi/compiler"),
    },
)
