"""Probes: the reading behind `exporter.core.facts`. Which files of a machine state its facts, one module a subject.

Nothing is executed and nothing is waited for. A new probe is a `Probe` in one of these modules and a row in `table`.
"""

from exporter.probes.base import Fact, Found, Host, Probe
from exporter.probes.gather import Gathered, gather
from exporter.probes.table import FACTS, PROBES

__all__ = ["FACTS", "PROBES", "Fact", "Found", "Gathered", "Host", "Probe", "gather"]
