"""Network adapters that jobs talk through: InfiniBand and RoCE."""

from exporter.core.facts.values import joined, one_value
from exporter.probes.base import Fact, Found, Host, Probe, stated

_FOLDER = "/sys/class/infiniband"


def _look(host: Host) -> Found:
    adapters = [f"{_FOLDER}/{name}" for name in host.names(_FOLDER)]
    ports = [f"{adapter}/ports/{port}" for adapter in adapters for port in host.names(f"{adapter}/ports")]
    states = [state for port in ports if (state := host.value(f"{port}/state"))]
    return Found(
        facts=stated(
            ib_board=joined(host.value(f"{adapter}/board_id") for adapter in adapters),
            ib_firmware=joined(host.value(f"{adapter}/fw_ver") for adapter in adapters),
            ib_link_layer=joined(host.value(f"{port}/link_layer") for port in ports),
            ib_rate=joined(host.value(f"{port}/rate") for port in ports),
            ib_ports_active=f"{sum('ACTIVE' in state for state in states)} of {len(ports)}" if states else None,
        )
    )


FABRIC = Probe(
    look=_look,
    facts={
        "ib_board": Fact("the adapters' board", f"{_FOLDER}/*/board_id"),
        "ib_firmware": Fact("the adapters' firmware", f"{_FOLDER}/*/fw_ver"),
        "ib_link_layer": Fact("InfiniBand or Ethernet (RoCE)", f"{_FOLDER}/*/ports/*/link_layer"),
        "ib_rate": Fact("the ports' speed now", f"{_FOLDER}/*/ports/*/rate"),
        "ib_ports_active": Fact("ports that are up", f"{_FOLDER}/*/ports/*/state"),
        "mlx5_version": Fact(
            "the adapters' driver, where it is not the kernel's own", "/sys/module/mlx5_core/version", one_value
        ),
    },
)
