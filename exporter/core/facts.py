"""Facts: what a node is, as named strings, parsed from the texts in which Linux, the drivers and dpkg state it.

Pure: text in, values out; `exporter.probes` does the reading. A fact that is not known is absent, never "" or
"unknown", and text that is not what it should be (binary, cut off, of another form) states nothing: it is no error.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

# PCI addresses

_PCI = re.compile(
    r"""
    (?:PCI:)?                               # NVRM: Xid (PCI:0000:c1:00): 79
    (?:(?P<domain>[0-9a-f]{4,8}):)?         # nvidia-smi 00000000:C1:00.0; DMAR [c1:00.0] has none
    (?P<bus>[0-9a-f]{2}):
    (?P<device>[01][0-9a-f])                # five bits: a clock time such as 12:34 is no address
    (?:\.(?P<function>[0-7]))?
    """,
    re.VERBOSE | re.IGNORECASE,
)


def normalise_pci(text: str) -> str | None:
    """The kernel's spelling (`0000:c1:00.0`) of a PCI address in any spelling that tools use; None if it is none."""
    match = _PCI.fullmatch(text.strip(" []\n"))
    if match is None:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}.{match['function'] or 0}".lower()


def kfd_location(domain: int, location_id: int) -> str:
    """The PCI address of a KFD topology node; bits 15:8 of `location_id` are the bus, 7:3 the device.

    The function is always 0. Its bits cannot be trusted: kernels of 6.4 to 6.8 put the number of the partition of a
    partitioned MI300 there (later ones into bits 31:28), and amdgpu drives only function 0 (kfd_topology_add_device).
    """
    return f"{domain:04x}:{location_id >> 8 & 0xFF:02x}:{location_id >> 3 & 0x1F:02x}.0"


def gfx_target(version: int) -> str:
    """`gfx_target_version` of KFD as compilers write it: 90402 is gfx942, 90010 is gfx90a; "" for 0, a CPU's node."""
    major, minor, step = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if version > 0 else ""


# GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or what one text states of it. `pci` says where it sits, `unique_id` which card it is, slots aside."""

    pci: str
    vendor: str | None = None  # amd | intel | nvidia
    model: str | None = None
    unique_id: str | None = None
    serial: str | None = None
    kfd_node: int | None = None  # N of "Memory access fault by GPU node-N"
    gfx_target: str | None = None
    vbios: str | None = None
    hbm_vendor: str | None = None
    iommu: str | None = None  # pt | translated | off, or the kernel's own word for a rarer type


_VENDORS = {"1002": "amd", "10de": "nvidia", "8086": "intel"}
# VGA, 3D and display controllers, by base class and sub class. An MI300X is a "processing accelerator" (1200), as are
# Intel's NPUs, which are no GPUs.
_GPU_CLASSES = {"amd": ("0300", "0302", "0380", "1200"), "nvidia": ("0300", "0302"), "intel": ("0300", "0302", "0380")}

# Names for where the driver states none: product_name needs an FRU chip and is empty in virtual machines
# (ROCm/device-metrics-exporter#171), and the Intel drivers have no such file. Sources: libdrm data/amdgpu.ids,
# compute-runtime devices_base.inl (without its "(R)"), pci.ids. Where one id has several names, all are given.
MODELS = {
    "1002:6860": "AMD Instinct MI25",
    "1002:6864": "AMD Instinct MI25x2 / Radeon Pro V340",
    "1002:686c": "AMD Instinct MI25 MxGPU",
    "1002:66a0": "AMD Instinct MI50 / MI60",
    "1002:66a1": "AMD Instinct MI50 / MI60 / Radeon Pro VII",
    "1002:66af": "AMD Radeon VII",
    "1002:738c": "AMD Instinct MI100",
    "1002:738e": "AMD Instinct MI100",
    "1002:7408": "AMD Instinct MI250X",
    "1002:740c": "AMD Instinct MI250X / MI250",
    "1002:740f": "AMD Instinct MI210",
    "1002:74a0": "AMD Instinct MI300A",
    "1002:74a1": "AMD Instinct MI300X",
    "1002:74a2": "AMD Instinct MI308X",
    "1002:74a5": "AMD Instinct MI325X",
    "1002:74a8": "AMD Instinct MI308X HF",
    "1002:74a9": "AMD Instinct MI300X HF",
    "1002:74b5": "AMD Instinct MI300X VF",
    "1002:74b6": "AMD Instinct MI308X",
    "1002:74b9": "AMD Instinct MI325X VF",
    "1002:74bd": "AMD Instinct MI300X HF",
    "1002:75a0": "AMD Instinct MI350X",
    "1002:75a3": "AMD Instinct MI355X",
    "1002:75b0": "AMD Instinct MI350X VF",
    "1002:75b3": "AMD Instinct MI355X VF",
    "1002:73a1": "AMD Radeon Pro V620",
    "1002:73a3": "AMD Radeon Pro W6800",
    "1002:7448": "AMD Radeon Pro W7900",
    "1002:744c": "AMD Radeon RX 7900 XT / XTX",
    "1002:7550": "AMD Radeon RX 9070 / 9070 XT",
    "1002:7551": "AMD Radeon AI PRO R9700",
    "8086:0b69": "Intel Data Center GPU Max 1450",
    "8086:0b6e": "Intel Data Center GPU Max 1100C",
    "8086:0bd4": "Intel Data Center GPU Max 1550VG",
    "8086:0bd5": "Intel Data Center GPU Max 1550",
    "8086:0bd6": "Intel Data Center GPU Max 1550",
    "8086:0bd7": "Intel Data Center GPU Max 1350",
    "8086:0bd8": "Intel Data Center GPU Max 1350",
    "8086:0bd9": "Intel Data Center GPU Max 1100",
    "8086:0bda": "Intel Data Center GPU Max 1100",
    "8086:0bdb": "Intel Data Center GPU Max 1100",
    "8086:56c0": "Intel Data Center GPU Flex 170",
    "8086:56c1": "Intel Data Center GPU Flex 140",
    "8086:56c2": "Intel Data Center GPU Flex 170V",
    "8086:56a0": "Intel Arc A770",
    "8086:56a1": "Intel Arc A750",
    "8086:56a2": "Intel Arc A580",
    "8086:56a5": "Intel Arc A380",
    "8086:56a6": "Intel Arc A310",
    "8086:e20b": "Intel Arc B580",
    "8086:e20c": "Intel Arc B570",
    "8086:e211": "Intel Arc Pro B60",
    "8086:e212": "Intel Arc Pro B50",
}


def gpu_of_uevent(uevent: str) -> Gpu | None:
    """The GPU that `/sys/bus/pci/devices/*/uevent` describes; None for a device that is no GPU of a vendor we know."""
    stated = _assignments(uevent)
    pci, pci_id = normalise_pci(stated.get("PCI_SLOT_NAME", "")), stated.get("PCI_ID", "").lower()
    vendor = _VENDORS.get(pci_id[:4])
    # %04X of 24 bits, so that 0x030200 reads 30200 (pci_uevent in drivers/pci/pci-driver.c)
    device_class = stated.get("PCI_CLASS", "").zfill(6)[:4]
    if pci is None or vendor is None or device_class not in _GPU_CLASSES[vendor]:
        return None
    return Gpu(pci=pci, vendor=vendor, model=MODELS.get(pci_id, f"{vendor} {pci_id}"))


def gpu_of_kfd_node(node: int, properties: str) -> Gpu | None:
    """The GPU of `/sys/class/kfd/kfd/topology/nodes/<node>/properties`; None for the node of a CPU."""
    stated = {name: int(value) for name, value in re.findall(r"^(\w+) (\d{1,20})$", properties, re.MULTILINE)}
    target = gfx_target(stated.get("gfx_target_version", 0))
    if not target or "location_id" not in stated:
        return None
    pci = kfd_location(stated.get("domain", 0), stated["location_id"])
    return Gpu(pci=pci, vendor="amd", kfd_node=node, gfx_target=target)


def gpu_of_nvidia_information(pci: str, information: str) -> Gpu:
    """The GPU of `/proc/driver/nvidia/gpus/<pci>/information`, which can be read while nvidia-smi hangs."""
    stated = dict(re.findall(r"^([^:\n]+):[ \t]*(\S.*)$", information, re.MULTILINE))
    return Gpu(
        pci=pci,
        vendor="nvidia",
        model=one_value(stated.get("Model")),
        unique_id=identity(stated.get("GPU UUID")),
        vbios=identity(stated.get("Video BIOS")),
    )


def merge_gpus(statements: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """One GPU for each PCI address, in the order of the addresses. Of two statements of one thing, the first counts."""
    merged: dict[str, Gpu] = {}
    for gpu in statements:
        known = merged.setdefault(gpu.pci, gpu)
        missing = [field.name for field in fields(Gpu) if getattr(known, field.name) is None]
        merged[gpu.pci] = replace(known, **{name: getattr(gpu, name) for name in missing})
    return tuple(merged[pci] for pci in sorted(merged))


# Values

_VALUE_CHARS = 200  # the longest real one is an NVIDIA or DMI name of under 80; a label must not carry a screenful


def one_value(text: str | None) -> str | None:
    """What a one-line file states; None when it is empty, long or not printable, so that garbage is never a fact."""
    value = (text or "").strip()
    return value if value and len(value) <= _VALUE_CHARS and value.isprintable() else None


def identity(text: str | None) -> str | None:
    """As `one_value`, for identifiers, in which only zeros or question marks mean "not read yet".

    A driver prints `GPU-????????-????-…`, `??.??.??.??.??` or 0 for a GPU that it has not initialised. Taken as
    identities, they would make one card of all cards in that state.
    """
    value = one_value(text)
    return None if value is None or re.fullmatch(r"(?:GPU-)?(?:0x)?[0?.\-]+", value) else value


def joined(values: Iterable[str | None]) -> str | None:
    """One string for what should be the same everywhere on a node: the values that differ, sorted, with "+" between."""
    return "+".join(sorted({value for value in values if value})) or None


def _assignments(text: str) -> dict[str, str]:
    return {name: value for name, _, value in re.findall(r"^(\w+)=([\"']?)(.*?)\2$", text, re.MULTILINE)}


# Linux


def os_name(os_release: str) -> str | None:
    """`ubuntu 22.04` from `/etc/os-release`: no point release, since the kernel release tells more than that does."""
    stated = _assignments(os_release)
    return one_value(f"{stated.get('ID', '')} {stated.get('VERSION_ID', '')}")


def iommu_mode(group_type: str) -> str:
    """What `/sys/kernel/iommu_groups/*/type` does to a device's DMA. Effective, where `iommu=pt` is only a wish."""
    return {"identity": "pt", "DMA": "translated", "DMA-FQ": "translated"}.get(group_type, group_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    point: str
    fs_type: str
    read_only: bool  # by the mount's own options or by those of its file system


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts of `/proc/<pid>/mountinfo` (proc(5)), in its order; lines of another form are left out."""
    mounts = []
    for line in text.split("\n"):
        mount, _, file_system = line.partition(" - ")
        match mount.split(), file_system.split():
            case [_, _, _, _, point, options, *_], [fs_type, _, *super_options]:
                flags = {*options.split(","), *",".join(super_options).split(",")}
                mounts.append(Mount(point=_unescaped(point), fs_type=fs_type, read_only="ro" in flags))
    return tuple(mounts)


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def mount_holding(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The mount that holds `path` (absolute, links resolved): of the longest fitting point, the one mounted last."""
    holders = [mount for mount in mounts if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
    return max(reversed(holders), key=lambda mount: len(mount.point), default=None)


def first_home_mount(mounts: Iterable[Mount]) -> str | None:
    """The home of jobs, as far as mounts tell it: the first (sorted) mount at or below /home.

    An autofs mount is only the trigger: while nobody's home is mounted, nothing is known. Nor does a /home on the
    root disk tell anything: it may hold one administrator, and the jobs' homes be elsewhere.
    """
    return min(
        (mount.point for mount in mounts if f"{mount.point}/".startswith("/home/") and mount.fs_type != "autofs"),
        default=None,
    )


def is_service_home(home: str) -> bool:
    """Whether $HOME is that of a service (systemd's DynamicUser has /) or of root, and so not where jobs live."""
    return home in ("", "/", "/root", "/nonexistent") or home.startswith("/var/lib/")


# Drivers, packages and toolkits


def parse_nvidia_version(text: str) -> tuple[str, str] | None:
    """(driver version, `open` or `proprietary`) from `/proc/driver/nvidia/version`.

    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs-builder@U16)  …
    NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
    """
    match = re.search(r"NVIDIA UNIX (Open )?.*?Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return (match[2], "open" if match[1] else "proprietary") if match else None


_PACKAGES = "amdgpu-core|amdgpu-dkms|intel-opencl-icd|libze-intel-gpu1|level-zero|libze1|linux-firmware"
# Begins with a literal, which `re` looks for faster than for ^: 5 MB take 4 ms instead of 60.
_STANZA = re.compile(rf"\nPackage: ({_PACKAGES})\n((?:.+\n?)*)")


def package_facts(dpkg_status: str) -> dict[str, str]:
    """Facts from `/var/lib/dpkg/status`. Packages that were removed, but for their configuration, stay in that file."""
    versions: dict[str, str] = {}
    for name, stanza in _STANZA.findall(f"\n{dpkg_status}"):
        version = re.search(r"^Version: (\S+)$", stanza, re.MULTILINE)
        if version and re.search(r"^Status: \S+ \S+ installed$", stanza, re.MULTILINE):
            versions.setdefault(name, version[1])

    def first(*names: str) -> str:
        return next((versions[name] for name in names if name in versions), "")

    stated = {
        "amdgpu_core_package": first("amdgpu-core"),
        "amdgpu_rocm_release": rocm_release_of_amdgpu_package(first("amdgpu-dkms", "amdgpu-core")),
        "neo_version": _upstream_version(first("intel-opencl-icd", "libze-intel-gpu1")),
        "linux_firmware": first("linux-firmware"),
        "level_zero_version": _upstream_version(first("level-zero", "libze1")),
    }
    return {fact: value for fact, value in stated.items() if value}


def _upstream_version(version: str) -> str | None:
    """The numbers of a Debian version: 24.45.31740.9 of `1:24.45.31740.9-1~22.04`."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", version)
    return match[1] if match else None


def rocm_release_of_amdgpu_package(version: str) -> str | None:
    """The ROCm release that an amdgpu-core or amdgpu-dkms package was made for; None when its version does not tell.

        22.20.50200-1438746~20.04         5.2.0
        1:6.2.60202-2041575.22.04         6.2.2
        1:6.8.5.60200-2009582.24.04       6.2.0
        1:6.14.14.30100000-2204008.24.04  none: since ROCm 7 the driver has releases of its own, here 30.10.0

    The five digits before the dash are the release; 22.20, 6.2 and 6.8.5 are three other schemes, not to be compared.
    """
    match = re.fullmatch(r"(?:\d+:)?[\d.]+\.(\d)(\d\d)(\d\d)-\S+", version)
    return ".".join(str(int(part)) for part in match.groups()) if match else None


def rocm_release(info_version: str) -> str | None:
    """6.2.2 from `/opt/rocm*/.info/version`, which has the build too: 6.2.2-116."""
    match = re.match(r"\d+\.\d+(?:\.\d+)?", info_version)
    return match[0] if match else None


def sorted_versions(versions: Iterable[str]) -> list[str]:
    return sorted(set(versions), key=lambda version: [int(part) for part in version.split(".")])


def cuda_version(version_json: str) -> str | None:
    """The toolkit's version from `/usr/local/cuda/version.json`; what the driver supports, only NVML tells."""
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+(?:\.\d+)*)"', version_json)
    return match[1] if match else None


# What follows

# Every fact that a node may state. A pack that asks for another is told so; a site's own come from its configuration.
NODE_FACTS = frozenset({
    "amdgpu_core_package", "amdgpu_rocm_release", "amdgpu_version", "bios_version", "cuda_version", "driver",
    "driver_flavor", "driver_version", "gfx_target", "gpu_count", "gpu_model", "hbm_vendor", "home_cache_writable",
    "home_fs_type", "iommu", "kernel_release", "level_zero_version", "linux_firmware", "neo_version",
    "numa_balancing", "os", "rocm_mix", "rocm_version", "rocm_versions", "vbios_version",
})  # fmt: skip


def concluded(facts: Mapping[str, str], gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """`facts` and those that follow from them and from the GPUs, sorted by name."""
    following = {
        "gpu_model": joined(gpu.model for gpu in gpus),
        "gfx_target": joined(gpu.gfx_target for gpu in gpus),
        "vbios_version": joined(gpu.vbios for gpu in gpus),
        "hbm_vendor": joined(gpu.hbm_vendor for gpu in gpus),
        "iommu": joined(gpu.iommu for gpu in gpus),
        "rocm_mix": _rocm_mix(facts.get("amdgpu_rocm_release"), facts.get("rocm_version")),
    }
    return dict(sorted({**facts, **{fact: value for fact, value in following.items() if value}}.items()))


def _rocm_mix(driver_release: str | None, installed: str | None) -> str | None:
    """Whether kernel driver and ROCm come from different ROCm releases, patch releases aside."""
    if driver_release is None or installed is None:
        return None
    return "false" if driver_release.split(".")[:2] == installed.split(".")[:2] else "true"
