"""Intel: what i915 and xe state of each GPU. Firmware versions are in debugfs, which only root can read."""

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.intel import firmware_version
from exporter.core.facts.values import distinct_values, identity, number, single_line, size
from exporter.probes.base import Fact, Found, Host, Probe, known_facts

_DRIVERS = ("i915", "xe")
_DEVICE = "/sys/bus/pci/devices/GPU"
_UC = "/sys/kernel/debug/dri/*/gt0/uc"


def _look(host: Host) -> Found:
    held = [(driver, pci) for driver in _DRIVERS for pci in host.addresses(f"/sys/bus/pci/drivers/{driver}")]
    return Found(gpus=tuple(_gpu(host, driver, pci) for driver, pci in held))


def _gpu(host: Host, driver: str, pci: str) -> Gpu:
    device = f"/sys/bus/pci/drivers/{driver}/{pci}"
    cards = [name for name in host.names(f"{device}/drm") if name.startswith("card") and name[4:].isdecimal()]
    tiles = [f"{device}/{name}" for name in host.names(device) if name.startswith("tile")]
    memory = sum(number(host.read(f"{tile}/physical_vram_size_bytes")) or 0 for tile in tiles)
    engines = _compute_engines(host, device, cards, tiles)
    debug = _debug(host, pci, cards)
    return Gpu(
        pci=pci,
        vendor="intel",
        unique_id=identity(host.read(f"{device}/device_uuid")),
        facts=known_facts(
            gpu_memory=size(memory or number(host.read(*(f"{device}/drm/{card}/lmem_total_bytes" for card in cards)))),
            guc_version=firmware_version(host.read(f"{debug}/guc_info")) if debug else None,
            huc_version=firmware_version(host.read(f"{debug}/huc_info")) if debug else None,
            gpu_preempt_timeout=_of_engines(host, engines, "preempt_timeout_ms", "preempt_timeout_us"),
            gpu_job_timeout=_of_engines(host, engines, "job_timeout_ms"),
            gpu_heartbeat=_of_engines(host, engines, "heartbeat_interval_ms"),
            gpu_survivability=host.value(f"{device}/survivability_mode"),
        ),
    )


def _compute_engines(host: Host, device: str, cards: list[str], tiles: list[str]) -> list[str]:
    """The folders of a GPU's compute engines: drm/cardN/engine/ccs0 of i915, tileN/gtN/engines/ccs of xe."""
    folders = [f"{device}/drm/{card}/engine" for card in cards]
    folders += [f"{tile}/{name}/engines" for tile in tiles for name in host.names(tile) if name.startswith("gt")]
    return [f"{folder}/{name}" for folder in folders for name in host.names(folder) if name.startswith("ccs")]


def _of_engines(host: Host, engines: list[str], *files: str) -> str | None:
    """What a setting is on all engines, with the unit that its file's name ends in."""
    values = ((file, number(host.read(f"{engine}/{file}"))) for engine in engines for file in files)
    return distinct_values(f"{value} {file.rpartition('_')[2]}" for file, value in values if value is not None)


def _debug(host: Host, pci: str, cards: list[str]) -> str | None:
    """A GPU's firmware in debugfs: in dri/PCI, in older kernels dri/N of cardN; None where we may not look."""
    try:
        host.real("/sys/kernel/debug/dri").stat()
    except OSError:  # not mounted, or not ours to see: no failure of anything
        return None
    folders = [f"/sys/kernel/debug/dri/{name}" for name in (pci, *(card.removeprefix("card") for card in cards))]
    return next((f"{folder}/gt0/uc" for folder in folders if host.exists(folder)), None)


INTEL = Probe(
    look=_look,
    facts={
        "guc_version": Fact("the GPUs' scheduler firmware that runs", f"{_UC}/guc_info"),
        "huc_version": Fact("the GPUs' media firmware that runs", f"{_UC}/huc_info"),
        "gpu_preempt_timeout": Fact(
            "how long a kernel may go on when another's turn comes; then it is a hang",
            f"{_DEVICE}/drm/card*/engine/ccs*/preempt_timeout_ms of i915, tile*/gt*/engines/ccs/preempt_timeout_us of xe",
        ),
        "gpu_job_timeout": Fact(
            "how long a kernel may run under xe", f"{_DEVICE}/tile*/gt*/engines/ccs/job_timeout_ms"
        ),
        "gpu_heartbeat": Fact(
            "how often i915 looks whether an engine still answers",
            f"{_DEVICE}/drm/card*/engine/ccs*/heartbeat_interval_ms",
        ),
        "gpu_survivability": Fact(
            "set where a GPU came up only to have its firmware mended", f"{_DEVICE}/survivability_mode"
        ),
        "i915_agama_version": Fact(
            "Intel's backport of i915, where it is that", "/sys/module/i915/agama_version", single_line
        ),
    },
)
