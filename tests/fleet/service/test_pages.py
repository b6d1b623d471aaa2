"""The fleet's pages and its API over a small history, also with hostile names, without a server."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from jsonschema import Draft202012Validator
from markupsafe import escape

from exporter.config import packs
from exporter.config.fleet import LostConfig
from exporter.core.catalogue.outcomes import Outcomes, outlook
from exporter.core.catalogue.reports import SettledReport
from exporter.core.text.phrases import printable
from exporter.core.values import replace as replace_values
from exporter.fleet.history.pulled import TargetRow, put_targets
from exporter.fleet.history.store import Store
from exporter.fleet.observations import Window
from exporter.fleet.pull.status import STATES
from exporter.fleet.report.steps import next_steps
from exporter.fleet.results.labels import finding_id
from exporter.fleet.review.window_review import review_of
from exporter.fleet.service.answers import OF_RECORDS, router
from exporter.fleet.service.frame import MENU
from exporter.fleet.service.html import Titles
from exporter.fleet.service.lists import LISTS
from exporter.fleet.service.refresh import Failure, FleetStatus
from exporter.fleet.statistics.findings import (
    Beginning,
    FactValue,
    IncidentRates,
    NotEnough,
    PrecedingChange,
    TrendPart,
)
from exporter.fleet.statistics.ratio import Ratio
from exporter.metrics.exposition import MetricsSnapshot
from tests.fleet.test_service_parts import EFFECT, FINDING, RESULT

NOW = 1_780_000_000.0
HOSTILE = (
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "\u202egnp.exe", "a\nb\r\x1b[31m\x07", "x" * 10_000,
    "=cmd|'/c calc'!A1", "../../etc/passwd", "$[*", "~/x", "{{ 7331*7 }}", "..",
)  # fmt: skip


class View:
    """What a service shows, for the router."""

    def __init__(self, store: Store | None, fleet_status: FleetStatus) -> None:
        self.store, self.fleet_status = store, fleet_status
        self.titles = Titles(packs.load())
        self.window, self.source, self.lost = 7 * 86400.0, "journals below /j", LostConfig()
        self.app = router(self, "/metrics")

    def snapshot(self) -> MetricsSnapshot:
        return MetricsSnapshot(())

    def not_ready(self) -> list[str]:
        return []

    def impaired(self) -> list[str]:
        return []

    def healthy(self) -> bool:
        return True

    def reload(self) -> list[str]:
        return []

    def get(self, address: str) -> tuple[int, str, dict[str, str]]:
        return asyncio.run(ask(self.app, address))


async def ask(app: Any, address: str) -> tuple[int, str, dict[str, str]]:
    from urllib.parse import unquote

    parts, sent = urlsplit(address), []
    scope = {
        "type": "http", "method": "GET", "path": unquote(parts.path), "query_string": parts.query.encode(), "headers": [],
        "root_path": "", "scheme": "http", "server": ("x", 80), "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent).decode(), headers


def records(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(names):
        at = NOW - 86400 + number
        yield {"kind": "facts", "time": at - 9 * 86400, "node": name, "facts": {"gpu_model": name, name: "1"}}
        yield {"kind": "facts", "time": at, "node": name, "facts": {"gpu_model": name, name: "2"}}
        yield from ({"kind": "heartbeat", "time": NOW - hour * 3600, "node": name, "hours": 1} for hour in range(40))
        yield {
            "kind": "incident", "time": at, "node": name, "id": f"{number}{name}", "signature": "unrecognised_crash",
            "text": name, "path": name, "captures": {"template": name}, "excerpt": [name], "root_cause": name, "gpu": name,
            "job": {"id": name, "user": name, "account": name}, "remediation": name, "verdict": name,
            "evidence": [{"what": name, "value": name, "why": name}], "same_time": [{"signature": name, "text": name}],
            "collectives": [{"group": name, "reporting": 2, "places": [
                {"seq": seq, "count": 1, "ranks": [name], "operations": [{"op": name}], "hosts": {name: name}} for seq in (3, 4)
            ]}],
        }  # fmt: skip
        yield {
            "kind": "incident", "time": at + 1, "node": name, "id": f"{number}c", "signature": "gpu_oom", "role": "cascade",
            "caused_by": f"{number}{name}", "job": name,
        }  # fmt: skip


def filled(folder: Path, names: tuple[str, ...]) -> Store:
    (folder / "j").mkdir()
    with open(folder / "j/a.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records(names))
    store = Store(folder / "store.duckdb")
    store.read_once(folder / "j")
    with store.cursor() as db:
        put_targets(db, [target(printable(name[:256]), number) for number, name in enumerate(names)])
    return store


def target(name: str, number: int) -> TargetRow:
    """How pulling a node goes, in each state."""
    return TargetRow(
        node=name, address="http://x:1", state=STATES[number % len(STATES)], what=name, pulled=NOW if number % 2 else None,
        failing_since=NOW - number if number % 3 else None, behind=number, bytes=9, records=1, refused=number, lost_segments=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    folder = tmp_path_factory.mktemp("hostile")
    store = filled(folder, (*HOSTILE, "n1"))  # the result names n1, and the signatures of these
    correlated = [
        {"kind": "incident", "time": NOW - 9, "node": "n1", "id": name, "signature": name}
        for name in ("crash", "other_crash")
    ]
    (folder / "j/b.jsonl").write_text("".join(json.dumps(record) + "\n" for record in correlated))
    store.read_once(folder / "j")
    yield View(store, FleetStatus(result=RESULT, result_time=NOW))
    store.close()


class Page(HTMLParser):
    """Links, and what no page may hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.inline: list[str] = []
        self.scripts: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += [dict(attrs).get("src")] if tag == "script" else []
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]


def test_every_link_of_every_page_leads_to_a_page_and_no_name_leaves_its_text(hostile: View) -> None:
    catalogue = packs.load()
    explained = (*catalogue.signatures.values(), *catalogue.root_causes.values())
    references = {link for each in explained for link in each.references}
    left: list[str] = [
        "/",
        "/search?q=a",
        "/search?q=script",
        "/search?q=%24%5B*",
        "/search?q=2",
        "/search?q=zzzz",
        "/search",
    ]
    seen: set[tuple[str, str]] = set()
    while left:
        address = left.pop()
        kind = re.sub(r"^(/\w+/).+", r"\1", urlsplit(address).path) + "|" + ",".join(
            sorted(re.findall(r"[?&](\w+)=", address))
        )  # fmt: skip
        if (kind, address) in seen or sum(each[0] == kind for each in seen) > (2 if "?" in address else 9):
            continue
        seen.add((kind, address))
        status, text, headers = hostile.get(address)
        assert status in (200, 303), (address, text)
        assert not set("\u202e\x1b\x07") & set(text), address
        if not headers.get("content-type", "").startswith("text/html"):
            continue
        page = Page(text)
        assert not page.tags & {"img", "iframe", "style"}, address
        assert page.scripts == ["/static/fleet.js"], address
        assert page.inline == [], address
        assert "51317" not in text, address
        assert "script-src 'self';" in headers["content-security-policy"]
        elsewhere = {link for link in page.links if not link.startswith(("/", "#")) or link.startswith("//")}
        assert elsewhere <= references, address
        left += [
            link for link in dict.fromkeys(page.links) if link.startswith("/") and link not in {a for _, a in seen}
        ]
    assert {kind.partition("|")[0] for kind, _ in seen} >= {
        "/",
        "/causes",
        "/causes/",
        "/nodes/",
        "/jobs/",
        "/incidents/",
    }


@pytest.mark.parametrize("name", LISTS)
def test_answers_are_as_openapi_describes_them(hostile: View, name: str) -> None:
    described = json.loads(hostile.get("/api/v1/openapi.json")[1])
    got = described["paths"][f"/api/v1/{name}"]["get"]
    schema = got["responses"]["200"]["content"]["application/json"]["schema"]
    for sort in next(each for each in got["parameters"] if each["name"] == "sort")["schema"]["enum"]:
        status, text, _ = hostile.get(f"/api/v1/{name}?sort={sort}&limit=3")
        assert status == 200
        Draft202012Validator(schema).validate(json.loads(text))
    answer = json.loads(hostile.get(f"/api/v1/{name}")[1])
    assert answer["total"] == len(answer[name]) > 0
    pages = [
        json.loads(hostile.get(f"/api/v1/{name}?limit=2&offset={at}")[1])[name] for at in range(0, answer["total"], 2)
    ]
    assert [row for page in pages for row in page] == answer[name]


def test_no_cell_of_a_csv_is_a_formula(hostile: View) -> None:
    for name in LISTS:
        rows = list(csv.reader(io.StringIO(hostile.get(f"/api/v1/{name}?format=csv")[1])))
        assert rows[0] == [column.key for column in LISTS[name].columns]
        assert [cell for row in rows[1:] for cell in row if cell[:1] in "=+@" and cell] == []


def test_filters_take_exact_values_and_facts(hostile: View) -> None:
    name = HOSTILE[0]
    found = json.loads(hostile.get(f"/api/v1/incidents?node={quote(name)}")[1])
    assert [row["node"] for row in found["incidents"]] == [name, name]
    found = json.loads(hostile.get(f"/api/v1/nodes?{quote('fact.' + name)}=2")[1])
    assert [row["node"] for row in found["nodes"]] == [name]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("sort=drop", "cannot sort by"), ("limit=-1", "limit is not"), ("window=7", "invalid window"), ("x=1", "unknown"),
        ("start=9&end=3", "start is not before end"), ("end=never", "end is not a time"), ("format=xml", "format is"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(hostile: View, query: str, what: str) -> None:
    status, text, _ = hostile.get(f"/api/v1/incidents?{query}")
    assert status == 400
    assert what in json.loads(text)["error"]


@pytest.mark.parametrize(
    "page", [*(path for path, _ in MENU), "/search", "/targets", "/causes/x", "/nodes/n1", "/jobs/1"]
)
def test_a_filter_that_a_page_does_not_have_is_refused(hostile: View, page: str) -> None:
    status, text, _ = hostile.get(f"{page}?cluster=x")
    assert status == 400
    assert "nknown parameter &#39;cluster&#39;" in text
    assert "<nav" in text


@pytest.mark.parametrize(
    ("cards", "verdict", "named"),
    [("aaaab", "infrastructure", True), ("aabb", "infrastructure", False), ("aa", "infrastructure", False),
     ("aaaa", "workload", False)],
)  # fmt: skip
def test_a_card_with_most_faults_of_its_node_is_named(tmp_path: Path, cards: str, verdict: str, named: bool) -> None:
    (tmp_path / "j").mkdir()
    rows = [
        {"kind": "incident", "time": NOW - 99 + at, "node": "n1", "id": f"{at}", "signature": "x", "root_cause": "y",
         "verdict": verdict, "role": "root", "gpu": card}
        for at, card in enumerate(cards)
    ]  # fmt: skip
    (tmp_path / "j/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with closing(Store(tmp_path / "store.duckdb")) as store:
        store.read_once(tmp_path / "j")
        text = View(store, FleetStatus()).get("/nodes/n1")[1]
    assert ("are on GPU a: test this card first" in text) is named


def test_the_search_keeps_the_window(hostile: View) -> None:
    form = hostile.get("/causes?window=30d")[1].partition('role="search">')[2].partition("</form>")[0]
    assert '<input type="hidden" name="window" value="30d">' in form


def test_the_pages_show_what_the_api_answers(tmp_path: Path) -> None:
    view = View(filled(tmp_path, ("n1", "n2", "n3")), FleetStatus())
    assert '<span class="figure">3</span> root incidents' in view.get("/")[1]
    assert json.loads(view.get("/api/v1/incidents?role=root")[1])["total"] == 3
    assert "n2 1 → 2" in view.get("/nodes/n2")[1]


def test_without_journals_a_page_says_what_is_missing_and_how_to_connect_it(tmp_path: Path) -> None:
    view = View(None, FleetStatus(result=RESULT, result_time=NOW))
    for path in ("/", "/incidents", "/quality", "/findings"):
        status, text, _ = view.get(path)
        assert status == 200
        assert "--journal DIR" in text
    for path in OF_RECORDS:
        text = view.get(path)[1]
        assert f"{OF_RECORDS[path]} are not known from journals below /j" in text
        assert not re.search(r"\b(?:0|[Nn]o) (?:incident|cause|job|node|unrecognised|crash)", text)
    assert view.get("/nodes/n1")[0] == 404
    assert view.get("/api/v1/incidents")[0] == 503
    store = Store(tmp_path / "empty.duckdb")
    assert "being read" in View(store, FleetStatus()).get("/")[1]
    (tmp_path / "j").mkdir()
    store.read_once(tmp_path / "j")
    assert "No record of any node yet" in View(store, FleetStatus()).get("/")[1]
    store.close()


def test_the_findings_page_lists_what_changed_before_a_crash_began() -> None:
    change = PrecedingChange(
        facts=(FactValue(fact="driver_version", value="<b>580"),), before="570", affected=10, affected_changed=9,
        others=990, others_changed=20, hours_before=30.0, p_value=1e-8,
    )  # fmt: skip
    began = Beginning(
        signature="nv_xid_74_nvlink", first=NOW - 9e5, last=NOW - 8e5, crashes_before=0, crashes_after=10,
        ratio=Ratio(value=inf, low=9.0, high=inf), p_value=1e-9, changes=(change,),
    )  # fmt: skip
    view = View(None, FleetStatus(result=replace(RESULT, beginnings=(began,)), complete_time=NOW))
    text = view.get("/findings")[1]
    assert "What changed before it began" in text
    assert "driver_version 570 → &lt;b&gt;580 on 9 of 10 nodes (20 of 990 others)" in text
    assert "not seen before" in text
    assert "What changed before it began" not in View(None, FleetStatus(result=RESULT)).get("/findings")[1]


def test_failed_jobs_are_on_the_timeline_of_their_node(tmp_path: Path) -> None:
    ends = [
        {"kind": "job_end", "time": f"2026-05-2{day}T10:00:00Z", "node": "n1", "job": {"id": job}, "outcome": outcome}
        for day, job, outcome in ((6, "9", "explained"), (7, "10", "no_line"))
    ]
    beat = {"kind": "heartbeat", "time": "2026-05-28T00:00:00Z", "node": "n1", "hours": 1, "gpu_busy_hours": 8}
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "journal-000001.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*ends, beat]))
    store = Store(tmp_path / "history.duckdb")
    store.read_once(tmp_path / "j")
    view = View(store, FleetStatus())
    rows = json.loads(view.get("/api/v1/timeline?node=n1&kind=job_end&window=7d")[1])["timeline"]
    page = view.get("/nodes/n1?window=7d")[1]
    store.close()
    assert [(row["job"], row["what"]) for row in rows] == [
        ("10", "failed, no crash line in its logs"), ("9", "failed, explained by a signature"),
    ]  # fmt: skip
    assert "Failed jobs" in page
    assert "job 9 failed, explained by a signature" in page


def test_reboots_node_checks_and_starts_of_failed_jobs_are_on_the_timeline(tmp_path: Path) -> None:
    fault = {
        "kind": "fault", "node": "n1", "signature": "xid", "root_cause": "unknown", "gpu": "<b>", "job": None,
        "action": "reset_gpu",
    }  # fmt: skip
    records = [
        {"kind": "job_end", "time": "2026-05-26T10:00:00Z", "node": "n1", "job": {"id": "9"}, "outcome": "no_line",
         "started": "2026-05-26T04:00:00Z"},
        fault | {"time": "2026-05-26T11:00:00Z", "state": "open"},
        {"kind": "facts", "time": "2026-05-26T12:10:00Z", "node": "n1", "facts": {"os": "x"},
         "boot": {"id": "b1", "time": "2026-05-26T12:00:00Z"}},
        fault | {"time": "2026-05-26T12:10:00Z", "state": "cleared", "cleared": {"kind": "reboot"}},
        {"kind": "heartbeat", "time": "2026-05-28T00:00:00Z", "node": "n1", "hours": 1, "gpu_busy_hours": 8},
    ]  # fmt: skip
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "journal-000001.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    store = Store(tmp_path / "history.duckdb")
    store.read_once(tmp_path / "j")
    view = View(store, FleetStatus())
    rows = json.loads(view.get("/api/v1/timeline?node=n1&sort=time&window=7d")[1])["timeline"]
    page = view.get("/nodes/n1?window=7d")[1]
    [check] = json.loads(view.get("/api/v1/timeline?kind=boot&window=7d")[1])["timeline"]
    store.close()
    assert [(row["kind"], row["what"], row["cause"]) for row in rows if row["kind"] != "silence"] == [
        ("job_start", "started; it failed later", None),
        ("job_end", "failed, no crash line in its logs", None),
        ("node_check", "fails: reset the GPU, GPU <b>", "xid"),
        ("boot", "the node booted", None),
        ("node_check", "fault cleared by a reboot, GPU <b>", "xid"),
    ]
    assert check["what"] == "the node booted"
    assert re.search(r">\s*node check\s*</td>", page)
    assert "Node check" in page
    assert "Reboots" in page
    assert "GPU &lt;b&gt;; reset the GPU; cleared by a reboot after 70 minutes" in page


def test_a_missing_name_has_a_page_that_leads_on_and_a_missing_table_does_not(tmp_path: Path) -> None:
    store = filled(tmp_path, ("n1",))
    view = View(store, FleetStatus())
    status, page, headers = view.get("/nodes/n9?window=1d")
    table = view.get("/nodes/n9?window=1d&table=facts")
    store.close()
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "No record of a node &#39;n9&#39;" in page
    assert "/nodes?window=1d" in Page(page).links
    assert (table[0], table[2]["content-type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("/causes/nope", 404, "No cause or signature &#39;nope&#39;"),
        ("/?window=abc", 400, "Invalid window; use a number and a unit, such as 7d"),
        ("/incidents?sort=drop", 400, "Cannot sort by"),
    ],
)
def test_a_wrong_address_has_a_page_with_the_menu(tmp_path: Path, address: str, status: int, told: str) -> None:
    store = filled(tmp_path, ("n1",))
    found, page, headers = View(store, FleetStatus()).get(address)
    store.close()
    assert (found, headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert told in page
    assert {"/", "/causes", "/search"} <= set(Page(page).links)


@pytest.fixture
def searched(tmp_path: Path) -> Iterator[View]:
    more = [
        {"kind": "facts", "time": NOW, "node": "n0412", "facts": {"driver_version": "580.95.05"}},
        {"kind": "incident", "time": NOW, "node": "n0412", "id": "i7", "signature": "nv_xid_79_fallen_off_bus",
         "job": {"id": "job-33", "user": "xavi"}, "text": "NVRM: GPU has fallen off the bus"},
    ]  # fmt: skip
    (tmp_path / "j").mkdir()
    (tmp_path / "j/a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in more))
    store = Store(tmp_path / "store.duckdb")
    store.read_once(tmp_path / "j")
    yield View(store, FleetStatus())
    store.close()


@pytest.mark.parametrize(
    ("text", "path"), [("n0412", "/nodes/n0412"), ("job-33", "/jobs/job-33"), ("i7", "/incidents/i7")]
)
def test_an_id_leads_to_its_page_in_the_same_window(searched: View, text: str, path: str) -> None:
    status, _, headers = searched.get(f"/search?q={text}&window=1d")
    assert (status, headers["location"]) == (303, f"{path}?window=1d")


@pytest.mark.parametrize(
    ("text", "table", "link"),
    [
        ("N0412", "Nodes", "/nodes/n0412"), ("412", "Nodes", "/nodes/n0412"), ("JOB", "Jobs", "/jobs/job-33"),
        ("xavi", "Users", "/incidents?user=xavi"), ("580.95", "Facts of nodes", "/nodes?fact.driver_version=580.95.05"),
        ("fallen off the bus", "Lines", "/incidents/i7"),
        ("xid 79", "Causes and signatures", "/causes/nv_xid_79_fallen_off_bus"),
    ],
)  # fmt: skip
def test_words_lead_to_what_holds_them(searched: View, text: str, table: str, link: str) -> None:
    status, page, _ = searched.get(f"/search?q={quote(text)}")
    assert status == 200
    assert f"Search: “{text}”" in page
    assert table in page
    assert link in Page(page).links


def test_a_search_without_a_hit_says_so(searched: View) -> None:
    assert "Nothing found for “zzzz”" in searched.get("/search?q=zzzz")[1]
    assert "Nothing to search for" in searched.get("/search?q=")[1]


def test_causes_are_compared_only_with_a_window_that_the_records_cover(tmp_path: Path) -> None:
    def crash(day: int) -> dict[str, Any]:
        return {"kind": "incident", "time": NOW - day * 86400, "node": "n1", "id": f"i{day}", "signature": "s"}

    beats = [{"kind": "heartbeat", "time": NOW - day * 86400, "node": "n1", "hours": 24} for day in range(11)]
    (tmp_path / "j").mkdir()
    (tmp_path / "j/a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*beats, crash(0), crash(1), crash(7)]))
    store = Store(tmp_path / "store.duckdb")
    store.read_once(tmp_path / "j")
    view = View(store, FleetStatus())
    for window, before, change in (("5d", 1, 1.0), ("7d", None, None)):
        [row] = json.loads(view.get(f"/api/v1/causes?window={window}")[1])["causes"]
        assert (row["incidents"], row["before"], row["change"]) == (2, before, change)
    store.close()


def test_a_jobs_page_counts_incidents_and_not_what_else_happened(tmp_path: Path) -> None:
    job = {"id": "9", "user": "ada"}
    happened = [
        {"kind": "incident", "time": NOW - 60, "node": "n1", "id": "i1", "signature": "s", "job": job},
        {"kind": "job_end", "time": NOW, "node": "n1", "job": job, "outcome": "explained", "started": NOW - 3600},
    ]
    (tmp_path / "j").mkdir()
    (tmp_path / "j/a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in happened))
    store = Store(tmp_path / "store.duckdb")
    store.read_once(tmp_path / "j")
    page = View(store, FleetStatus()).get("/jobs/9")[1]
    store.close()
    assert "1 incident on 1 node" in page
    assert "1 root incident, 0 consequences" in page


def test_an_incident_says_which_rank_is_behind(tmp_path: Path) -> None:
    places = [{"seq": seq, "count": 1, "ranks": [str(seq)], "operations": [{"op": "ALLREDUCE"}]} for seq in (3, 4)]
    hang = {
        "kind": "incident", "time": "2026-05-28T00:00:00Z", "node": "n1", "id": "a", "root_cause": "unknown",
        "signature": "nccl_watchdog_timeout", "collectives": [{"group": "7(DATA)", "reporting": 2, "places": places}],
    }  # fmt: skip
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "a.jsonl").write_text(json.dumps(hang) + "\n")
    store = Store(tmp_path / "history.duckdb")
    store.read_once(tmp_path / "j")
    page = View(store, FleetStatus()).get("/incidents/a")[1]
    store.close()
    assert "group 7(DATA): rank 3 is behind, in ALLREDUCE 3; 1 other rank waits in ALLREDUCE 4" in page


def test_a_cause_and_its_incident_say_how_well_the_cause_is_established(tmp_path: Path) -> None:
    known = {
        "kind": "incident", "time": "2026-05-28T00:00:00Z", "node": "n1", "id": "a", "root_cause": "gpu_lost_from_pcie",
        "signature": "nv_xid_79_fallen_off_bus", "verdict": "infrastructure",
    }  # fmt: skip
    unknown = known | {"id": "b", "root_cause": "unknown"}
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (known, unknown)))
    store = Store(tmp_path / "history.duckdb")
    store.read_once(tmp_path / "j")
    view = View(store, FleetStatus())
    cause, first, second = (
        view.get(path)[1] for path in ("/causes/gpu_lost_from_pcie", "/incidents/a", "/incidents/b")
    )
    store.close()
    assert (
        "Evidence B: documented or diagnosed by the vendor or project."
        in cause.partition("Root incidents over time")[2].partition("Nodes")[0]
    )
    assert "Evidence B: documented or diagnosed by the vendor or project." in first
    assert "Evidence" not in second
    assert "<code>gpufault explain</code> shows which facts" in second


def test_pages_of_a_line_and_of_its_unknown_incidents_say_what_settled_reports_show(tmp_path: Path) -> None:
    crash = {
        "kind": "incident", "time": "2026-05-28T00:00:00Z", "node": "n1", "id": "a", "root_cause": "unknown",
        "signature": "cuda_illegal_address",
    }  # fmt: skip
    decided = crash | {"id": "b", "root_cause": "application_illegal_access"}
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (crash, decided)))
    store = Store(tmp_path / "history.duckdb")
    store.read_once(tmp_path / "j")
    view = View(store, FleetStatus())
    site = SettledReport(
        address="https://tickets.example.com/1", signature="cuda_illegal_address", date="2026-05-01", domain="hardware",
        cause="One card <fails>", settled="hardware replaced",
    )  # fmt: skip
    view.titles = Titles(replace_values(packs.load(), reports=(site,)))
    line, cause, unknown, known = (
        view.get(path)[1]
        for path in (
            "/causes/cuda_illegal_address",
            "/causes/application_illegal_access",
            "/incidents/a",
            "/incidents/b",
        )
    )
    store.close()
    public = outlook(Outcomes(public=packs.reports("cuda_illegal_address"))).sentences[0]
    for page in (line, cause, unknown):
        assert str(escape(public)) in page
        assert "On this fleet: in 1 settled incident of this line: a card, a link or the node" in page
    for page in (line, unknown):
        assert "What would decide, the likeliest first" in page
        assert ("https://tickets.example.com/1" in page) == ("One card &lt;fails&gt;" in page)
    assert "What would decide" not in cause
    assert "What it turned out to be" not in known


def test_a_findings_page_shows_the_rates_of_all_crashes_and_the_trend_of_the_fact() -> None:
    rates = IncidentRates(
        incidents_with=1240, incidents_without=30, rate_with=41.2, rate_without=0.25,
        ratio=Ratio(value=160.0, low=52.0, high=inf),
    )  # fmt: skip
    part = TrendPart(low=60.0, high=71.5, observed=9, expected=1.5)
    each = replace(FINDING, rates=rates, trend=(part,))
    view = View(None, FleetStatus(result=replace(RESULT, findings=(each,)), complete_time=NOW))
    status, text, _ = view.get(f"/findings/{quote(finding_id(each))}")
    assert status == 200
    for told in (
        "1,240, 41",
        "30, 0.2",
        "160 times as frequent (95% interval 52 to ∞)",
        "71.5",
        "6 times",
        "Crashes by ",
    ):
        assert told in text, told
    plain = View(None, FleetStatus(result=RESULT, complete_time=NOW)).get(f"/findings/{quote(finding_id(FINDING))}")[1]
    assert "in 1,000 hours" not in plain
    assert "Crashes by " not in plain


def test_a_lead_has_its_p_value_and_how_many_values_were_compared() -> None:
    lead = NotEnough(
        signature="nv_xid_74_nvlink", crashes=4, needed=9, lead=FactValue(fact="driver_version", value="580"), observed=4,
        expected=0.8, p_value=0.0013, values=1210, message="needs 9",
    )  # fmt: skip
    text = View(None, FleetStatus(result=replace(RESULT, not_enough_data=(lead,)), complete_time=NOW)).get("/findings")[
        1
    ]
    assert "4 crashes where 0.8 were expected (exact p 0.001, the smallest of 1,210 values)" in text


def test_a_finding_names_the_nodes_that_crashed_with_its_fact(tmp_path: Path) -> None:
    end, lead = RESULT.window.end, FINDING.facts[0]
    records = [
        {"kind": "facts", "time": end - 99, "node": node, "facts": {lead.fact: value}}
        for node, value in (("n1", lead.value), ("n2", "other"), ("n3", lead.value))
    ]
    records += [
        {"kind": "incident", "time": end - 9, "node": node, "id": node, "signature": FINDING.signature, "role": role}
        for node, role in (("n1", "root"), ("n2", "root"), ("n3", "cascade"))
    ]
    (tmp_path / "j").mkdir()
    (tmp_path / "j/a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    store = Store(tmp_path / "store.duckdb")
    store.read_once(tmp_path / "j")
    view = View(store, FleetStatus(result=RESULT, result_time=end))
    table = json.loads(view.get(f"/findings/{finding_id(FINDING)}?table=crashed")[1])
    store.close()
    assert [(row["Node"], row["Root incidents"]) for row in table["rows"]] == [("n1", 1)]


def test_rollouts_to_hold_and_nodes_to_drain_come_first_and_lead_to_their_pages(tmp_path: Path) -> None:
    step = replace(FINDING, next_step="look at its cables")
    rollout = replace(FINDING, signature="other_crash", facts=EFFECT.rollout.facts, rollout=EFFECT)
    store = filled(tmp_path, ("n1",))
    result = replace(RESULT, findings=(step,))
    for findings in ((step, rollout), (step,)):
        with store.cursor() as db:
            review = review_of(db, Window(start=NOW - 9e5, end=NOW), None, {})
        review = replace(review, correlation=replace(result, findings=findings))
        found = [(each.kind, each.name) for each in next_steps(review)]
        held = [("findings", finding_id(rollout))] * (rollout in findings)
        assert found[: len(held) + 2] == [*held, ("nodes", "n1"), ("findings", finding_id(step))]
    page = View(store, FleetStatus(result=result, result_time=NOW)).get("/")[1]
    store.close()
    assert re.search(
        r'<ol class="findings steps"><li><a href="/nodes/n1">Drain and test 1 unusually bad node: n1', page
    )


def test_what_was_found_in_another_window_is_told_with_its_dates(tmp_path: Path) -> None:
    store = filled(tmp_path, ("n1",))
    view = View(store, FleetStatus(result=replace(RESULT, outlier_nodes=()), result_time=NOW))
    page = re.sub(r"\s+", " ", view.get("/?window=1d")[1])
    store.close()
    assert "drain and test them. This is of 01 Jun to 08 Jun 2026" in page


def test_a_failed_refresh_is_a_banner_with_the_time_of_the_last_complete_result() -> None:
    failed = Failure(reason="source", message="no such folder", time=NOW)
    text = View(None, FleetStatus(result=RESULT, complete_time=NOW, failure=failed)).get("/findings")[1]
    assert "The last refresh failed (no such folder)" in text
    assert "28 May 2026" in text
    assert "an empty result does not mean that all is well" in text
