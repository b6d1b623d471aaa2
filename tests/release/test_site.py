"""The documentation as a site: every link of it resolves, and alerts' addresses lead to runbooks of the newest version."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.deploy.bare import ROOT, said

sys.path.insert(0, str(ROOT / "deploy/site"))
from site_pages import publish

pytestmark = [pytest.mark.nightly, pytest.mark.release]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two versions, the older one built later."""
    tools, folder = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("site")
    said(sys.executable, "-m", "venv", tools)
    python = tools / "bin/python"
    said(
        python, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", ROOT / "requirements-site.lock"
    )
    gpufault = shutil.which("gpufault", path=str(Path(sys.executable).parent))
    assert gpufault
    said(
        python, ROOT / "deploy/site/site_pages.py", folder, "--version", "0.2.0", "--gpufault", gpufault
    )  # --strict: links
    shutil.copytree(folder / "0.2.0", folder / "0.10.0")
    publish(folder)
    return folder


def test_the_newest_version_comes_first_and_has_the_address_without_one(site: Path) -> None:
    assert [version["version"] for version in json.loads((site / "versions.json").read_text())] == ["0.10.0", "0.2.0"]
    assert 'url=0.10.0/"' in (site / "index.html").read_text()


def test_each_alert_leads_to_a_runbook(site: Path) -> None:
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text()
    named = set(re.findall(r"runbook_url: https://gpufault\.example\.org/(runbooks/\S+)", rules))
    assert named
    for address in named:
        (target,) = re.findall(r'url=([^"]+)', (site / address / "index.html").read_text())
        assert (site / address / target / "index.html").is_file()


def test_each_signature_has_a_page_and_readers_that_are_programs_a_list(site: Path) -> None:
    listed = re.findall(r"\]\((\S+)\)", (site / "llms.txt").read_text())
    assert len([address for address in listed if "/signatures/" in address]) > 400
    assert [address for address in listed if not (site / address / "index.html").is_file()] == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    page = (site / "0.2.0/index.html").read_text()
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://(?!gpufault)', page) == []
