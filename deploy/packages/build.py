"""Builds the packages of the node daemon and its command, gpufault, and of what the correlator needs besides, gpufault-fleet.

    python deploy/packages/build.py WHEEL FOLDER [PACKAGE…] [--format deb] [--format rpm] [--python /usr/bin/python3]

Both formats have one content: an environment of its own below /usr/lib/gpufault, for this distribution's Python, of the wheel
and of what requirements.lock names by hash. NAME.yaml describes a package for nfpm, deb/ and rpm/ have what is run when it
is installed and removed. Needs nfpm, help2man and, for .deb, dpkg-dev; runs in an environment of requirements-dev.lock in
which the wheel is installed.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEPLOY = HERE.parent
HOME = Path("usr/lib/gpufault")
PACKAGES = ("gpufault", "gpufault-fleet")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as nfpm names them; it translates them for rpm
SECONDS = os.environ.get("SOURCE_DATE_EPOCH", "1767225600")  # every file's time: the same input gives the same package
MAINTAINER = (
    f"{os.environ.get('DEBFULLNAME', 'gpufault developers')} <{os.environ.get('DEBEMAIL', 'gpufault@localhost')}>"
)
ONLY_DEBIAN = {"changelog.Debian.gz", "copyright", "lintian"}
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
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    parser.add_argument("--format", action="append", choices=("deb", "rpm"), help="default: deb")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--nfpm", default="nfpm", help="the program that writes packages")
    options = parser.parse_args()
    python = _text(options.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    version = options.wheel.name.split("-")[1]
    node = _needed("gpufault", {"journald"})
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.packages or PACKAGES:
        with tempfile.TemporaryDirectory(prefix="gpufault-package-") as folder:
            root = Path(folder) / name
            if name == "gpufault":
                packages = _environment(root, options.python, python, node)
                _install(root, "--no-deps", "--no-index", str(options.wheel.absolute()))
                _relocate(root, python)
                _manual(root)
                shutil.copytree(DEPLOY / "slurm", root / HOME / "slurm")
            else:
                packages = _environment(root, options.python, python, _needed("gpufault", {"fleet"}) - node)
                shutil.rmtree(root / HOME / "bin")
                (root / HOME / "pyvenv.cfg").unlink()
            _tidy(root, packages)
            _document(root, name, f"{version}-{_release(python)}")
            _modes(root)
            for kind in options.format or ("deb",):
                print(_package(root, kind, version, python, options))
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


def _manual(root: Path) -> None:
    """The manual page of the command."""
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


def _document(root: Path, package: str, version: str) -> None:
    folder = root / "usr/share/doc" / package
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CHANGELOG.md.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))
    shutil.copy(HERE / "copyright", folder / "copyright")
    date = _text("date", "--utc", "--rfc-email", f"--date=@{SECONDS}")
    entry = f"{package} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {MAINTAINER}  {date}\n"
    (folder / "changelog.Debian.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    overrides = root / "usr/share/lintian/overrides" / package
    overrides.parent.mkdir(parents=True)
    told = "# Wheels as their authors built them.\n"
    overrides.write_text(told + "".join(f"{package}: {tag} *\n" for tag in OVERRIDES))


def _modes(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or (
                path.stat().st_mode & 0o100 and path.suffix != ".py" and ".so" not in path.name
            )
            path.chmod(0o755 if executable else 0o644)


def _package(root: Path, kind: str, version: str, python: str, options: argparse.Namespace) -> Path:
    """The package of what lies below `root`, as nfpm writes it."""
    described = _described(root, kind, version, python)
    configuration = root.with_name(f"{root.name}.{kind}.yaml")
    configuration.write_text(yaml.safe_dump(described))
    target = options.folder.absolute() / _file_name(described, kind)
    subprocess.run(
        [options.nfpm, "package", "--config", configuration, "--packager", kind, "--target", target],
        check=True, cwd=HERE, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": SECONDS},
    )  # fmt: skip
    return target


def _described(root: Path, kind: str, version: str, python: str) -> dict[str, Any]:
    """What nfpm reads: the package's description for one format, with its files and what they need."""
    described: dict[str, Any] = yaml.safe_load((HERE / f"{root.name}.yaml").read_text())
    fixed = described.pop("overrides")[kind]["depends"]
    unit = "/lib/systemd/system" if kind == "deb" else "/usr/lib/systemd/system"
    service = root.with_name(f"{root.name}.service")
    service.write_text(
        (DEPLOY / "systemd" / service.name).read_text().replace("/opt/gpufault/bin/gpufault", "/usr/bin/gpufault")
    )
    plain = {"file_info": {"mode": 0o644}}  # whatever the umask of the checkout was
    files = [path for path in (root / "usr/share").rglob("*") if path.is_file()]
    if kind == "rpm":
        files = [path for path in files if not {path.name, *path.parts} & ONLY_DEBIAN]
    return described | {
        "version": version,
        "release": _release(python),
        "arch": ARCHITECTURES[platform.machine()],
        "maintainer": MAINTAINER,
        "depends": [*fixed, *_needs(root, kind, version, python)],
        "contents": [
            *(plain | file if file.get("type") != "symlink" else file for file in described.get("contents", ())),
            {"src": str(root / HOME), "dst": f"/{HOME}", "type": "tree"},
            plain | {"src": str(service), "dst": f"{unit}/{service.name}"},
            *({"src": str(path), "dst": f"/{path.relative_to(root)}"} for path in files),
        ],
        "scripts": {
            action: f"{kind}/{root.name}.{script}"
            for action, script in (("postinstall", "postinst"), ("preremove", "prerm"), ("postremove", "postrm"))
        },
        "deb": {"compression": "zstd"},
        "rpm": {"compression": "zstd", "group": "System Environment/Daemons"},
    }


def _needs(root: Path, kind: str, version: str, python: str) -> list[str]:
    """What a package needs that is not the same each time: the node's package, or Python and shared libraries."""
    if root.name != "gpufault":
        exactly = f"{version}-{_release(python)}"
        return [f"gpufault (= {exactly})" if kind == "deb" else f"gpufault = {exactly}"]
    major, minor = python.split(".")
    if kind == "rpm":  # what the wheels of manylinux_2_34 may need
        return [f"/usr/bin/python{python}", "glibc >= 2.34", "libgcc", "libstdc++", "zlib"]
    libraries = _libraries(root, [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()])
    return [f"python3 (>= {python}~)", f"python3 (<< {major}.{int(minor) + 1}~)", *libraries.split(", ")]


def _release(python: str) -> str:
    """Of a package in its distribution: it is made for one Python."""
    return f"py{python.replace('.', '')}"


def _file_name(described: dict[str, Any], kind: str) -> str:
    """By the conventions of each format."""
    name, version = described["name"], f"{described['version']}-{described['release']}"
    if kind == "deb":
        return f"{name}_{version}_{described['arch']}.deb"
    return f"{name}-{version}.{platform.machine()}.rpm"


def _libraries(root: Path, files: Iterable[Path]) -> str:
    """What its shared objects need of Debian, with versions, by dpkg-shlibdeps."""
    objects = [path for path in files if re.search(r"\.so(\.|$)", path.name)]
    own = sorted({path.parent for path in objects if path.parent.name.endswith(".libs")})
    (root / "DEBIAN").mkdir()  # by which dpkg-shlibdeps knows where the package begins
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
