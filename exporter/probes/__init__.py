"""Probes: they read the files of a machine for `exporter.core.facts`, one file per subject.

They run no programs and never block; `ask_driver`, which waits for the driver, is a process of its own. To add a probe,
define a `Probe` and add a row to `PROBES`.
"""

from exporter.probes.gather import FACTS, PROBES, Gathered, gather
from exporter.probes.probe import Fact, Host, Probe, ProbeResult

__all__ = ["FACTS", "PROBES", "Fact", "Gathered", "Host", "Probe", "ProbeResult", "gather"]
