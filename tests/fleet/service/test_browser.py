"""The pages in Chromium: a simulated fleet's pages and links, on a phone, a laptop and a wall screen, light and dark, with
and without script. Screenshots go to the folder that GPUFAULT_SCREENSHOTS names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from exporter.cli.main import main
from tests.fleet.test_service import Fleet

pytestmark = [
    pytest.mark.heavy,  # Chromium, and a fleet's correlation
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")

WIDTHS = (390, 1280, 2560)
SCHEMES = ("light", "dark")
PICTURES = ((390, "light"), (1280, "light"), (1280, "dark"), (2560, "dark"))
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
)
MAX_OF_A_KIND = 2  # pages of one path and set of parameters
WAIT_MS = 120_000  # a loaded machine
KINDS = (
    "/", "/causes", "/causes/", "/findings", "/findings/", "/nodes", "/nodes/", "/jobs", "/jobs/", "/incidents", "/incidents/",
    "/unknowns", "/quality",
)  # fmt: skip
AXE = find_spec("axe_playwright_python")  # the wheel that axe.min.js comes in
SERIOUS = """async (options) => (await axe.run(document, {resultTypes: ['violations'], ...options})).violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => each.id + ': ' + each.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(' | '))"""
OVERFLOWING = """() => document.documentElement.scrollWidth <= window.innerWidth ? [] :
    [...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > window.innerWidth + 1)
    .slice(0, 3).map(each => each.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    assert main(["simulate", "--case", "review", str(folder / "journals")]) == 0
    service = Fleet(folder, f"--journal={folder / 'journals'}", "--window=7d")
    try:
        service.reaches("refreshes_total", 1.0)
        yield service
    finally:
        service.process.terminate()
        service.process.wait(60)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        yield browser
        browser.close()


class Visitor:
    """A page of the browser that notes what no page may do."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.problems: list[str] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on(
            "console", lambda said: self._note("console", said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != self.address:
            self._note("a request elsewhere", request.url)

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the next page was opened before it came
            self._note("failed", f"{request.url}: {request.failure}")

    def _note(self, what: str, told: str) -> None:
        self.problems.append(f"{what} on {self.page.url}: {told}")

    def open(self, path: str) -> Any:
        answer = self.page.goto(f"http://{self.address}{path}", wait_until="load")
        if answer.status != 200:
            self._note("status", f"{answer.status} of {path}")
        return self.page

    def links(self) -> list[str]:
        found = self.page.eval_on_selector_all("a[href]", "all => all.map(each => each.getAttribute('href'))")
        return [each.partition("#")[0] for each in dict.fromkeys(found)]


def kind_of(path: str) -> str:
    """The kind of a page: its path up to a name, and the names of its parameters."""
    parts = urlsplit(path)
    return (
        re.sub(r"^(/\w+/).+", r"\1", parts.path) + "|" + ",".join(sorted(re.findall(r"(?:^|&)([^=&]+)=", parts.query)))
    )


def walked(visitor: Visitor) -> dict[str, str]:
    """Follow every kind of link from the overview; a page of each kind of path."""
    left, seen, pages = ["/"], {"/"}, dict[str, str]()
    counts: dict[str, int] = {}
    while left:
        path = left.pop(0)
        kind = kind_of(path)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > (1 if "?" in path else MAX_OF_A_KIND):
            continue
        if path.startswith(("/api/", "/-/", "/metrics")) or "format=" in path:
            answer = visitor.context.request.get(f"http://{visitor.address}{path}", timeout=WAIT_MS)
            if answer.status != 200:
                visitor.problems.append(f"{answer.status} of {path}")
            continue
        visitor.open(path)
        pages.setdefault(kind.partition("|")[0], path)
        if "?" in path:
            continue  # what differs from the page without is not its links
        new = [link for link in visitor.links() if link.startswith("/") and link not in seen]
        seen |= set(new)
        left += new
    return pages


def picture(visitor: Visitor, name: str) -> None:
    """A screenshot, where somebody wants it."""
    if folder := os.environ.get("GPUFAULT_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(visitor.page.screenshot(full_page=True, timeout=WAIT_MS))


def looked_at(visitor: Visitor, path: str, script: str) -> None:
    """The page at each width, light and dark: nothing may overflow."""
    visitor.open(path)
    name = "overview" if path == "/" else kind_of(path).partition("|")[0].strip("/").replace("/", "-")
    name += "-one" if re.match(r"/\w+/.", path) else ""
    for width in WIDTHS:
        visitor.page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            visitor.page.emulate_media(color_scheme=scheme)
            wide = visitor.page.evaluate(OVERFLOWING)
            if wide:
                visitor.problems.append(f"{path} overflows at {width} px: {wide}")
            if script == "script" and (width, scheme) in PICTURES:
                picture(visitor, f"{name}-{width}-{scheme}")


def test_every_page_and_link_works_everywhere(fleet: Fleet, chromium: Any) -> None:
    visitor = Visitor(chromium, fleet.address)
    pages = walked(visitor)
    assert set(KINDS) <= set(pages), set(KINDS) - set(pages)
    for kind in KINDS:
        looked_at(visitor, pages[kind], "script")
    visitor.context.close()
    without = Visitor(chromium, fleet.address, java_script_enabled=False)
    for kind in KINDS:
        looked_at(without, pages[kind], "no-script")
    without.context.close()
    assert [*visitor.problems, *without.problems] == []


def test_axe_finds_no_serious_issue(fleet: Fleet, chromium: Any) -> None:
    if AXE is None or AXE.origin is None:
        pytest.skip("needs axe_playwright_python")
    axe = (Path(AXE.origin).parent / "axe.min.js").read_text(encoding="utf-8")
    visitor = Visitor(chromium, fleet.address)
    found = []
    for at, path in enumerate(first_pages(fleet)):
        visitor.page.set_viewport_size({"width": WIDTHS[at % 2], "height": 900})
        visitor.open(path)
        visitor.page.evaluate(axe)
        for scheme in SCHEMES:
            visitor.page.emulate_media(color_scheme=scheme)
            options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}  # colours alone differ
            found += [f"{path} ({scheme}): {each}" for each in visitor.page.evaluate(SERIOUS, options)]
    visitor.context.close()
    assert found == [], "\n".join(found)


def first_pages(fleet: Fleet) -> list[str]:
    """A page of each kind."""
    pages = [
        "/",
        "/causes",
        "/findings",
        "/nodes?limit=10",
        "/jobs?limit=10",
        "/incidents?limit=10",
        "/unknowns",
        "/quality",
    ]
    for kind, key in (("causes", "cause"), ("nodes", "node"), ("jobs", "job"), ("incidents", "id")):
        pages.append(f"/{kind}/{fleet.json(f'{kind}?limit=1')[kind][0][key]}")
    link = re.search(r'href="(/findings/[^"]+)"', fleet.ask("/findings")[1])
    assert link
    return [*pages, link[1]]


def test_the_planted_causes_are_on_the_overview(fleet: Fleet, chromium: Any) -> None:
    """The rollout, the library version, the bad node, the new signature and the silent nodes, without a click."""
    visitor = Visitor(chromium, fleet.address, java_script_enabled=False)
    text = visitor.open("/").inner_text("main")
    for planted in ("580.95.05", "nccl_version 2.26.2", "n0412", "Triton", "12 nodes were not seen for a day"):
        assert planted in text
    visitor.context.close()


def test_the_script_sorts_filters_and_chooses_the_window(fleet: Fleet, chromium: Any) -> None:
    visitor = Visitor(chromium, fleet.address)
    page = visitor.open("/findings")
    page.click("#table-rollouts h2")
    page = visitor.open("/quality?all.silent=1")
    table = page.locator("#table-silent")
    names = table.locator("tbody tr td:first-child")
    before = page.url
    table.locator("thead a").first.click()
    assert names.all_inner_texts() == sorted(names.all_inner_texts(), reverse=True)
    table.locator("thead a").first.click()
    assert names.all_inner_texts() == sorted(names.all_inner_texts())
    last = names.last.inner_text()
    table.locator("input[type=search]").fill(last)
    assert [row for row in table.locator("tbody tr").all() if row.is_visible()] != []
    assert len([row for row in table.locator("tbody tr").all() if row.is_visible()]) == 1
    assert page.url == before
    with page.expect_navigation():
        page.select_option("select[name=window]", "30d")
    assert "window=30d" in page.url
    assert visitor.problems == []
    visitor.context.close()


def test_without_script_a_table_sorts_filters_and_exports_by_its_address(fleet: Fleet, chromium: Any) -> None:
    visitor = Visitor(chromium, fleet.address, java_script_enabled=False)
    page = visitor.open("/quality")
    names = page.locator("#table-silent tbody tr td:first-child")
    with page.expect_navigation():
        page.locator("#table-silent thead a").first.click()
    assert names.all_inner_texts() == sorted(names.all_inner_texts(), reverse=True)
    wanted = names.last.inner_text()
    with page.expect_navigation():
        page.locator("#table-silent input[type=search]").fill(wanted)
        page.locator("#table-silent button").click()
    assert names.all_inner_texts() == [wanted]
    export = page.locator("#table-silent .pager a", has_text="JSON").get_attribute("href")
    rows = json.loads(visitor.context.request.get(f"http://{fleet.address}{export}").text())["rows"]
    assert [row["Node"] for row in rows] == [wanted]
    visitor.context.close()
