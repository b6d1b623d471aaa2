"""The tree that a release is built from: a tag's files, with its version and the addresses of whoever publishes it.

A tag vX.Y.Z is a release. Nothing is committed for it: the files that name a version or an address get them here.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

# What PEP 440 and Semantic Versioning, which Helm asks for, have in common.
TAG = re.compile(r"v(\d+\.\d+\.\d+)")
PLACEHOLDER = "gpufault.example.org"
REPOSITORY = f"https://{PLACEHOLDER}/source"
VERSIONS = {  # where a version stands: the text before it
    "exporter/__init__.py": '__version__ = "',
    "Dockerfile": "ARG VERSION=",
    "deploy/helm/gpufault/Chart.yaml": "\nversion: |appVersion: |gpufault:",
    "deploy/kubernetes/report-cronjob.yaml": "image: gpufault:",
    "docs/install-kubernetes.md": "gpufault:",
}
IMAGES = ("deploy/helm/gpufault/Chart.yaml", "deploy/kubernetes/report-cronjob.yaml")


@dataclass(frozen=True, slots=True)
class Publisher:
    """Whose release it is. registry: where image and chart are, without oci://; site, repository: addresses of pages;
    security: where a vulnerability is reported. ValueError if one of them is an example's."""

    registry: str
    site: str
    repository: str
    security: str

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value or re.search(r"\bexample\b", value):
                raise ValueError(
                    f"{name}: {value or 'nothing'} is not an address of a publisher; a release needs a real one"
                )


def version_of(tag: str) -> str:
    """The version that a tag stands for; ValueError if it is not a release."""
    match = TAG.fullmatch(tag)
    if not match:
        raise ValueError(f"{tag} is not the tag of a release: those are vX.Y.Z")
    return match[1]


def exported(checkout: Path, tag: str, folder: Path) -> None:
    """The files of a tag, as they were committed, into a folder. ValueError if there is no such tag."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "-C", checkout, "archive", f"refs/tags/{tag}"], check=False, capture_output=True)
    if archive.returncode:
        raise ValueError(f"the tag {tag} cannot be read: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "--extract", "--directory", folder], check=True, input=archive.stdout)


def stamp(tree: Path, version: str, publisher: Publisher) -> None:
    """Write version and addresses into a tree. ValueError if it has a file that should name them and does not."""
    for name, before in VERSIONS.items():
        _replace(tree / name, rf"({before})\d[\w.]*", rf"\g<1>{version}")
    for name in IMAGES:
        _replace(tree / name, rf"(?<=[ \"])gpufault:(?={re.escape(version)})", f"{publisher.registry}/gpufault:")
    _replace(tree / "deploy/helm/gpufault/values.yaml", r'(?m)^  registry: ""$', f'  registry: "{publisher.registry}"')
    _replace(tree / "SECURITY.md", rf"security@{PLACEHOLDER}", publisher.security)
    for path in _named_files(tree):
        text = path.read_text(encoding="utf-8").replace(REPOSITORY, publisher.repository)
        path.write_text(
            text.replace(PLACEHOLDER, publisher.site.removeprefix("https://").rstrip("/")), encoding="utf-8"
        )


def notes(tree: Path, version: str) -> str:
    """What the changelog says of one version. ValueError if it says nothing."""
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\].*\n((?:(?!^## ).*\n?)*)", text, re.MULTILINE)
    if not section or not section[1].strip():
        raise ValueError(f"CHANGELOG.md has no section [{version}]")
    return section[1].strip() + "\n"


def _replace(path: Path, pattern: str, text: str) -> None:
    replaced, count = re.subn(pattern, text, path.read_text(encoding="utf-8"))
    if not count:
        raise ValueError(f"{path.name} has nothing like {pattern}")
    path.write_text(replaced, encoding="utf-8")


def _named_files(tree: Path) -> list[Path]:
    """Files for users that name the placeholder: tests and the tools of a release are not for them."""
    files = (path for part in ("deploy", "docs", "exporter") for path in (tree / part).rglob("*") if path.is_file())
    top = (path for path in tree.iterdir() if path.is_file())
    shipped = (path for path in (*files, *top) if not path.is_relative_to(tree / "deploy/release"))
    return [path for path in shipped if PLACEHOLDER.encode() in path.read_bytes()]
