"""The Debian package on a fresh Debian: installed, run, scraped, upgraded, removed and purged."""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.bare import MISSING, Bare, said
from tests.e2e.conftest import eventually
from tests.support.programs import needs, needs_root

CRASH = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.deploy,
    needs(absent=MISSING),
    needs_root,
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, debian: Bare) -> Bare:
    return debian.copied(tmp_path_factory.mktemp("bare"))


@contextmanager
def daemon(bare: Bare) -> Iterator[str]:
    """The daemon as its user, as its unit starts it; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = bare.inside("gpufault", "run", f"--web.listen-address={address}", user="gpufault:gpufault")
    process = subprocess.Popen(command)
    try:
        eventually(lambda: _answers(address), seconds=60)
        yield address
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0


def _answers(address: str) -> bool:
    try:
        return "is ready" in scrape(address, "/-/ready")  # what is written before the first look is skipped
    except OSError:
        return False


def scrape(address: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return answer.read().decode()


def lines_seen(address: str) -> float:
    text = scrape(address)
    start = 'gpufault_lines_matched_total{signature="torch_oom",source="job"} '
    return next((float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start)), 0.0)


@needs("lintian")
def test_lintian_reports_no_errors(package: Path) -> None:
    said("lintian", "--allow-root", "--fail-on=error", package)


def test_the_package_installs_runs_upgrades_and_purges_completely(bare: Bare, package: Path, tmp_path: Path) -> None:
    shutil.copy(package, bare.folder / "tmp/gpufault.deb")
    bare.said("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", "/tmp/gpufault.deb")
    assert bare.said("gpufault", "--version").startswith("gpufault ")
    assert "is valid" in bare.said("gpufault", "run", "--config.check")
    assert bare.said("stat", "--format=%U:%G %a", "/var/lib/gpufault").strip() == "gpufault:gpufault 700"
    assert bare.has("/lib/systemd/system/gpufault.service")
    assert bare.has("/usr/lib/gpufault/slurm/health-check")

    config = bare.folder / "etc/gpufault/config.yaml"
    config.write_text("sources: [{kind: files, paths: [/var/log/jobs/*.log]}]  # ours\n")
    log = bare.folder / "var/log/jobs/slurm-7.log"
    log.parent.mkdir()
    with daemon(bare) as address:
        assert lines_seen(address) == 0.0
        log.write_text(CRASH)
        eventually(lambda: lines_seen(address) == 1.0 or None)

    newer = tmp_path / "newer"
    said("dpkg-deb", "--raw-extract", package, newer)
    control = newer / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: ", "Version: 1:", 1))
    said("dpkg-deb", "--root-owner-group", "-Znone", "--build", newer, bare.folder / "tmp/newer.deb")
    bare.said("dpkg", "--install", "/tmp/newer.deb")
    assert "Version: 1:" in bare.said("dpkg", "--status", "gpufault")
    assert config.read_text().endswith("# ours\n")
    with daemon(bare) as address:
        assert lines_seen(address) == 1.0
        with log.open("a") as more:
            more.write(CRASH)
        eventually(lambda: lines_seen(address) == 2.0 or None)

    bare.said("dpkg", "--remove", "gpufault")
    assert not bare.has("/usr/bin/gpufault")
    assert not bare.has("/usr/lib/gpufault")
    assert bare.has("/etc/gpufault/config.yaml")
    assert bare.has("/var/lib/gpufault/state.sqlite")
    bare.said("dpkg", "--purge", "gpufault")
    left = [
        str(path)
        for path in bare.folder.rglob("*gpufault*")
        if "/tmp/" not in str(path.relative_to(bare.folder.parent))
    ]
    assert [path for path in left if not path.endswith("/tmp/gpufault.deb")] == []
    assert "gpufault" not in (bare.folder / "etc/passwd").read_text()
