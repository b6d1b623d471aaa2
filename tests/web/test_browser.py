"""The node's pages in Chromium: no error, no request elsewhere, nothing overflows, axe-core finds no serious issue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.web.interface import RecentIncident, SourceState
from tests.support import browser
from tests.support.browser import Visitor
from tests.web.serving import Node, serving
from tests.web.test_web import FAULT

pytestmark = [pytest.mark.heavy, browser.NEEDED]  # Chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as started:
        yield started


def incident(text: str) -> RecentIncident:
    return RecentIncident(
        time=1_700_000_000.0, signature="nv_xid_79_fallen_off_bus", root_cause="gpu_lost_from_pcie", verdict="infrastructure",
        remediation=f"Drain the node. `{text}`", job=text, gpu="0000:c1:00.0", log=f"/jobs/{text}.log:12", line=text,
        because=(text,) * 6,
    )  # fmt: skip


NODES = {
    "node": Node(
        incidents=(incident("NVRM: Xid 79"), incident("x" * 4000), incident("<script>alert(1)</script>")), faults=(FAULT,),
        causes=(("gpu_lost_from_pcie", 1234), ("unknown", 2)),
        sources=(SourceState(name="files:/scratch", up=True, files=1200, lag=61.4),),
        reasons=["kernel: permission denied"],
    ),
    "node-empty": Node(),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_the_nodes_pages_are_fit_to_be_seen(name: str, chromium: Any) -> None:
    with serving(NODES[name]) as server:
        visitor = Visitor(chromium, server.addresses[0])
        found = []
        for path in ("/", "/signatures/gpu_lost_from_pcie", "/signatures/nv_xid_79_fallen_off_bus"):
            visitor.open(path)
            visitor.look(name if path == "/" else "", names_are_usual=path != "/")
            found += visitor.judge()
        assert visitor.close() == []
        assert found == [], "\n".join(found)


def test_the_page_shows_what_is_new_without_a_reload(chromium: Any) -> None:
    node = Node(causes=(("gpu_lost_from_pcie", 1),), facts=(("os", "Debian 12"),))
    with serving(node) as server:
        visitor = Visitor(chromium, server.addresses[0])
        visitor.page.clock.install()
        page = visitor.open("/")
        page.click("summary")
        node.causes = (("gpu_lost_from_pcie", 2),)
        with page.expect_response("**/"):
            page.clock.run_for(31_000)
        page.get_by_text("2 incidents counted").wait_for()
        assert page.locator("details[open]").count() == 1
        assert visitor.close() == []
