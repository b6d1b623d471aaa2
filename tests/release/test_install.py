"""A release as a stranger gets it: each way of installation that the pages name, from local copies of where it is published."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.deploy import bare
from tests.deploy.api_server import serving
from tests.deploy.bare import Bare, said
from tests.deploy.kubernetes import NEWEST, only
from tests.deploy.tools import tool
from tests.release.conftest import VERSION, built
from tests.support.programs import missing, needs, needs_root

PROGRAMS = ("git", "apt-ftparchive", "gpg", "createrepo_c", "dnf")
MISSING = [name for name in ("helm", "nfpm", "crane") if not tool(name)] + bare.MISSING + missing(*PROGRAMS)
pytestmark = [pytest.mark.nightly, pytest.mark.release, needs(absent=MISSING), needs_root]


@pytest.fixture(autouse=True)
def nothing_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


CRASH = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n"
NAMED = "out of memory"


def test_sums_fit_and_the_same_tag_gives_the_same_files(
    release: Path, checkout: Path, registry: str, tmp_path: Path
) -> None:
    sums = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in release.iterdir()} - {"SHA256SUMS", "NOTES.md"}
    assert sums == {name: hashlib.sha256((release / name).read_bytes()).hexdigest() for name in sums}
    again = built(checkout, registry, tmp_path / "again")
    lines = (again / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == len([name for name in sums if not name.endswith((".deb", ".rpm"))])
    assert set(lines) <= {f"{digest}  {name}" for name, digest in sums.items()}


def test_the_image_is_built_from_sources_of_this_version(checkout: Path, registry: str, tmp_path: Path) -> None:
    tree = built(checkout, registry, tmp_path / "tree", "--only-tree")
    assert f'__version__ = "{VERSION}"' in (tree / "exporter/__init__.py").read_text()
    assert f"ARG VERSION={VERSION}\n" in (tree / "Dockerfile").read_text()
    assert (tree / "requirements-image.lock").is_file()


def test_pip_installs_the_fleet_service_from_an_index(index: str, tmp_path: Path) -> None:
    said(sys.executable, "-m", "venv", tmp_path / "venv")
    pip, gpufault = tmp_path / "venv/bin/pip", tmp_path / "venv/bin/gpufault"
    said(pip, "install", "--quiet", "--extra-index-url", index, f"gpufault[fleet]=={VERSION}")
    assert said(gpufault, "--version") == f"gpufault {VERSION}\n"
    log = tmp_path / "job.log"
    log.write_text(CRASH)
    assert NAMED in subprocess.run([gpufault, "scan", log], capture_output=True, text=True, check=False).stdout.lower()
    assert "usage: gpufault fleet" in said(gpufault, "fleet", "--help")


def test_uvx_shows_the_demo_without_an_installation(index: str, tmp_path: Path) -> None:
    said(sys.executable, "-m", "venv", tmp_path / "venv")
    said(tmp_path / "venv/bin/pip", "install", "--quiet", "uv")
    indexes = said(tmp_path / "venv/bin/pip", "config", "list")
    proxied = re.search(r"index-url='([^']+)'", indexes)
    environment = {**os.environ, "HOME": str(tmp_path), "UV_INDEX": index, "UV_INDEX_STRATEGY": "unsafe-best-match"}
    if proxied:
        environment["UV_DEFAULT_INDEX"] = proxied[1]
    command = [tmp_path / "venv/bin/uvx", "--from", f"gpufault[fleet]=={VERSION}", "gpufault", "demo"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        assert demo.stdout
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if pages := re.findall(r"http://\S+", line):
                break
        else:
            pytest.fail("".join(lines))
        with urllib.request.urlopen(pages[0], timeout=60) as page:
            assert b"gpufault" in page.read()
        demo.terminate()
        demo.stdout.read()


def signed_repository(release: Path, folder: Path) -> None:
    """A flat apt repository of the release's packages, signed by a key that is made for it."""
    for path in release.glob("*.deb"):
        shutil.copy(path, folder)
    home = folder / "home"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", home, "--batch", "--passphrase", "", "--quiet"]
    said(*gpg, "--quick-generate-key", "release@localhost", "ed25519", "sign", "never")
    said(*gpg, "--output", folder / "key.gpg", "--export")
    written = subprocess.run(["apt-ftparchive", "packages", "."], cwd=folder, check=True, capture_output=True).stdout
    (folder / "Packages").write_bytes(written)
    written = subprocess.run(["apt-ftparchive", "release", "."], cwd=folder, check=True, capture_output=True).stdout
    (folder / "Release").write_bytes(written)
    said(*gpg, "--output", folder / "InRelease", "--clearsign", folder / "Release")
    shutil.rmtree(home)


def test_apt_installs_both_packages_from_a_signed_repository(debian: Bare, release: Path, tmp_path: Path) -> None:
    machine = debian.copied(tmp_path / "debian")
    (machine.folder / "repository").mkdir()
    signed_repository(release, machine.folder / "repository")
    (machine.folder / "etc/apt/sources.list.d/gpufault.list").write_text(
        "deb [signed-by=/repository/key.gpg] file:/repository ./\n"
    )
    machine.said("apt-get", "update", "--quiet")
    machine.said("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", "gpufault-fleet")
    works(machine)
    assert "gpufault" in (machine.folder / "etc/passwd").read_text()
    machine.said("apt-get", "purge", "--quiet", "--yes", "gpufault", "gpufault-fleet")
    assert not machine.has("/usr/lib/gpufault")


STUB = """
name: stub-of-a-distribution
version: 1.0.0
arch: all
description: what the packages of a distribution with rpm provide, on a root that has it already
provides: [shadow-utils, "glibc = 2.34", libgcc, libstdc++, zlib, /usr/bin/python3.11]
"""


def test_dnf_installs_upgrades_and_removes_both_packages(debian: Bare, release: Path, tmp_path: Path) -> None:
    """On Debian's files, as no other distribution's can be had: a stub provides the names that the packages need."""
    machine = debian.copied(tmp_path / "root", "python3", "passwd")
    for path in release.glob("*.rpm"):
        shutil.copy(path, tmp_path)
    (tmp_path / "stub.yaml").write_text(STUB)
    said(str(tool("nfpm")), "package", "--config", tmp_path / "stub.yaml", "--packager", "rpm", "--target", tmp_path)
    repository = tmp_path / "repository"
    repository.mkdir()
    for path in tmp_path.glob("*.rpm"):
        path.rename(repository / path.name)
    said("createrepo_c", "--quiet", repository)
    dnf = [
        "dnf", "--quiet", "--assumeyes", f"--installroot={machine.folder}", "--releasever=9", "--disablerepo=*",
        f"--repofrompath=local,{repository}", "--setopt=local.gpgcheck=0", "--setopt=tsflags=",
    ]  # fmt: skip
    said(*dnf, "install", "gpufault-fleet")
    works(machine)
    assert machine.said("stat", "--format=%U:%G %a", "/var/lib/gpufault").strip() == "gpufault:gpufault 700"
    assert machine.has("/usr/lib/systemd/system/gpufault.service")
    ours = machine.folder / "etc/gpufault/config.yaml"
    ours.write_text(f"{ours.read_text()}# ours\n")
    said(*dnf, "reinstall", "gpufault", "gpufault-fleet")
    assert ours.read_text().endswith("# ours\n")
    works(machine)
    said(*dnf, "remove", "gpufault", "gpufault-fleet")
    assert not machine.has("/usr/lib/gpufault")
    assert not machine.has("/usr/bin/gpufault")
    assert machine.has("/var/lib/gpufault")


def works(machine: Bare) -> None:
    assert machine.said("gpufault", "--version") == f"gpufault {VERSION}\n"
    assert "is valid" in machine.said("gpufault", "run", "--config.check")
    (machine.folder / "tmp/job.log").write_text(CRASH)
    assert NAMED in machine.said("sh", "-c", "gpufault scan /tmp/job.log || true").lower()
    assert "usage: gpufault correlate" in machine.said("gpufault", "correlate", "--help")
    assert said(*machine.inside("sh", "-c", "ls /usr/lib/gpufault/lib/python3*/site-packages/exporter/__pycache__"))


def test_helm_installs_the_chart_from_a_registry(release: Path, registry: str, tmp_path: Path) -> None:
    helm = tool("helm")
    assert helm
    said(helm, "push", release / f"gpufault-{VERSION}.tgz", f"oci://{registry}/charts", "--plain-http")
    chart = [f"oci://{registry}/charts/gpufault", "--version", VERSION, "--plain-http", "--namespace", "gpufault"]
    told = said(helm, "template", "gpufault", *chart, "--kube-version", NEWEST)
    container = only(told[told.index("---") :], "DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"{registry}/gpufault:{VERSION}"
    manifest = (release / f"gpufault-{VERSION}.yaml").read_text()
    assert only(manifest, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["image"] == container["image"]
    assert "kind: Secret" not in manifest
    with serving() as server:
        options = ["--kube-apiserver", server.url, "--timeout", "300s", "--disable-openapi-validation"]
        said(helm, "install", "gpufault", *chart, *options)
        assert "DaemonSet/gpufault" in server.names()
