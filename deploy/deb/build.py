"""Builds gpufault_*.deb, the node daemon and its command, and gpufault-fleet_*.deb, what the correlator needs besides.

    python deploy/deb/build.py WHEEL FOLDER [PACKAGE…] [--python /usr/bin/python3]

An environment of its own below /usr/lib/gpufault, for Debian's Python, of the wheel and of what requirements.lock names
by hash. Needs dpkg-dev and help2man, and runs in an environment of requirements-dev.lock in which the wheel is installed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEPLOY = HERE.parent
HOME = Path("usr/lib/gpufault")
SECONDS = os.environ.get("SOURCE_DATE_EPOCH", "1767225600")  # every file's time: the same input gives the same package
MAINTAINER = (
    f"{os.environ.get('DEBFULLNAME', 'gpufault developers')} <{os.environ.get('DEBEMAIL', 'gpufault@localhost')}>"
)
NODE = """Package: gpufault
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: adduser, python3 (>= {python}~), python3 (<< {next_python}~), {libraries}
Suggests: gpufault-fleet
Section: admin
Priority: optional
Description: GPU crash exporter: why do GPU jobs crash on this fleet?
 A daemon that reads job logs and the kernel log of a node, finds the root
 cause of each GPU crash from evidence and node facts, and counts it for
 Prometheus. Knows AMD, Intel and NVIDIA.
"""
FLEET = """Package: gpufault-fleet
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: gpufault (= {version}), libc6, libgcc-s1, libstdc++6, zlib1g
Section: admin
Priority: optional
Description: GPU crash exporter: correlation over a fleet
 What `gpufault correlate` needs besides the node daemon: DuckDB, NumPy and
 SciPy. One machine of a fleet needs it, the nodes do not.
"""
LAUNCHER = """#!/usr/lib/gpufault/bin/python3
import sys

from exporter.cli.main import main

sys.exit(main())
"""
# What holds of wheels from elsewhere, as they are; and whoever publishes the package sets DEBEMAIL.
OVERRIDES = (
    "bogus-mail-host",
    "bogus-mail-host-in-debian-changelog",
    "wrong-path-for-interpreter",
    "embedded-library",
    "unstripped-binary-or-object",
    "hardening-no-pie",
    "library-not-linked-against-libc",
    "shared-library-lacks-prerequisites",
    "custom-library-search-path",
    "statically-linked-binary",
    "binary-with-bad-dynamic-table",
    "unusual-interpreter",
    "shared-library-is-executable",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: gpufault gpufault-fleet")
    parser.add_argument("--python", default="/usr/bin/python3")
    options = parser.parse_args()
    python = _text(options.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    major, minor = python.split(".")
    words = {
        "version": options.wheel.name.split("-")[1],
        "architecture": _text("dpkg", "--print-architecture"),
        "maintainer": MAINTAINER,
        "python": python,
        "next_python": f"{major}.{int(minor) + 1}",
    }
    node = _needed("gpufault", {"journald"})
    for package in options.packages or ("gpufault", "gpufault-fleet"):
        with tempfile.TemporaryDirectory(prefix="gpufault-deb-") as name:
            root = Path(name) / package
            if package == "gpufault":
                packages = _environment(root, options.python, python, node)
                _install(root, "--no-deps", "--no-index", str(options.wheel.absolute()))
                _relocate(root, python)
                _integrate(root)
            else:
                packages = _environment(root, options.python, python, _needed("gpufault", {"fleet"}) - node)
                shutil.rmtree(root / HOME / "bin")
                (root / HOME / "pyvenv.cfg").unlink()
            _tidy(root, packages)
            _unit(root, f"{package}.service")
            _document(root, package, words["version"])
            print(_package(root, NODE if package == "gpufault" else FLEET, words, options.folder))
    return 0


def _needed(name: str, extras: Iterable[str]) -> set[str]:
    """The names of a distribution, with these extras, and of all that it needs, as far as this environment has it."""
    found = {canonicalize_name(d.name): d for d in distributions()}
    needed = {(name, extra) for extra in ("", *extras)}
    for each, extra in (waiting := list(needed)):
        for line in found[each].requires or () if each in found else ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                new = {(str(canonicalize_name(requirement.name)), more) for more in ("", *requirement.extras)} - needed
                needed |= new
                waiting += new
    return {each for each, _ in needed}


def _environment(root: Path, interpreter: str, python: str, names: set[str]) -> Path:
    """A virtual environment of these distributions below `root`; the folder of its packages."""
    home = root / HOME
    subprocess.run([interpreter, "-m", "venv", "--without-pip", home], check=True)
    blocks = re.findall(r"^[\w.-]+==.*\n(?:[ \t].*\n)*", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    locked = root / "requirements"
    locked.write_text("".join(block for block in blocks if canonicalize_name(block.partition("==")[0]) in names))
    _install(root, "--no-deps", "--require-hashes", "--requirement", str(locked))
    locked.unlink()
    return home / f"lib/python{python}/site-packages"


def _install(root: Path, *what: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(root / HOME / "bin/python3"), "install"]
    subprocess.run([*pip, "--quiet", "--no-compile", *what], check=True)


def _relocate(root: Path, python: str) -> None:
    """Have the environment work where the package puts it: the interpreter, and the one command."""
    home = root / HOME
    shutil.rmtree(home / "bin")
    (home / "bin").mkdir()
    (home / "bin/python3").symlink_to(f"../../../bin/python{python}")
    (home / "bin/gpufault").write_text(LAUNCHER)
    (home / "bin/gpufault").chmod(0o755)
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")


def _tidy(root: Path, packages: Path) -> None:
    """Leave out what tells of this machine. Nothing is compiled: that is done where it is installed."""
    for name in ("include", "lib64", "share"):
        path = root / HOME / name
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
    for leftover in ("direct_url.json", "INSTALLER", "REQUESTED"):
        for path in packages.glob(f"*.dist-info/{leftover}"):
            path.unlink()


def _integrate(root: Path) -> None:
    """What makes it a part of the system: the command, the unit, the configuration, the hooks, the manual page."""
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/gpufault").symlink_to("../lib/gpufault/bin/gpufault")
    shutil.copytree(DEPLOY / "slurm", root / HOME / "slurm")
    for source, target in (
        (DEPLOY / "gpufault.yaml", "etc/gpufault/config.yaml"),
        (DEPLOY / "systemd/gpufault.default", "etc/default/gpufault"),
        (DEPLOY / "web-config.yaml", "usr/share/doc/gpufault/examples/web-config.yaml"),
    ):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / target)
    manual = root / "usr/share/man/man1/gpufault.1.gz"
    manual.parent.mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(next((root / HOME / "lib").glob("*/site-packages"))),
        "COLUMNS": "100",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = Path(folder) / "gpufault"
        command.write_text(LAUNCHER.replace("/usr/lib/gpufault/bin/", "/usr/bin/"))
        command.chmod(0o755)
        page = subprocess.run(
            ["help2man", "--no-info", "--section=1", "--name=why do GPU jobs crash on this fleet", command],
            check=True, capture_output=True, env=environment,
        )  # fmt: skip
    manual.write_bytes(gzip.compress(page.stdout, mtime=0))


def _unit(root: Path, name: str) -> None:
    target = root / "lib/systemd/system" / name
    target.parent.mkdir(parents=True)
    target.write_text(
        (DEPLOY / "systemd" / name).read_text().replace("/opt/gpufault/bin/gpufault", "/usr/bin/gpufault")
    )


def _document(root: Path, package: str, version: str) -> None:
    folder = root / "usr/share/doc" / package
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "copyright", folder / "copyright")
    (folder / "CHANGELOG.md.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))
    date = _text("date", "--utc", "--rfc-email", f"--date=@{SECONDS}")
    entry = f"{package} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {MAINTAINER}  {date}\n"
    (folder / "changelog.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    overrides = root / "usr/share/lintian/overrides" / package
    overrides.parent.mkdir(parents=True)
    told = "# Wheels as their authors built them.\n"
    overrides.write_text(told + "".join(f"{package}: {tag} *\n" for tag in OVERRIDES))


def _package(root: Path, control: str, words: dict[str, str], folder: Path) -> Path:
    """The .deb of what lies below `root`."""
    meta = root / "DEBIAN"
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or (
                path.stat().st_mode & 0o100 and path.suffix != ".py" and ".so" not in path.name
            )
            path.chmod(0o755 if executable else 0o644)
    libraries = _libraries(root, files) if "{libraries}" in control else ""  # of SciPy it takes minutes
    meta.mkdir()
    size = sum(path.stat().st_size for path in files) // 1024
    (meta / "control").write_text(control.format(**words, size=size, libraries=libraries))
    sums = (
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
    )
    (meta / "md5sums").write_text("".join(sums))
    if conffiles := [f"/{path.relative_to(root)}\n" for path in files if path.is_relative_to(root / "etc")]:
        (meta / "conffiles").write_text("".join(conffiles))
    for script in ("postinst", "prerm", "postrm"):
        if (source := HERE / f"{root.name}.{script}").exists():
            shutil.copy(source, meta / script)
            (meta / script).chmod(0o755)
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"{root.name}_{words['version']}_{words['architecture']}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": SECONDS}
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", root, package],
        check=True, stdout=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    return package


def _libraries(root: Path, files: Iterable[Path]) -> str:
    """What its shared objects need of Debian, with versions, by dpkg-shlibdeps."""
    objects = [path for path in files if re.search(r"\.so(\.|$)", path.name)]
    own = sorted({path.parent for path in objects if path.parent.name.endswith(".libs")})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "debian").mkdir()
        (Path(folder) / "debian/control").write_text(
            f"Source: {root.name}\n\nPackage: {root.name}\nArchitecture: any\n"
        )
        command = ["dpkg-shlibdeps", "-O", "--ignore-missing-info", "--warnings=0"]
        command += [f"-l{path}" for path in own]
        done = subprocess.run([*command, *objects], check=True, cwd=folder, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip().removeprefix("shlibs:Depends=")


def _text(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
