"""Facts of NVIDIA's driver and CUDA, from files that are readable while nvidia-smi hangs."""

import re
from collections.abc import Iterable

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.parsing import fields, identity, number, single_line


def gpu_of_information(pci: str, information: str) -> Gpu:
    """The GPU of `/proc/driver/nvidia/gpus/<pci>/information`. `GPU Firmware` is the GSP's, N/A if off."""
    stated = fields(information)
    gsp = single_line(stated.get("GPU Firmware"))
    values = {
        "gpu_model": single_line(stated.get("Model")),
        "vbios_version": identity(stated.get("Video BIOS")),
        "nvidia_gsp_firmware": None if gsp is None else "off" if gsp == "N/A" else gsp,
        "nvidia_gpu_excluded": {"Yes": "true", "No": "false"}.get(stated.get("GPU Excluded", "").strip()),
    }
    return Gpu(
        pci=pci,
        vendor="nvidia",
        unique_id=identity(stated.get("GPU UUID")),
        minor=number(stated.get("Device Minor")),
        facts={name: value for name, value in values.items() if value},
    )


def driver_version(text: str) -> tuple[str, str] | None:
    """(driver version, `open` or `proprietary`) from `/proc/driver/nvidia/version`.

    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs-builder@U16)  …
    NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
    """
    match = re.search(r"NVIDIA UNIX (Open )?.*?Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return (match[2], "open" if match[1] else "proprietary") if match else None


def parameters(params: str) -> dict[str, str]:
    """Facts from `/proc/driver/nvidia/params`, named as modprobe does: `nvidia.NVreg_EnableGpuFirmware`."""
    return {
        f"nvidia.NVreg_{name}": value
        for name, value in re.findall(r"^(\w{1,60}): (\d{1,20})$", params, re.MULTILINE)
        if name in PARAMETERS
    }


PARAMETERS = {
    "EnableGpuFirmware": "whether the GSP is requested; 18 is the driver's choice",
    "EnableResizableBar": "whether the BAR may grow",
    "EnableStreamMemOPs": "stream memory operations",
    "EnablePCIERelaxedOrderingMode": "relaxed ordering on PCIe",
    "PreserveVideoMemoryAllocations": "whether memory survives a suspend",
    "NvLinkDisable": "whether NVLink is off",
    "ImexChannelCount": "channels to GPUs of other nodes",
}


def cuda_version(version_json: str) -> str | None:
    """The toolkit's version from `/usr/local/cuda/version.json`."""
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+(?:\.\d+)*)"', version_json)
    return match[1] if match else None


def cuda_version_of_folder(path: str) -> str | None:
    """13.0 from `/usr/local/cuda-13.0`, for images without version.json."""
    match = re.search(r"(?:^|/)cuda-(\d+\.\d+)$", path)
    return match[1] if match else None


def libcuda_versions(names: Iterable[str]) -> list[str]:
    """The user-mode drivers in a library folder: 550.90.07 from libcuda.so.550.90.07."""
    matches = (re.fullmatch(r"libcuda\.so\.(\d{3,4}(?:\.\d+){1,2})", name) for name in names)
    return [match[1] for match in matches if match]
