"""The five write-ups that gpufault started from, as fleets: in each the error's text misled and a fact explained."""

from collections.abc import Mapping

from exporter.demo.simulator import FleetPlan, Planted

NODES = 3000
RATE = 10.0  # crashes per 1,000 node-days
_APU = ("gpu_model", (("AMD Instinct MI250X", 0.4), ("AMD Instinct MI300X", 0.3), ("AMD Instinct MI300A", 0.3)))
_ROCM = ("rocm_version", (("6.1.3", 0.3), ("6.2.3", 0.3), ("6.2.4", 0.2), ("6.3.0", 0.1), ("6.3.1", 0.1)))

CASES: Mapping[str, FleetPlan] = {
    "network_home_cache_unwritable": FleetPlan(
        nodes=NODES, rate=RATE, seed=1,
        fixed=(_APU, _ROCM, ("home_cache_writable", (("true", 0.85), ("false", 0.15))),
               ("home_fs_type", (("xfs", 0.5), ("nfs4", 0.3), ("lustre", 0.2)))),
        planted=(Planted(signature="hsa_aperture_violation", facts=(("home_cache_writable", "false"),), ratio=10),),
    ),
    "onednn_pvc_scoreboard_hazard": FleetPlan(
        nodes=NODES, rate=RATE, seed=2,
        fixed=(("gpu_model", (("Intel Data Center GPU Max 1550", 0.7), ("Intel Data Center GPU Max 1100", 0.3))),
               ("onednn_version", (("3.6.2", 0.4), ("3.7.1", 0.15), ("3.8.1", 0.3), ("3.9", 0.15))),
               ("neo_version", (("24.22.29735.27", 0.6), ("24.35.30872.22", 0.4)))),
        planted=(Planted(signature="intel_gpu_page_fault", facts=(("onednn_version", "3.7.1"),), ratio=10),),
    ),
    "miopen_backward_weights_rocm_6_3_0": FleetPlan(
        nodes=NODES, rate=RATE, seed=3, fixed=(_APU, _ROCM),
        planted=(Planted(signature="miopen_slow_convolution", facts=(("rocm_version", "6.3.0"),), ratio=10),),
    ),
    "kokkos_hip_memset_unregistered_memory": FleetPlan(
        nodes=2 * NODES, rate=RATE, seed=4,
        fixed=(_APU, ("kokkos_version", (("4.2.01", 0.3), ("4.4.00", 0.3), ("4.5.00", 0.4)))),
        planted=(
            Planted(
                signature="hip_error_invalid_value", ratio=30,
                facts=(("kokkos_version", "4.4.00"), ("gpu_model", "AMD Instinct MI300A")),
            ),
        ),
    ),
    "kokkos_event_on_destroyed_stream": FleetPlan(
        nodes=NODES, rate=RATE, seed=5,
        fixed=(("gpu_model", (("AMD Radeon PRO VII", 0.3), ("AMD Instinct MI250X", 0.7))),
               ("rocm_version", (("6.1.3", 0.3), ("6.3.1", 0.3), ("6.4.0", 0.4))),
               ("kokkos_version", (("4.5.00", 0.3), ("4.6.02", 0.2), ("4.7.00", 0.5)))),
        planted=(Planted(signature="hip_error_captured_event", facts=(("kokkos_version", "4.6.02"),), ratio=10),),
    ),
}  # fmt: skip
