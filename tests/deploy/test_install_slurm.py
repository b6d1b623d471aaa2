"""docs/install-slurm.md: each block is run on a fresh Debian under systemd."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.deploy import bare, live
from tests.deploy.live import Live
from tests.deploy.page import Page, scraped
from tests.support.programs import needs

MISSING = [*bare.MISSING, *live.MISSING]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.deploy,
    needs(absent=MISSING),
]


def test_the_steps_of_the_slurm_page_work(machine: Live, package: Path) -> None:
    (machine.root / "var/log/jobs/root").mkdir(parents=True)  # sbatch writes to an existing folder
    shutil.copy(package, machine.root / "root")
    page = Page("install-slurm.md", machine, "/root")
    page.follow("1. The package", without="make deb")
    said = page.follow("2. Where the job logs are")
    assert "is valid: 2 sources" in said
    assert not re.findall(r"^bad.*", said, re.MULTILINE)
    series, seen, healthy = page.follow("3. Test it").splitlines()
    assert 280 <= int(series) <= 1000
    assert seen.startswith("seen: /var/log/jobs/root/slurm-0.out to ")
    assert healthy.startswith("gpufault: healthy since ")
    assert "gpu-07:9873" in scraped(machine, "gpufault_build_info")
    for _, block in page.blocks("4. Hooks")[:1]:
        for hook in re.findall(r"=(/\S+)", block):
            machine.shell(f"SLURM_JOB_ID=7 {hook}")
    page.follow("Uninstall")
    assert "gpufault" not in machine.shell("getent passwd; systemctl list-unit-files --no-pager; ls /etc /var/lib")
