"""A site's own folder of packs, as mounted into the daemon's file system."""

from __future__ import annotations

from pathlib import Path

from exporter.config import packs

PACK = """
pack: site
signatures:
  - id: site_burn_in_failed
    title: The site's burn-in test failed
    vendor: any
    layer: host
    severity: error
    sources: [job]
    patterns: ['burn-in: FAILED on (?P<device>\\S+)']
    examples: ['burn-in: FAILED on gpu3']
"""


def test_a_mounted_configmap_is_read_once(tmp_path: Path) -> None:
    version = tmp_path / "..2026_01_01_00_00_00.123456789"
    version.mkdir()
    (version / "site.yaml").write_text(PACK)
    (tmp_path / "..data").symlink_to(version.name)
    (tmp_path / "site.yaml").symlink_to("..data/site.yaml")
    assert [path for path, _ in packs.of_site([tmp_path])] == [str(tmp_path / "site.yaml")]
    assert "site_burn_in_failed" in packs.load([tmp_path]).signatures


def test_packs_in_subfolders_are_read(tmp_path: Path) -> None:
    (tmp_path / "rack").mkdir()
    (tmp_path / "rack/site.yml").write_text(PACK)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/site.yaml").write_text("not a pack")
    assert [path for path, _ in packs.of_site([tmp_path])] == [str(tmp_path / "rack/site.yml")]
