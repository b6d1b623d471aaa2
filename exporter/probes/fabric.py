"""Network adapters: InfiniBand and RoCE.

The state of ports is telemetry, not a fact: a flapping link would fill the history of facts within hours.
"""

from exporter.core.facts.values import distinct_values, single_line
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts

_FOLDER = "/sys/class/infiniband"


def _collect(host: Host) -> ProbeResult:
    adapters = [f"{_FOLDER}/{name}" for name in host.names(_FOLDER)]
    ports = [f"{adapter}/ports/{port}" for adapter in adapters for port in host.names(f"{adapter}/ports")]
    active = [port for port in ports if "ACTIVE" in (host.value(f"{port}/state") or "")]
    return ProbeResult(
        facts=known_facts(
            ib_board=distinct_values(host.value(f"{adapter}/board_id") for adapter in adapters),
            ib_firmware=distinct_values(host.value(f"{adapter}/fw_ver") for adapter in adapters),
            ib_link_layer=distinct_values(host.value(f"{port}/link_layer") for port in active),
            ib_rate=distinct_values(host.value(f"{port}/rate") for port in active),
        )
    )


FABRIC = Probe(
    collect=_collect,
    facts={
        "ib_board": Fact("board of the adapters", f"{_FOLDER}/*/board_id"),
        "ib_firmware": Fact("firmware of the adapters", f"{_FOLDER}/*/fw_ver"),
        "ib_link_layer": Fact("InfiniBand or Ethernet (RoCE)", f"{_FOLDER}/*/ports/*/link_layer"),
        "ib_rate": Fact("speed of the active ports", f"{_FOLDER}/*/ports/*/rate"),
        "mlx5_version": Fact(
            "version of the adapters' driver; missing for the in-tree one", "/sys/module/mlx5_core/version", single_line
        ),
    },
)
