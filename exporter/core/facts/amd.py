"""Facts of amdgpu, KFD and ROCm: topology nodes, RAS, firmware, releases."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.parsing import number


def kfd_location(domain: int, location_id: int) -> str:
    """The PCI address of a KFD topology node; bits 15:8 of `location_id` are the bus, 7:3 the device.

    The function is always 0: amdgpu drives no other (kfd_topology_add_device). Kernels 6.4 to 6.8 store an MI300's
    partition number in those bits, later ones in bits 31:28.
    """
    return f"{domain:04x}:{location_id >> 8 & 0xFF:02x}:{location_id >> 3 & 0x1F:02x}.0"


def gfx_target(version: int) -> str:
    """KFD's `gfx_target_version` as a compiler target: gfx942 for 90402, gfx90a for 90010; "" for 0, a CPU."""
    major, minor, step = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if version > 0 else ""


def gpu_of_kfd_node(node: int, properties: str) -> Gpu | None:
    """The GPU of `/sys/class/kfd/kfd/topology/nodes/<node>/properties`; None for a CPU."""
    stated = {name: int(value) for name, value in re.findall(r"^(\w+) (\d{1,20})$", properties, re.MULTILINE)}
    target = gfx_target(stated.get("gfx_target_version", 0))
    if not target or "location_id" not in stated:
        return None
    pci = kfd_location(stated.get("domain", 0), stated["location_id"])
    facts = {"gfx_target": target}
    if "hive_id" in stated:
        facts["xgmi"] = str(stated["hive_id"] != 0).lower()
    return Gpu(pci=pci, vendor="amd", kfd_node=node, kfd_nodes=(node,), facts=facts)


def with_partitions(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """GPUs from KFD nodes, sorted by node: the nodes of one card are its partitions."""
    cards: dict[str, Gpu] = {}
    for gpu in gpus:
        first = cards.get(gpu.pci)
        nodes = (first.kfd_nodes or () if first else ()) + (gpu.kfd_nodes or ())
        cards[gpu.pci] = replace(first or gpu, kfd_nodes=nodes)
    return tuple(cards.values())


def memory_vendor(text: str | None) -> str | None:
    """The maker of the memory; APUs report `unknown`."""
    return None if text == "unknown" else text


def memory_ecc(ras_features: str | None) -> str | None:
    """Whether memory has ECC, from `ras/features`: bit 0 of the mask is the memory controllers' (AMDGPU_RAS_BLOCK__UMC)."""
    match = re.search(r"feature mask: (0x[0-9a-fA-F]{1,8})", ras_features or "")
    return str(int(match[1], 16) & 1 == 1).lower() if match else None


def retired_pages(bad_pages: str | None) -> str | None:
    """The number of pages in `ras/gpu_vram_bad_pages` (page : size : R, P or F); None without the file."""
    if bad_pages is None:
        return None
    return str(len(re.findall(r"^0x[0-9a-fA-F]+ : 0x[0-9a-fA-F]+ : [RPF]$", bad_pages, re.MULTILINE)))


def firmware(versions: Mapping[str, str | None]) -> dict[str, str]:
    """Facts from the files of `fw_version`: firmware for compute work by name, and a fingerprint of all.

    The fingerprint shows differences in any other firmware. Version 0 means not loaded.
    """
    loaded = {name: f"0x{value:08x}" for name, text in sorted(versions.items()) if (value := number(text))}
    if not loaded:
        return {}
    print_of_all = hashlib.sha256(repr(loaded).encode()).hexdigest()[:12]
    return {"amdgpu_firmware": print_of_all} | {
        f"amdgpu_firmware_{name}": loaded[name] for name in FIRMWARE if name in loaded
    }


FIRMWARE = {
    "mec": "compute queues",
    "mes": "queue scheduler",
    "rlc": "power and clock gating",
    "sdma": "copy engines",
    "smc": "power management",
    "sos": "secure processor",
    "ta_ras": "RAS",
    "ta_xgmi": "XGMI",
}


def rocm_release_of_amdgpu_package(version: str) -> str | None:
    """The ROCm release of an amdgpu-core or amdgpu-dkms package, or None.

        22.20.50200-1438746~20.04         5.2.0
        1:6.2.60202-2041575.22.04         6.2.2
        1:6.8.5.60200-2009582.24.04       6.2.0
        1:6.14.14.30100000-2204008.24.04  none: since ROCm 7 the driver has its own releases, here 30.10.0

    The five digits before the dash are the release; the prefixes follow other schemes.
    """
    match = re.fullmatch(r"(?:\d+:)?[\d.]+\.(\d)(\d\d)(\d\d)-\S+", version)
    return ".".join(str(int(part)) for part in match.groups()) if match else None


def rocm_release(info_version: str) -> str | None:
    """6.2.2 from 6.2.2-116 in `/opt/rocm*/.info/version`."""
    match = re.match(r"\d{1,4}\.\d{1,4}(?:\.\d{1,4})?", info_version)
    return match[0] if match else None


def rocm_release_of_suffix(version: str) -> str | None:
    """6.2.3 from a package version `2.20.5.60203-113~22.04` or a library `libamdhip64.so.6.2.60203`."""
    match = re.search(r"\.(\d{1,2})(\d\d)(\d\d)(?=-|~|$)", version)
    return ".".join(str(int(part)) for part in match.groups()) if match else None


def rocm_mix(driver_release: str | None, installed: str | None) -> str | None:
    """Whether kernel driver and ROCm come from different ROCm releases, ignoring patch releases."""
    if driver_release is None or installed is None:
        return None
    return "false" if driver_release.split(".")[:2] == installed.split(".")[:2] else "true"
