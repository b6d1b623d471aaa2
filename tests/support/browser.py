"""Chromium for tests of pages: a visitor that notes what no page may do, widths and schemes, axe-core, screenshots.

Screenshots go to the folder that GPUFAULT_SCREENSHOTS names; without it none are made.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.programs import needs

HALF_SCREEN = 1000  # where the widest tables scroll in their cards
WIDTHS = (390, 1280, HALF_SCREEN, 2560)  # a phone, a laptop, half of a screen, a wall screen
SCHEMES = ("light", "dark")
PICTURES = ((390, "light"), (1280, "light"), (1280, "dark"))
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
WAIT_MS = 120_000  # a loaded machine
NEEDED = needs("chromium", absent=[name for name in ("playwright", "axe_playwright_python") if not find_spec(name)])
_SERIOUS = """async (options) => (await axe.run(document, {resultTypes: ['violations'], ...options})).violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => each.id + ': ' + each.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(' | '))"""
_OVERFLOWING = """() => document.documentElement.scrollWidth <= window.innerWidth ? [] :
    [...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > window.innerWidth + 1)
    .slice(0, 3).map(each => each.outerHTML.slice(0, 200))"""
_SCROLLING = """() => [...document.querySelectorAll('section, form')].filter(each => each.scrollWidth > each.clientWidth + 1)
    .slice(0, 3).map(each => each.outerHTML.slice(0, 200))"""

# Words of a table's cells that stand on two lines; code may be cut anywhere.
_BROKEN_WORDS = r"""() => [...document.querySelectorAll('td, th')].flatMap(cell => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange(), broken = [];
    for (let text; (text = texts.nextNode());) {
        if (text.parentElement.closest('code, pre')) continue;
        for (const word of text.textContent.matchAll(/[A-Za-z]{4,20}/g)) {
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(each => Math.round(each.top))).size > 1) broken.push(word[0]);
        }
    }
    return broken;
}).slice(0, 3)"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, without downloads. For fixtures of a module: it keeps a process and a thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        yield browser
        browser.close()


class Visitor:
    """A page of the browser that notes errors, failed requests and requests elsewhere in `problems`."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.problems: list[str] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)

    def open(self, path: str) -> Any:
        """The page at a path; another status than 200 is a problem."""
        answer = self.page.goto(f"http://{self.address}{path}", wait_until="load")
        if answer.status != 200:
            self._note("status", f"{answer.status} of {path}")
        return self.page

    def links(self) -> list[str]:
        """The addresses of the page's links, without fragments."""
        found = self.page.eval_on_selector_all("a[href]", "all => all.map(each => each.getAttribute('href'))")
        return [each.partition("#")[0] for each in dict.fromkeys(found)]

    def look(self, name: str, *, names_are_usual: bool = True) -> None:
        """The open page at each width, light and dark: nothing may overflow. `name` is of its screenshots; "" makes none.

        Where names are not usual, a card may have to be scrolled; the page never.
        """
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                self.page.emulate_media(color_scheme=scheme)
                wide = self.page.evaluate(_OVERFLOWING)
                wide += self.page.evaluate(_SCROLLING) if names_are_usual and width != HALF_SCREEN else []
                if wide:
                    self._note("overflow", f"at {width} px: {wide}")
                if names_are_usual and (broken := self.page.evaluate(_BROKEN_WORDS)):
                    self._note("broken words", f"at {width} px: {broken}")
                if name and (width, scheme) in PICTURES:
                    self._picture(f"{name}-{width}-{scheme}")

    def judge(self) -> list[str]:
        """What axe-core finds serious or critical on the open page, in light and dark."""
        origin = find_spec("axe_playwright_python")
        assert origin is not None
        assert origin.origin is not None
        self.page.evaluate((Path(origin.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
        found = []
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)
            options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}  # colours alone differ
            found += [f"{self.page.url} ({scheme}): {each}" for each in self.page.evaluate(_SERIOUS, options)]
        return found

    def close(self) -> list[str]:
        """The problems."""
        self.context.close()
        return self.problems

    def _picture(self, name: str) -> None:
        if folder := os.environ.get("GPUFAULT_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.png").write_bytes(self.page.screenshot(full_page=True, timeout=WAIT_MS))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._note("console", message.text)

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != self.address:
            self._note("a request elsewhere", request.url)

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the next page was opened before it came
            self._note("failed", f"{request.url}: {request.failure}")

    def _note(self, what: str, told: str) -> None:
        self.problems.append(f"{what} on {self.page.url}: {told}")
