"""The real server on loopback, asked by http.client and by bare sockets."""

import base64
import contextlib
import hashlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from prometheus_client.parser import text_string_to_metric_families

from exporter.config import packs
from exporter.core.catalogue.outcomes import outlook
from exporter.core.diagnosis.node_faults import Fault
from exporter.core.text.problems import InvalidInput
from exporter.web.interface import Overview, RecentIncident, SourceState
from exporter.web.page import landing_page
from exporter.web.routes import router
from exporter.web.serving import RunningServer, serve
from tests.web.serving import ADMINISTRATOR, TIMEOUT, Node, as_client, ask, connect, received, serving


@pytest.fixture
def node() -> Node:
    """The node behind `server`."""
    return Node()


@pytest.fixture
def server(node: Node) -> Iterator[RunningServer]:
    with serving(node, client=ADMINISTRATOR) as running:
        yield running


# Metrics.


def test_the_metrics_are_the_snapshots_as_prometheus_reads_it(server: RunningServer) -> None:
    answer = ask(server, "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family.samples for family in text_string_to_metric_families(answer.text)}
    assert [sample.value for sample in families["gpufault_incidents"]] == [2.0]


def test_format_and_encoding_are_negotiated(server: RunningServer) -> None:
    asked = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
    answer = ask(server, "/metrics", headers=asked)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert (answer.headers["content-encoding"], answer.body[:2]) == ("gzip", b"\x1f\x8b")
    assert answer.headers["vary"] == "accept, accept-encoding"


def test_the_metrics_may_live_elsewhere_even_at_the_root(node: Node) -> None:
    for path in ("/gpu/metrics", "/"):
        with serving(node, path=path) as server:
            assert "gpufault_incidents_total" in ask(server, path).text
            assert ask(server, "/metrics").status == 404


@pytest.mark.parametrize("path", ["metrics", "/{name}", "/a b", "/metrics?x", ""])
def test_a_telemetry_path_that_is_none_is_refused(node: Node, path: str) -> None:
    with pytest.raises(InvalidInput, match=r"telemetry-path.*such as /metrics"):
        serve(["127.0.0.1:0"], router(node, path))


# Health, readiness, reload.


def test_healthy_while_the_main_loop_lives(server: RunningServer, node: Node) -> None:
    assert ask(server, "/-/healthy").status == 200
    node.alive = False
    assert ask(server, "/-/healthy").status == 503


def test_what_a_job_is_to_blame_for_is_told_and_the_node_stays_ready(server: RunningServer, node: Node) -> None:
    node.off = [f"slow takes too long on /<{number}>.log" for number in range(30)]
    answer, page = ask(server, "/-/ready"), ask(server, "/").text
    assert answer.status == 200
    assert answer.text.splitlines() == ["gpufault is ready.", *node.off[:20], "and 10 more"]
    assert "<li>slow takes too long on /&lt;0&gt;.log" in page
    assert "and 10 more" in page
    node.reasons = ["source files: gone"]
    assert ask(server, "/-/ready").status == 503


def test_no_name_of_a_log_begins_a_line_of_ready_or_moves_a_cursor(server: RunningServer, node: Node) -> None:
    node.off = ["slow takes too long on /m\nsource jobs: cannot be read\n\u202e\x1b[31m.log"]
    assert len(ask(server, "/-/ready").text.splitlines()) == 2
    assert ask(server, "/-/ready").text.replace("\n", "").isprintable()


def test_ready_or_one_reason_a_line(server: RunningServer, node: Node) -> None:
    assert ask(server, "/-/ready").status == 200
    node.reasons = ["kernel: /dev/kmsg: permission denied; add CAP_SYSLOG", "files: first scan is under way"]
    answer = ask(server, "/-/ready")
    assert answer.status == 503
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.splitlines() == node.reasons


def test_a_reload_answers_with_the_problems_it_met(server: RunningServer, node: Node) -> None:
    assert ask(server, "/-/reload", "POST").status == 200
    node.on_reload = lambda: ["config.yaml:3:1: sorces: unknown key"]
    answer = ask(server, "/-/reload", "POST")
    assert (answer.status, answer.text) == (500, "config.yaml:3:1: sorces: unknown key\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://rebound.example:9873", "Host": "rebound.example:9873"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_no_web_page_may_ask_for_a_reload(
    server: RunningServer, node: Node, headers: dict[str, str], status: int
) -> None:
    asked = []
    node.on_reload = lambda: asked.append(1) or []
    for method in ("POST", "PUT"):
        assert ask(server, "/-/reload", method, headers).status == status
    assert len(asked) == (2 if status == 200 else 0)


def test_a_reload_that_waits_for_the_main_loop_holds_up_no_scrape(server: RunningServer, node: Node) -> None:
    begun, done = threading.Event(), threading.Event()

    def wait_for_main_loop() -> list[str]:
        begun.set()
        return [] if done.wait(TIMEOUT) else ["the main loop does not answer"]

    node.on_reload = wait_for_main_loop
    with connect(server, b"POST /-/reload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as reloading:
        assert begun.wait(TIMEOUT)
        assert ask(server, "/metrics").status == 200
        done.set()
        assert received(reloading).startswith(b"HTTP/1.1 200 ")


# What HTTP asks for.


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/-/reload", 405, {"POST", "PUT"}),
        ("POST", "/metrics", 405, {"GET", "HEAD"}),
        ("DELETE", "/", 405, {"GET", "HEAD"}),
        ("GET", "/nowhere", 404, set()),
        ("GET", "/metrics/", 404, set()),
        ("GET", "/-/../metrics", 404, set()),
    ],
)
def test_what_is_not_offered_is_said_so(
    server: RunningServer, method: str, path: str, status: int, allow: set[str]
) -> None:
    answer = ask(server, path, method)
    assert answer.status == status
    assert set(filter(None, answer.headers.get("allow", "").split(", "))) == allow


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready"])
def test_head_is_get_without_its_body(server: RunningServer, path: str) -> None:
    head, get = ask(server, path, "HEAD"), ask(server, path)
    assert (head.status, head.body) == (200, b"")
    assert {**head.headers, "date": ""} == {**get.headers, "date": ""}


def test_one_connection_carries_many_scrapes(server: RunningServer) -> None:
    with closing(HTTPConnection(server.addresses[0], timeout=TIMEOUT)) as connection:
        connection.connect()
        first = connection.sock
        for _ in range(3):
            connection.request("GET", "/metrics")
            assert connection.getresponse().read().startswith(b"# HELP ")
        assert connection.sock is first


def test_no_part_of_an_answer_waits_for_the_clients_acknowledgement(server: RunningServer) -> None:
    with closing(HTTPConnection(server.addresses[0], timeout=TIMEOUT)) as connection:
        connection.request("GET", "/metrics")
        assert connection.getresponse().read()
        with _other_end(connection.sock) as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def _other_end(sock: socket.socket) -> socket.socket:
    """A duplicate of the server's end of a connection: its descriptor is among those of this process."""
    for descriptor in Path("/proc/self/fd").iterdir():
        if not os.path.realpath(descriptor).rpartition("/")[2].startswith("socket:"):
            continue
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):  # one that is not connected has no peer
            other = stack.enter_context(socket.socket(fileno=os.dup(int(descriptor.name))))
            if other.getpeername() == sock.getsockname():
                stack.pop_all()
                return other
    raise AssertionError("the server has closed the connection")


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/ready", "/nowhere"])
def test_every_answer_carries_the_safe_headers_and_no_name_of_the_server(server: RunningServer, path: str) -> None:
    headers = ask(server, path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


# The landing page.


class Page(HTMLParser):
    """Links, and the text of each table cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.cells: list[str] = []
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag == "td":
            self._in_cell = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[-1] += data


def recent(text: str) -> RecentIncident:
    return RecentIncident(
        time=0.0,
        signature=text,
        root_cause=text,
        verdict="unclear",
        remediation=text,
        job=text,
        gpu=text,
        log=text,
        line=text,
    )


FAULT = Fault(
    time=1_600_000_000.0, last_time=1_700_000_000.0, count=2, signature="nv_xid_79_fallen_off_bus",
    root_cause="gpu_lost_from_pcie", title="t", gpu="0000:c1:00.0", job=None, remediation="Power-cycle it.", incident="1",
    action="reboot", openings=(1_600_000_000.0, 1_700_000_000.0), times=3,
)  # fmt: skip
HARMLESS = Page(
    landing_page(
        Overview(
            version="1",
            node="n",
            sources=(SourceState(name="s", up=True),),
            incidents=(recent("s"),),
            faults=(FAULT,),
            causes=(("c", 1),),
        ),
        ["r"],
        "/metrics",
    )
)


def test_the_landing_page_shows_the_node_its_sources_and_last_incidents(server: RunningServer, node: Node) -> None:
    node.reasons = ["kernel: permission denied"]
    node.sources = (
        SourceState(name="files:/scratch", up=True, files=1200, lag=61.4),
        SourceState(name="kmsg", up=False, down_reason="permission denied; add CAP_SYSLOG"),
    )
    node.incidents = (
        RecentIncident(
            time=1_700_000_000.0,
            signature="nv_xid_79_fallen_off_bus",
            root_cause="gpu_lost_from_pcie",
            verdict="infrastructure",
            remediation="Drain the node.",
            job="7",
            gpu="0000:c1:00.0",
            log="/jobs/7.log:12",
            line="NVRM: Xid 79",
        ),
    )
    node.faults = (FAULT,)
    node.causes = (("gpu_lost_from_pcie", 1234), ("unknown", 2))
    answer = ask(server, "/")
    page = Page(answer.text)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "gpu-07" in answer.text
    assert "1.2.3" in answer.text
    assert "<li>kernel: permission denied" in answer.text
    assert page.cells == [
        *("2023-11-14 22:13:20", "Title of nv_xid_79_fallen_off_bus: Title of gpu_lost_from_pcie", "0000:c1:00.0"),
        *("reboot the node", "3", "Power-cycle it."),
        *("2023-11-14 22:13:20", "Title of nv_xid_79_fallen_off_bus", "Title of gpu_lost_from_pcie infrastructure"),
        *("job 7, GPU 0000:c1:00.0, /jobs/7.log:12", "NVRM: Xid 79", "Drain the node."),
        *("Title of gpu_lost_from_pcie", "1,234"),
        *("cause unknown", "2"),
        *("files:/scratch", "up", "1,200", "61 s"),
        *("kmsg", "down: permission denied; add CAP_SYSLOG", "0", "none"),
    ]
    assert '<meta http-equiv="refresh"' in answer.text
    with serving(node) as for_anybody:
        public = Page(ask(for_anybody, "/").text).cells[6:11]
    assert public == ["2023-11-14 22:13:20", *page.cells[7:9], "GPU 0000:c1:00.0", "Drain the node."]
    assert "read late" not in answer.text
    node.incidents = (replace(node.incidents[0], late=True),)
    assert '<span class="note">read late, not counted</span>' in ask(server, "/").text


def test_the_landing_page_has_the_newest_incident_first_and_its_evidence_in_whole_sentences() -> None:
    old, new = recent("old"), replace(recent("new"), time=9.0, verdict="unclear")
    reasons = tuple(f"fact_{i} is {i} – " + "x" * 60 for i in range(6))
    overview = Overview(version="1", node="n", sources=(), incidents=(old, replace(new, because=reasons)))
    cells = Page(landing_page(overview, [], "/metrics")).cells
    rows = [cells[at : at + 6] for at in range(0, 12, 6)]
    assert [row[0] for row in rows] == ["1970-01-01 00:00:09", "1970-01-01 00:00:00"]
    assert rows[0][2] == "new unclear" + "".join(reasons[:4]) + "and 2 more"


def test_every_link_of_the_landing_page_leads_somewhere(server: RunningServer) -> None:
    links = Page(ask(server, "/").text).links
    assert "/metrics" in links
    assert [ask(server, link).status for link in links] == [200] * len(links)


def test_the_page_of_a_cause_or_signature_explains_it(server: RunningServer, node: Node) -> None:
    for name, told in (
        ("gpu_lost_from_pcie", "Chosen when"),
        ("nv_xid_79_fallen_off_bus", "GPU has fallen off the bus"),
    ):
        answer = ask(server, f"/signatures/{name}")
        assert answer.status == 200
        assert told in answer.text
        assert "What to do" in answer.text
        links = [link for link in Page(answer.text).links if link != "/"]
        reports = {report.address for report in packs.reports(name)}
        outside = [link for link in links if not link.startswith("/") and link not in reports]
        assert outside == ["https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"]
        links = [link for link in links if link.startswith("/")]
        assert links
        assert [ask(server, link).status for link in links] == [200] * len(links)
    assert ask(server, "/signatures/%3Cb%3E").status == 404
    node.causes = (("gpu_lost_from_pcie", 1),)
    assert "/signatures/gpu_lost_from_pcie" in Page(ask(server, "/").text).links


def test_the_page_of_a_signature_ranks_what_would_decide(server: RunningServer) -> None:
    text = ask(server, "/signatures/cuda_cublas_error").text
    shown = outlook(packs.outcomes(packs.load(), "cuda_cublas_error"))
    assert shown.checks
    at = [text.index(str(escape(check.decided_by))) for check in shown.checks]
    assert at == sorted(at)
    assert {check.example.address for check in shown.checks} < set(Page(text).links)
    assert str(escape(shown.sentences[0])) in text


def test_the_page_of_a_cause_has_sentences_of_its_lines_and_nothing_to_decide(server: RunningServer) -> None:
    text = ask(server, "/signatures/application_illegal_access").text
    assert "settled reports of this line" in text
    assert "What would decide" not in text


HOSTILE = st.text(
    st.sampled_from(
        [*"<>&\"'`=/ a", "\x00", "\x1b", "\n", "\u202e", "\u2066", "\u2028", "\ufeff", "\udce9", "\U000e0001"]
    ),
    max_size=12,
) | st.sampled_from(
    ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</td><td>", "<!--", "]]>", "&lt;b&gt;"]
)


@given(text=HOSTILE)
def test_what_a_job_wrote_stays_text_on_the_landing_page(text: str) -> None:
    source = SourceState(name=text, up=False, down_reason=text)
    fault = replace(FAULT, signature=text, root_cause=text, gpu=text, remediation=text)
    overview = Overview(
        version=text, node=text, sources=(source,), incidents=(recent(text),), faults=(fault,), causes=((text, 1),)
    )
    written = landing_page(overview, [text], "/metrics")
    page = Page(written.encode().decode())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    advice = re.sub(r"`([^`]*)`", r"\1", shown)  # what stands in backticks is shown as code
    where = f"job {shown}, GPU {shown}, {shown}" if text else ""
    of_fault = ["2023-11-14 22:13:20", f"{shown}: {shown}", shown, "reboot the node", "3", advice]
    of_incident = ["1970-01-01 00:00:00", shown, f"{shown} unclear", where, shown, advice]
    assert page.cells == [*of_fault, *of_incident, shown, "1", shown, f"down: {shown}", "0", "none"]
    assert page.tags <= HARMLESS.tags | {"code"}
    assert set(written.replace("\n", "")) <= set(map(chr, range(32, 127))) | set(shown)


def test_what_is_shown_is_shown_without_its_secrets(server: RunningServer, node: Node) -> None:
    node.reasons = ["files: /home/ada/x.log cannot be opened"]
    node.incidents = (recent("/home/ada/token=hunter2.log"),)
    node.on_reload = lambda: ["config.yaml:1:1: password=hunter2: no such key here"]
    for answer in (ask(server, "/"), ask(server, "/-/ready"), ask(server, "/-/reload", "POST")):
        assert "redacted" in answer.text or "[user]" in answer.text
        assert "ada" not in answer.text
        assert "hunter2" not in answer.text


def test_control_and_bidi_characters_are_escaped_in_json(server: RunningServer, node: Node) -> None:
    node.reasons = ["a.log\x9b31m\u202e\udc80"]
    answer = ask(server, "/api/v1/node-check")
    assert answer.headers["content-type"] == "application/json"
    assert answer.text.isprintable()
    assert json.loads(answer.text)["blind"] == ["a.log\x9b31m\u202e\\udc80"]


def test_the_policy_allows_the_pages_own_style_and_nothing_else(server: RunningServer) -> None:
    answer = ask(server, "/")
    styles = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() for style in styles]
    assert re.findall(r"'sha256-(.*?)'", answer.headers["content-security-policy"]) == digests
    assert re.findall(r"<script[^>]*>|src=[^ >]*", answer.text) == ['<script src="/static/node.js" defer>']
    assert "script-src 'self';" in answer.headers["content-security-policy"]
    assert not re.search(r"\sstyle=|\son\w+=", answer.text)
    assert ask(server, "/static/node.js").headers["content-type"].startswith("text/javascript")


# Addresses, beginning and end.


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_several_addresses_are_served_at_once(node: Node) -> None:
    with serving(node, ":0", "127.0.0.1:0", "[::1]:0") as server:
        everywhere, four, six = server.addresses
        port = everywhere.removeprefix("[::]:")
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", four)
        assert re.fullmatch(r"\[::1\]:[1-9]\d*", six)
        for address in (f"127.0.0.1:{port}", f"[::1]:{port}", four, six):
            with closing(HTTPConnection(address, timeout=TIMEOUT)) as connection:
                connection.request("GET", "/-/healthy")
                assert connection.getresponse().status == 200


def test_an_address_that_is_taken_is_the_callers_error_and_frees_the_others(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder, socket.create_server(("127.0.0.1", 0)) as other:
        taken, free = (f"127.0.0.1:{sock.getsockname()[1]}" for sock in (holder, other))
        other.close()
        before = web_threads()
        with pytest.raises(OSError, match=rf"cannot listen on {taken}: Address already in use; free it or"):
            serve([free, taken], router(node, "/metrics"))
        assert web_threads() == before
        with serving(node, free):
            pass


def test_a_host_without_an_address_is_named(node: Node) -> None:
    with pytest.raises(OSError, match=r"cannot listen on nowhere\.invalid:0: "):
        serve(["nowhere.invalid:0"], router(node, "/metrics"))


@pytest.mark.parametrize(
    "address", ["9873", "127.0.0.1", "::1:9873", ":http", ":65536", "http://x:1", "a..b:1", "[::1]", ""]
)
def test_what_is_no_address_is_refused_with_an_example(node: Node, address: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"{address}: not HOST:PORT; use :9873") if address else "HOST"):
        serve(["127.0.0.1:0", address], router(node, "/metrics"))


def test_close_ends_idle_connections_and_stops_listening(node: Node) -> None:
    before = web_threads()
    server = serve(["127.0.0.1:0"], router(node, "/metrics"))
    with connect(server) as idle, closing(HTTPConnection(server.addresses[0], timeout=TIMEOUT)) as kept:
        kept.request("GET", "/-/healthy")
        assert kept.getresponse().read() == b"gpufault is healthy.\n"
        server.close(TIMEOUT)
        assert (received(idle), received(kept.sock)) == (b"", b"")
    assert web_threads() == before
    with pytest.raises(ConnectionRefusedError):
        connect(server)
    server.close(TIMEOUT)  # a second time is no error


def test_close_lets_an_answer_under_way_end_but_waits_no_longer_than_told(
    node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    begun, done = threading.Event(), threading.Event()

    def wait_for_main_loop() -> list[str]:
        begun.set()
        done.wait(TIMEOUT)
        return []

    node.on_reload = wait_for_main_loop
    server = serve(["127.0.0.1:0"], as_client(ADMINISTRATOR, router(node, "/metrics")))
    with connect(server, b"POST /-/reload HTTP/1.1\r\nHost: x\r\n\r\n") as reloading:
        assert begun.wait(TIMEOUT)
        server.close(0.01)
        done.set()
        assert received(reloading).startswith(b"HTTP/1.1 200 ")
    server.close(TIMEOUT)
    assert capfd.readouterr() == ("", "")


def web_threads() -> int:
    return sum(thread.name == "web" for thread in threading.enumerate())
