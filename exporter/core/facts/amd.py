"""What amdgpu, its KFD and ROCm state: topology nodes, RAS, firmware, releases."""

import hashlib
import re
from collections.abc import Mapping

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.values import number


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


def gpu_of_kfd_node(node: int, properties: str) -> Gpu | None:
    """The GPU of `/sys/class/kfd/kfd/topology/nodes/<node>/properties`; None for the node of a CPU."""
    stated = {name: int(value) for name, value in re.findall(r"^(\w+) (\d{1,20})$", properties, re.MULTILINE)}
    target = gfx_target(stated.get("gfx_target_version", 0))
    if not target or "location_id" not in stated:
        return None
    pci = kfd_location(stated.get("domain", 0), stated["location_id"])
    facts = {"gfx_target": target}
    if "hive_id" in stated:
        facts["xgmi"] = str(stated["hive_id"] != 0).lower()
    return Gpu(pci=pci, vendor="amd", kfd_node=node, facts=facts)


def memory_vendor(text: str | None) -> str | None:
    """Who made the memory; `unknown`, which an APU states, is nobody."""
    return None if text == "unknown" else text


def memory_ecc(ras_features: str | None) -> str | None:
    """Whether memory has ECC, from `ras/features`: bit 0 of the mask is the memory controllers' (AMDGPU_RAS_BLOCK__UMC)."""
    match = re.search(r"feature mask: (0x[0-9a-fA-F]{1,8})", ras_features or "")
    return str(int(match[1], 16) & 1 == 1).lower() if match else None


def retired_pages(bad_pages: str | None) -> str | None:
    """How many pages `ras/gpu_vram_bad_pages` lists (page : size : R, P or F); None where there is no such file."""
    if bad_pages is None:
        return None
    return str(len(re.findall(r"^0x[0-9a-fA-F]+ : 0x[0-9a-fA-F]+ : [RPF]$", bad_pages, re.MULTILINE)))


def firmware(versions: Mapping[str, str | None]) -> dict[str, str]:
    """Facts from the files of `fw_version`: those that compute work depends on by name, and one fingerprint of all.

    The fingerprint tells nodes apart that differ in a firmware nobody thought of. 0 is a firmware that is not loaded.
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
    match = re.match(r"\d{1,4}\.\d{1,4}(?:\.\d{1,4})?", info_version)
    return match[0] if match else None


def rocm_release_of_suffix(version: str) -> str | None:
    """6.2.3 of a ROCm package's version `2.20.5.60203-113~22.04` or of a library's `libamdhip64.so.6.2.60203`."""
    match = re.search(r"\.(\d{1,2})(\d\d)(\d\d)(?=-|~|$)", version)
    return ".".join(str(int(part)) for part in match.groups()) if match else None


def rocm_mix(driver_release: str | None, installed: str | None) -> str | None:
    """Whether kernel driver and ROCm come from different ROCm releases, patch releases aside."""
    if driver_release is None or installed is None:
        return None
    return "false" if driver_release.split(".")[:2] == installed.split(".")[:2] else "true"
