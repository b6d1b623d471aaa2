"""docs/install-linux.md: each block is run on a fresh Debian under systemd."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.deploy.bare import ROOT
from tests.deploy.live import MISSING, Live
from tests.deploy.page import Page, scraped
from tests.support.programs import needs

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.deploy,
    needs(absent=MISSING),
]


def test_the_steps_of_the_linux_page_work(machine: Live) -> None:
    leave = shutil.ignore_patterns(".*", "dist", "build", "__pycache__")
    shutil.copytree(ROOT, machine.root / "root/gpufault", ignore=leave, symlinks=True)
    page = Page("install-linux.md", machine, "/root/gpufault")
    (needed,) = re.findall(r"\(Debian's `([\w\s-]+)`", page.text)
    machine.shell(f"apt-get install --yes --no-install-recommends {' '.join(needed.split())}")
    page.follow("1. Install", without="apt-get")
    said = page.follow("2. Where the logs are")
    assert "is valid: 2 sources" in said
    assert not re.findall(r"^bad.*", said, re.MULTILINE)
    ready(machine, 9873)  # nobody types faster than a reload
    is_ready, seen = page.follow("3. Test it").splitlines()
    assert is_ready == "gpufault is ready."
    assert seen.startswith("seen: /var/log/jobs/")
    page.follow("4. Scrape it")
    assert "gpu-07:9873" in scraped(machine, "gpufault_build_info")

    *_, at_first = page.follow("The fleet service", without="apt-get").splitlines()
    assert at_first in ("there is no result yet; wait", "gpufault is ready.")
    ready(machine, 9874)
    assert machine.shell("systemctl is-active gpufault gpufault-fleet") == "active\nactive\n"
    assert json.loads(machine.shell("curl -s http://127.0.0.1:9874/api/v1/correlation"))["nodes"] == 1

    page.follow("Uninstall")
    look = "find / -xdev -name '*gpufault*' -not -path '/root/*'; getent passwd; getent group"
    assert "gpufault" not in machine.shell(f"{look}; systemctl list-unit-files --no-pager")


def ready(machine: Live, port: int) -> None:
    """Wait until what listens there says that it is."""
    machine.shell(f"timeout 60 bash -c 'until curl -sf http://127.0.0.1:{port}/-/ready; do sleep 0.2; done'")
