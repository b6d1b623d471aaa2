"""docs/install-slurm.md, typed block by block on a bare Debian that runs under systemd."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.deploy import bare, live
from tests.deploy.bare import ROOT
from tests.deploy.live import Live

MISSING = [*bare.MISSING, *live.MISSING]
PROMISED_SECONDS = 300.0  # from nothing to the first scraped metric in five minutes

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.deploy,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it starts a machine of its own"),
]


class Page:
    """A page, and a machine where somebody follows it."""

    def __init__(self, name: str, machine: Live, folder: str) -> None:
        self._text = (ROOT / "docs" / name).read_text()
        self._machine = machine
        self._folder = folder

    def blocks(self, heading: str) -> list[tuple[str, str]]:
        """What stands in the blocks of a section, each with its language."""
        (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", self._text, re.DOTALL | re.MULTILINE)
        return re.findall(r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)

    def follow(self, heading: str, *, without: str = "nothing") -> str:
        """Do what the blocks of a section say, but for those that begin so; what was said on the terminal."""
        said = ""
        for language, block in self.blocks(heading):
            if language == "yaml":
                named = re.match(r"# (/etc/\S+)\n", block)
                path = named[1] if named else "/etc/prometheus/prometheus.yml"
                (self._machine.root / path.lstrip("/")).write_text(block)
            elif not block.startswith(without):
                assert not language
                said += self._machine.shell(block, self._folder)
        return said


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live.prepared(tmp_path_factory.mktemp("live") / "base")


@pytest.fixture
def machine(base: Path) -> Iterator[Live]:
    """A node with a Prometheus on it, under the names that the pages use."""
    root = base.with_name("machine")
    bare.said("cp", "--archive", base, root)
    with live.started(root) as machine:
        machine.shell("apt-get update && apt-get install --yes --no-install-recommends prometheus")
        machine.shell("echo 127.0.0.1 gpu-07 prometheus.example.org >>/etc/hosts")
        yield machine
    shutil.rmtree(root)


def scraped(machine: Live, metric: str) -> str:
    """Wait until the machine's Prometheus has it."""
    machine.shell("systemctl restart prometheus")
    url = f"http://127.0.0.1:9090/api/v1/query?query={quote(metric)}"
    return machine.shell(f"timeout 90 bash -c 'until curl -s {url} | grep {metric}; do sleep 0.5; done'")


def test_a_slurm_node_is_installed_as_its_page_says(machine: Live, package: Path) -> None:
    (machine.root / "scratch/root").mkdir(parents=True)  # the cluster's, where it sits
    shutil.copy(package, machine.root / "root")
    page = Page("install-slurm.md", machine, "/root")
    began = time.monotonic()
    page.follow("1. The package", without="make deb")
    said = page.follow("2. Where the job logs are")
    assert "is valid: 2 sources" in said
    assert not re.findall(r"^bad.*", said, re.MULTILINE)
    series, seen, healthy = page.follow("3. See that it works").splitlines()
    assert 800 <= int(series) <= 1900
    assert seen.startswith("seen: /scratch/root/slurm-0.out to ")
    assert healthy.startswith("gpufault: healthy since ")
    assert "gpu-07:9873" in scraped(machine, "gpufault_build_info")
    assert time.monotonic() - began < PROMISED_SECONDS
    for _, block in page.blocks("4. Hooks")[:1]:
        for hook in re.findall(r"=(/\S+)", block):
            machine.shell(f"SLURM_JOB_ID=7 {hook}")
    page.follow("Taking it away")
    assert "gpufault" not in machine.shell("getent passwd; systemctl list-unit-files --no-pager; ls /etc /var/lib")
