"""Builds the documentation as a site, from docs/ and the signature packs, without the network.

    python deploy/site/site_pages.py FOLDER [--version 0.2.0] [--repository https://…]

FOLDER/VERSION/ has the pages, FOLDER/versions.json the list for the selector of versions. FOLDER/index.html leads to this
version, and so does FOLDER/runbooks/NAME.md/, the address that an alert carries. Other versions in FOLDER stay. Runs in an
environment of requirements-site.lock; --gpufault is the command that writes the pages of signatures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
MOVED = {
    "../README.md": "index.md",
    "README.md": "documentation.md",
}  # the front page of the site is that of the repository
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", default="latest")
    parser.add_argument("--repository", default="https://gpufault.example.org/source", help="where links to files lead")
    parser.add_argument("--gpufault", default=str(ROOT / ".venv/installed/bin/gpufault"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpufault-site-") as name:
        pages = Path(name) / "pages"
        shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__", "signatures"))
        subprocess.run(
            [options.gpufault, "signatures", "docs", "--out", pages / "signatures"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (pages / "README.md").rename(pages / "documentation.md")
        front = (ROOT / "README.md").read_text(encoding="utf-8")
        (pages / "index.md").write_text(front.replace("](docs/", "]("), encoding="utf-8")
        for page in pages.rglob("*.md"):
            text = page.read_text(encoding="utf-8")
            page.write_text(_linked(text, page, pages, options.repository, options.version), encoding="utf-8")
        summary = "".join(_summary(pages, options.version))
        configuration = Path(name) / "mkdocs.yml"
        settings = yaml.safe_load((HERE / "mkdocs.yml").read_text())
        settings |= {
            "docs_dir": str(pages),
            "site_dir": str(options.folder.absolute() / options.version),
            "nav": navigation(pages),
        }
        configuration.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", configuration]
        done = subprocess.run(command, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode:
        return 1
    publish(options.folder)
    (options.folder / "llms.txt").write_text(summary, encoding="utf-8")
    return 0


def navigation(pages: Path) -> list[dict[str, list[str]]]:
    """The sections of docs/README.md, each with the pages that it names, in its order."""
    sections: list[dict[str, list[str]]] = [{"gpufault": ["index.md", "documentation.md"]}]
    for title, text in re.findall(
        r"^## (.+)\n((?:(?!^## ).*\n?)*)", (pages / "documentation.md").read_text(), re.MULTILINE
    ):
        named = [target for _, target, _ in LINK.findall(text) if (pages / target).is_file() and target.endswith(".md")]
        sections.append({title: list(dict.fromkeys(named))})
    sections.append({"Runbooks": sorted(f"runbooks/{path.name}" for path in (pages / "runbooks").glob("*.md"))})
    sections.append({"Signatures": sorted(f"signatures/{path.name}" for path in (pages / "signatures").glob("*.md"))})
    return sections


def _linked(text: str, page: Path, pages: Path, repository: str, version: str) -> str:
    """A page whose links to what is not on the site lead to the repository."""

    def moved(link: re.Match[str]) -> str:
        before, target, anchor = link[1], link[2], link[3] or ""
        path = (page.parent / MOVED.get(target, target)).resolve()
        if target in MOVED:
            return f"{before}{MOVED[target]}{anchor})"
        if ":" in target or (path.is_file() and path.is_relative_to(pages)):
            return link[0]
        if path.is_dir() and path.is_relative_to(pages):
            first = min(path.glob("*.md"), key=lambda file: (file.name != "README.md", file.name))
            return f"{before}{os.path.relpath(first, page.parent)}{anchor})"
        written_in = ROOT if page == pages / "index.md" else ROOT / "docs" / page.parent.relative_to(pages)
        source = (written_in / target).resolve()
        kind = "tree" if source.is_dir() else "blob"
        tag = "main" if version == "latest" else f"v{version}"
        return f"{before}{repository}/{kind}/{tag}/{source.relative_to(ROOT)}{anchor})"

    return LINK.sub(moved, text)


def _summary(pages: Path, version: str) -> Iterator[str]:
    """llms.txt (llmstxt.org): what the pages are, for programs that read."""
    yield "# gpufault\n\n> Why GPU jobs crash on a fleet: crash exporter, log analyzer, correlator.\n"
    for section in navigation(pages):
        for title, named in section.items():
            yield f"\n## {title}\n\n"
            for name in named:
                yield f"- [{_title(pages / name)}]({version}/{name.removesuffix('.md').removesuffix('index')}/)\n"


def _title(page: Path) -> str:
    return next(line[2:].strip() for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# "))


def publish(folder: Path) -> None:
    """Make the newest version the one that addresses without a version lead to."""
    listed = sorted((path.parent.name for path in folder.glob("*/sitemap.xml")), key=_order, reverse=True)
    versions = [{"version": name, "title": name, "aliases": []} for name in listed]
    (folder / "versions.json").write_text(json.dumps(versions, indent=1))
    version = listed[0]  # a repair of an older one stays behind the newest
    (folder / "index.html").write_text(REDIRECT.format(f"{version}/"))
    for runbook in (folder / version / "runbooks").glob("*/index.html"):
        target = folder / "runbooks" / f"{runbook.parent.name}.md"
        target.mkdir(parents=True, exist_ok=True)
        (target / "index.html").write_text(REDIRECT.format(f"../../{version}/runbooks/{runbook.parent.name}/"))


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)) or (sys.maxsize,)


if __name__ == "__main__":
    sys.exit(main())
