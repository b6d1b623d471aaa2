"""Probes: they read the files of a machine for `exporter.core.facts`, one module per subject.

They run no programs and never block; `ask_driver`, which waits for the driver, is a process of its own. To add a probe,
define a `Probe` and add a row to `table`.
"""

from exporter.probes.base import Fact, Host, Probe, ProbeResult
from exporter.probes.gather import Gathered, gather
from exporter.probes.table import FACTS, PROBES

__all__ = ["FACTS", "PROBES", "Fact", "Gathered", "Host", "Probe", "ProbeResult", "gather"]
