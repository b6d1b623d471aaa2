"""The fleet's pages in Chromium: a simulated fleet's pages and links, on a phone, a laptop and a wall screen, light and
dark, with and without script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from exporter.cli.main import main
from exporter.fleet.service.answers import router
from exporter.fleet.service.refresh import FleetStatus
from exporter.web.serving import RunningServer, serve
from tests.fleet.running import Fleet
from tests.fleet.service.test_pages import HOSTILE, NOW, RESULT, View, filled
from tests.support import browser
from tests.support.browser import WAIT_MS, WIDTHS, Visitor

pytestmark = [pytest.mark.heavy, browser.NEEDED]  # Chromium, and a fleet's correlation

MAX_OF_A_KIND = 1  # pages of one path and set of parameters
KINDS = (
    "/", "/causes", "/causes/", "/findings", "/findings/", "/nodes", "/nodes/", "/jobs", "/jobs/", "/incidents", "/incidents/",
    "/unknowns", "/quality",
)  # fmt: skip


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
    with browser.chromium() as started:
        yield started


@contextmanager
def serving(view: View) -> Iterator[RunningServer]:
    """The pages of a view, served by the real server."""
    running = serve(["127.0.0.1:0"], router(view, "/metrics"), None)
    try:
        yield running
    finally:
        running.close(WAIT_MS / 1000)


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


def name_of(path: str) -> str:
    """The name of a page's screenshots."""
    kind = kind_of(path).partition("|")[0].strip("/").replace("/", "-") or "overview"
    return f"{kind}-one" if re.match(r"/\w+/.", path) else kind


def test_every_page_and_link_works_everywhere(fleet: Fleet, chromium: Any) -> None:
    visitor = Visitor(chromium, fleet.address)
    pages = walked(visitor)
    assert set(KINDS) <= set(pages), set(KINDS) - set(pages)
    without = Visitor(chromium, fleet.address, java_script_enabled=False)
    for kind in KINDS:
        visitor.open(pages[kind])
        visitor.look(name_of(pages[kind]))
        without.open(pages[kind])
        without.look("")
    problems = [*visitor.close(), *without.close()]
    assert problems == [], "\n".join(problems)


def test_axe_finds_no_serious_issue(fleet: Fleet, chromium: Any) -> None:
    visitor = Visitor(chromium, fleet.address)
    found = []
    for at, path in enumerate(first_pages(fleet)):
        visitor.page.set_viewport_size({"width": WIDTHS[at % 2], "height": 900})
        visitor.open(path)
        found += visitor.judge()
    visitor.close()
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
    assert visitor.close() == []


def test_the_script_sorts_filters_and_chooses_the_window(fleet: Fleet, chromium: Any) -> None:
    visitor = Visitor(chromium, fleet.address)
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
    assert visitor.close() == []


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
    assert visitor.close() == []


MANY = tuple(f"node {number} {'long-name-' * 20}" for number in range(45))


@pytest.mark.parametrize("names", [HOSTILE, (), MANY], ids=["hostile", "empty", "many"])
def test_no_name_makes_a_page_overflow(names: tuple[str, ...], chromium: Any, tmp_path: Path) -> None:
    """Hostile names, a fleet without nodes, and 45 causes, users and nodes of long names."""
    store = filled(tmp_path, names)
    with closing(store), serving(View(store, FleetStatus(result=RESULT, result_time=NOW))) as server:
        visitor = Visitor(chromium, server.addresses[0])
        pages = ["/", "/causes", "/findings", "/nodes", "/jobs", "/incidents", "/unknowns", "/quality"]
        pages += [f"/{kind}/{quote(names[0], safe='')}" for kind in ("causes", "nodes", "jobs") if names]
        for path in pages:
            visitor.open(path)
            visitor.look(f"long-{len(names)}-overview" if path == "/" else "", names_are_usual=False)
        assert visitor.close() == []
