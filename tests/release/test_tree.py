"""The tree of a release: its version and its publisher's addresses are everywhere where users meet them."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.programs import needs

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy/release"))
import tree as release  # noqa: E402 - of deploy/, outside the package

ADDRESSES = {
    "registry": "registry.test/team",
    "site": "https://docs.test/gpufault/",
    "repository": "https://git.test/gpufault",
    "security": "s@test",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a tag would have, but for what users do not get."""
    for folder in ("deploy", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "signatures"))
    for name in (
        "exporter/__init__.py",
        "exporter/fleet/pull/targets.py",
        "Dockerfile",
        "SECURITY.md",
        "README.md",
        "CHANGELOG.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    release.stamp(tmp_path, "7.8.9", release.Publisher(**ADDRESSES))
    return tmp_path


def test_each_file_has_the_version_of_the_tag(tree: Path) -> None:
    assert '__version__ = "7.8.9"' in (tree / "exporter/__init__.py").read_text()
    assert "ARG VERSION=7.8.9\n" in (tree / "Dockerfile").read_text()
    chart = yaml.safe_load((tree / "deploy/helm/gpufault/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("7.8.9", "7.8.9")
    (image,) = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert image["image"] == "registry.test/team/gpufault:7.8.9"
    job = (tree / "deploy/kubernetes/report-cronjob.yaml").read_text()
    assert "image: registry.test/team/gpufault:7.8.9\n" in job
    assert "gpufault:7.8.9" in (tree / "docs/install-kubernetes.md").read_text()


def test_charts_images_come_from_the_registry_and_links_lead_to_the_site(tree: Path) -> None:
    chart = tree / "deploy/helm/gpufault"
    assert yaml.safe_load((chart / "values.yaml").read_text())["image"]["registry"] == "registry.test/team"
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (about["home"], about["sources"]) == ("https://docs.test/gpufault", ["https://git.test/gpufault"])
    for rules in (tree / "deploy/prometheus/rules.yml", chart / "files/rules.yaml"):
        runbooks = re.findall(r"runbook_url: (\S+)/runbooks/", rules.read_text())
        assert set(runbooks) == {"https://docs.test/gpufault"}
    assert "or to\ns@test" in (tree / "SECURITY.md").read_text()


def test_no_file_names_a_placeholder(tree: Path) -> None:
    left = [path for path in tree.rglob("*") if path.is_file() and release.PLACEHOLDER.encode() in path.read_bytes()]
    assert left == [tree / "deploy/release/tree.py"]


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("value", ["", "https://gpufault.example.org", "security@gpufault.example.org"])
def test_a_release_without_a_real_address_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: .* is not an address of a publisher"):
        release.Publisher(**{**ADDRESSES, name: value})


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2", "v0.2.0rc1", "v0.2.0-1", "main"])
def test_only_a_tag_of_a_version_is_a_release(tag: str) -> None:
    with pytest.raises(ValueError, match=f"{tag} is not the tag of a release"):
        release.version_of(tag)


@needs("git")
def test_a_tag_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the tag v9\.9\.9 cannot be read: fatal: "):
        release.exported(tmp_path, "v9.9.9", tmp_path / "tree")


def test_notes_are_those_of_one_version(tmp_path: Path) -> None:
    sections = (
        "# Changelog",
        "## [Unreleased]",
        "- later",
        "## [0.2.0] - 2027-01-02",
        "### Added",
        "- this",
        "## [0.1.0]",
    )
    (tmp_path / "CHANGELOG.md").write_text("\n\n".join((*sections, "- before\n")))
    assert release.notes(tmp_path, "0.2.0") == "### Added\n\n- this\n"
    with pytest.raises(ValueError, match=r"no section \[0.3.0\]"):
        release.notes(tmp_path, "0.3.0")
