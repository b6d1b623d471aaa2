"""A page of docs/, followed on a machine: its blocks are typed, its files written, section by section."""

from __future__ import annotations

import re
from urllib.parse import quote

from tests.deploy.bare import ROOT
from tests.deploy.live import Live

PROMETHEUS = "global: {scrape_interval: 5s}\n"  # what stands before the job of a page already


class Page:
    """A page, and a machine where somebody follows it."""

    def __init__(self, name: str, machine: Live, folder: str) -> None:
        self.text = (ROOT / "docs" / name).read_text()
        self._machine = machine
        self._folder = folder

    def blocks(self, heading: str) -> list[tuple[str, str]]:
        """What stands in the blocks of a section, each with its language."""
        (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", self.text, re.DOTALL | re.MULTILINE)
        return re.findall(r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)

    def follow(self, heading: str, *, without: str = "nothing") -> str:
        """Do what the blocks of a section say, but for those that begin so; what was said on the terminal."""
        said = ""
        for language, block in self.blocks(heading):
            if language == "yaml":
                named = re.match(r"# (/etc/\S+)\n", block)
                path, before = (named[1], "") if named else ("/etc/prometheus/prometheus.yml", PROMETHEUS)
                (self._machine.root / path.lstrip("/")).write_text(before + block)
            elif not block.startswith(without):
                assert not language
                said += self._machine.shell(block, self._folder)
        return said


def scraped(machine: Live, metric: str) -> str:
    """Wait until the machine's Prometheus has it."""
    machine.shell("systemctl restart prometheus")
    url = f"http://127.0.0.1:9090/api/v1/query?query={quote(metric)}"
    return machine.shell(f"timeout 90 bash -c 'until curl -s {url} | grep {metric}; do sleep 0.5; done'")
