"""Network adapters that jobs talk through: InfiniBand and RoCE.

Which ports are up is telemetry and no fact: a link that flaps would fill the history of facts within hours.
"""

from exporter.core.facts.values import distinct_values, single_line
from exporter.probes.base import Fact, Found, Host, Probe, known_facts

_FOLDER = "/sys/class/infiniband"


def _look(host: Host) -> Found:
    adapters = [f"{_FOLDER}/{name}" for name in host.names(_FOLDER)]
    ports = [f"{adapter}/ports/{port}" for adapter in adapters for port in host.names(f"{adapter}/ports")]
    active = [port for port in ports if "ACTIVE" in (host.value(f"{port}/state") or "")]
    return Found(
        facts=known_facts(
            ib_board=distinct_values(host.value(f"{adapter}/board_id") for adapter in adapters),
            ib_firmware=distinct_values(host.value(f"{adapter}/fw_ver") for adapter in adapters),
            ib_link_layer=distinct_values(host.value(f"{port}/link_layer") for port in active),
            ib_rate=distinct_values(host.value(f"{port}/rate") for port in active),
        )
    )


FABRIC = Probe(
    look=_look,
    facts={
        "ib_board": Fact("the adapters' board", f"{_FOLDER}/*/board_id"),
        "ib_firmware": Fact("the adapters' firmware", f"{_FOLDER}/*/fw_ver"),
        "ib_link_layer": Fact("InfiniBand or Ethernet (RoCE)", f"{_FOLDER}/*/ports/*/link_layer"),
        "ib_rate": Fact("the speed of the ports that are up", f"{_FOLDER}/*/ports/*/rate"),
        "mlx5_version": Fact(
            "the adapters' driver, where it is not the kernel's own", "/sys/module/mlx5_core/version", single_line
        ),
    },
)
