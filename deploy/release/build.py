"""Builds the files of a release from a tag, into a folder.

    python deploy/release/build.py v0.2.0 FOLDER --registry ghcr.io/OWNER --site https://… --repository https://… \
      --security ADDRESS [--packages]

Python's sdist and wheel, the chart, its rendered manifest, the signature packs, what all of it is made of (CycloneDX),
the notes of this version, and SHA256SUMS; with --packages also .deb and .rpm for this machine's Python and architecture.
With --only-tree the folder gets the sources instead, from which the image is built. The same tag and addresses give the
same bytes. Needs helm and, for packages, what deploy/packages/build.py needs; the tools of Python come by the hashes of
requirements-image.lock and requirements-dev.lock.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tree import Publisher, exported, notes, stamp, version_of

ROOT = Path(__file__).parents[2]
# Without the fleet service: each installation makes its keys and password, and these may not be the same everywhere.
VALUES = "kubePrometheusStack.enabled=true,fleet.enabled=false"
RENDERED = ("gpufault", "--namespace", "gpufault", "--set", VALUES, "--kube-version", "1.25", "--no-hooks")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag")
    parser.add_argument("folder", type=Path)
    for name, told in (
        ("registry", "of the image and the chart"),
        ("site", "address of the documentation"),
        ("repository", "address of the source"),
        ("security", "where vulnerabilities are reported"),
    ):
        parser.add_argument(f"--{name}", required=True, help=told)
    parser.add_argument("--packages", action="store_true", help="also .deb and .rpm")
    parser.add_argument(
        "--only-tree", action="store_true", help="only the files of the tag, with version and addresses"
    )
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--nfpm", default="nfpm")
    options = parser.parse_args()
    try:
        publisher = Publisher(options.registry, options.site, options.repository, options.security)
        version = version_of(options.tag)
        folder = options.folder.absolute()
        folder.mkdir(parents=True)
        if options.only_tree:
            exported(options.checkout, options.tag, folder)
            stamp(folder, version, publisher)
            return 0
        with tempfile.TemporaryDirectory(prefix="gpufault-release-") as name:
            tree = Path(name) / f"gpufault-{version}"
            exported(options.checkout, options.tag, tree)
            stamp(tree, version, publisher)
            (folder / "NOTES.md").write_text(notes(tree, version), encoding="utf-8")
            os.environ["SOURCE_DATE_EPOCH"] = _text(
                "git", "-C", options.checkout, "log", "-1", "--format=%ct", options.tag
            )
            os.environ.setdefault("DEBEMAIL", publisher.security)
            python = _tools(tree, Path(name))
            _wheel(tree, folder, python)
            _bill(tree, folder / f"gpufault-{version}.cdx.json", python)
            _chart(tree, folder, version, options.helm)
            _archive(tree / "signatures", folder / f"gpufault-packs-{version}.tar.gz")
            if options.packages:
                _packages(tree, folder, Path(name), options.nfpm)
    except (ValueError, FileExistsError) as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout or ''}{error.stderr or ''}", file=sys.stderr)
        return 1
    files = sorted(path for path in folder.iterdir() if path.name != "NOTES.md")
    (folder / "SHA256SUMS").write_text("".join(f"{_digest(path)}  {path.name}\n" for path in files))
    print("\n".join(path.name for path in files))
    return 0


def _tools(tree: Path, folder: Path) -> Path:
    """The interpreter of an environment with what builds a wheel and says what is in it."""
    _run(sys.executable, "-m", "venv", folder / "tools")
    python = folder / "tools/bin/python"
    _run(
        python, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", tree / "requirements-image.lock"
    )
    return python


def _wheel(tree: Path, folder: Path, python: Path) -> None:
    """sdist and wheel. PYTHONHASHSEED: sets in what is compiled are sorted by hashes."""
    command = (python, "-P", "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", folder, tree)
    _run(*command, env={**os.environ, "PYTHONHASHSEED": "0"})


def _bill(tree: Path, target: Path, python: Path) -> None:
    """What a full installation has: the locked packages with their hashes."""
    _run(
        python, "-m", "cyclonedx_py", "requirements", "--pyproject", tree / "pyproject.toml", "--mc-type", "application",
        "--output-reproducible", "--output-format", "JSON", "--output-file", target, tree / "requirements.lock",
    )  # fmt: skip


def _chart(tree: Path, folder: Path, version: str, helm: str) -> None:
    """The chart, and what it renders for those who have no Helm."""
    chart = tree / "deploy/helm/gpufault"
    _archive(chart, folder / f"gpufault-{version}.tgz")
    manifest = _text(helm, "template", *RENDERED, "--include-crds", str(chart))
    (folder / f"gpufault-{version}.yaml").write_text(f"{manifest}\n", encoding="utf-8")


def _packages(tree: Path, folder: Path, scratch: Path, nfpm: str) -> None:
    """.deb and .rpm. Their builder runs where the wheel and the locked packages are installed."""
    _run(sys.executable, "-m", "venv", scratch / "installed")
    python = scratch / "installed/bin/python"
    _run(python, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", tree / "requirements-dev.lock")
    (wheel,) = folder.glob("*.whl")
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    formats = ("--format", "deb", "--format", "rpm")
    _run(python, "-P", tree / "deploy/packages/build.py", wheel, folder, *formats, "--nfpm", nfpm)


def _archive(source: Path, target: Path) -> None:
    """A compressed archive of a folder, below its name, with nothing of this machine in it: the same files, the same bytes."""
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])

    def plain(file: tarfile.TarInfo) -> tarfile.TarInfo:
        file.mtime, file.uid, file.gid, file.uname, file.gname = seconds, 0, 0, "", ""
        file.mode = 0o755 if file.isdir() or file.mode & 0o100 else 0o644
        return file

    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in (source, *sorted(source.rglob("*"))):
            archive.add(path, path.relative_to(source.parent), recursive=False, filter=plain)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def _text(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
