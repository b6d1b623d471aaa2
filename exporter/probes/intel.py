"""Intel: facts of each GPU from i915 and xe. Firmware versions are in debugfs, which only root can read."""

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.intel import firmware_version
from exporter.core.facts.values import distinct_values, identity, number, single_line, size
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts

_DRIVERS = ("i915", "xe")
_DEVICE = "/sys/bus/pci/devices/GPU"
_UC = "/sys/kernel/debug/dri/*/gt0/uc"


def _collect(host: Host) -> ProbeResult:
    held = [(driver, pci) for driver in _DRIVERS for pci in host.addresses(f"/sys/bus/pci/drivers/{driver}")]
    return ProbeResult(gpus=tuple(_gpu(host, driver, pci) for driver, pci in held))


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
    """A setting of all engines, with the unit from its file name."""
    values = ((file, number(host.read(f"{engine}/{file}"))) for engine in engines for file in files)
    return distinct_values(f"{value} {file.rpartition('_')[2]}" for file, value in values if value is not None)


def _debug(host: Host, pci: str, cards: list[str]) -> str | None:
    """A GPU's firmware folder in debugfs: dri/PCI, in older kernels dri/N of cardN; None without access."""
    try:
        host.real("/sys/kernel/debug/dri").stat()
    except OSError:  # not mounted or no permission: not a failure
        return None
    folders = [f"/sys/kernel/debug/dri/{name}" for name in (pci, *(card.removeprefix("card") for card in cards))]
    return next((f"{folder}/gt0/uc" for folder in folders if host.exists(folder)), None)


INTEL = Probe(
    collect=_collect,
    facts={
        "guc_version": Fact("running scheduler firmware of the GPUs", f"{_UC}/guc_info"),
        "huc_version": Fact("running media firmware of the GPUs", f"{_UC}/huc_info"),
        "gpu_preempt_timeout": Fact(
            "time a kernel may continue when preempted, before it counts as hung",
            f"{_DEVICE}/drm/card*/engine/ccs*/preempt_timeout_ms of i915, tile*/gt*/engines/ccs/preempt_timeout_us of xe",
        ),
        "gpu_job_timeout": Fact(
            "maximum run time of a kernel under xe", f"{_DEVICE}/tile*/gt*/engines/ccs/job_timeout_ms"
        ),
        "gpu_heartbeat": Fact(
            "interval of i915's engine checks",
            f"{_DEVICE}/drm/card*/engine/ccs*/heartbeat_interval_ms",
        ),
        "gpu_survivability": Fact("set if a GPU started only for firmware recovery", f"{_DEVICE}/survivability_mode"),
        "i915_agama_version": Fact(
            "version of Intel's i915 backport, if used", "/sys/module/i915/agama_version", single_line
        ),
    },
)
