"""Asking a Prometheus: what is sent, what a partial or a foreign answer is taken for, and a real one."""

from __future__ import annotations

import csv
import io
import json
import re
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import jsonschema
import pytest

from exporter.cli.main import main
from exporter.demo.founding_cases import CASES
from exporter.demo.simulated_journals import SCRAPE_SECONDS, write_journals, write_openmetrics
from exporter.demo.simulator import Fleet, simulate
from exporter.fleet.input.prometheus_alerts import SAME_FIRING, alerts
from exporter.fleet.input.prometheus_api import NoAnswer, connect
from exporter.fleet.input.prometheus_history import MAX_RISE, load
from exporter.fleet.report import document
from exporter.fleet.statistics.correlation import correlate
from tests.e2e.conftest import eventually
from tests.support.programs import needs

from .small import WEEK

SCHEMA = json.loads((Path(document.__file__).parent / "schema.json").read_text())
needs_prometheus = needs("promtool")
Asked = list[tuple[str, dict[str, str], dict[str, str]]]


@pytest.fixture
def answering() -> Iterator[Callable[..., tuple[str, Asked]]]:
    """A server that gives one answer to everything, and what it was asked."""
    servers = []

    def answer(body: str, status: int = 200) -> tuple[str, Asked]:
        asked: Asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                asked.append((self.path, dict(urllib.parse.parse_qsl(form)), dict(self.headers)))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield answer
    for server in servers:
        server.shutdown()
        server.server_close()


def success(result: list[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def test_questions_are_posted_and_refuse_partial_answers(answering: Callable[..., tuple[str, Asked]]) -> None:
    url, asked = answering(success([{"metric": {"instance": "a"}, "value": [1.0, "2"]}]))
    found = connect(url, user="me", password="x", tenant="team").at("up", 5)
    path, form, headers = asked[0]

    assert [(s.labels, s.samples) for s in found] == [({"instance": "a"}, [(1.0, 2.0)])]
    assert path == "/api/v1/query"
    assert form == {"query": "up", "time": "5.000", "partial_response": "false", "dedup": "true"}
    assert headers["Authorization"] == "Basic bWU6eA=="
    assert {k.lower(): v for k, v in headers.items()}["x-scope-orgid"] == "team"


def test_a_warning_makes_the_answer_incomplete(answering: Callable[..., tuple[str, Asked]]) -> None:
    url, _ = answering(success([], warnings=["store 10.0.0.3 did not answer"]))
    found = correlate(load(connect(url), WEEK).observed, WEEK)

    assert found.complete is False
    assert any("store 10.0.0.3 did not answer" in gap.message for gap in found.gaps)


def test_a_selector_that_meets_nobody_is_no_all_clear(answering: Callable[..., tuple[str, Asked]]) -> None:
    url, _ = answering(success([]))
    found = correlate(load(connect(url), WEEK).observed, WEEK)

    assert found.complete is False
    assert "no_targets" in {gap.kind for gap in found.gaps}


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ('{"status": "error", "error": "too many samples"}', 422, "too many samples"),
        ("<html>log in</html>", 200, "no JSON, so no Prometheus API"),
        ('{"status": "error"}', 200, "no answer of a Prometheus API"),
        ("gone", 503, "503"),
        ('{"status": "success"}', 200, "no answer of a Prometheus API"),
        ('{"status": "success", "data": {"result": null}}', 200, "no answer of a Prometheus API"),
        (success([{"metric": {"instance": 5}, "value": [1.0, "2"]}]), 200, "no answer of a Prometheus API"),
        (success([{"metric": {"instance": "a"}, "value": [1.0]}]), 200, "no answer of a Prometheus API"),
        (success([{"metric": {"instance": "a"}}]), 200, "no answer of a Prometheus API"),
    ],
)
def test_a_refusal_is_told_with_its_reason(
    answering: Callable[..., tuple[str, Asked]], body: str, status: int, told: str
) -> None:
    url, _ = answering(body, status)

    with pytest.raises(NoAnswer, match=told):
        connect(url).at("up", 5)


@pytest.mark.parametrize(
    "said",
    [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}"],
    ids=["no HTTP", "half"],
)
def test_what_speaks_no_http_is_no_answer(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as one:
                one.sendall(said)
                one.shutdown(socket.SHUT_WR)
                while one.recv(65536):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(NoAnswer, match="no HTTP, or half an answer"):
            connect(f"http://127.0.0.1:{listening.getsockname()[1]}").at("up", 5)


def test_what_one_node_makes_up_stops_the_reading_of_none(answering: Callable[..., tuple[str, Asked]]) -> None:
    """Its /metrics may hold any number, and a fact without a name. This server answers everything to everything."""
    rises = [[WEEK.start + 300 * n, value] for n, value in enumerate(("0", "1", "1e300", "NaN", "+Inf"))]
    made_up = {"metric": {"instance": "a", "signature": "s"}, "value": [WEEK.end, "1"], "values": rises}
    empty = {"metric": {"instance": "b", "signature": "s"}, "value": [WEEK.end, "NaN"]}
    url, _ = answering(success([made_up, empty]))
    observed = load(connect(url), WEEK).observed

    assert observed.nodes == ("a",)
    assert len(observed.incidents.time) == 1 + MAX_RISE


def test_an_alert_fires_once_over_a_gap_and_is_older_than_the_window_if_it_fired_before(
    answering: Callable[..., tuple[str, Asked]],
) -> None:
    def series(name: str, *minutes: int) -> dict[str, Any]:
        return {
            "metric": {"alertname": name, "severity": "critical"},
            "values": [[WEEK.start + 60 * m, "1"] for m in minutes],
        }

    url, asked = answering(success([series("a", 0, 1, 2, 16, 17, 40), series("b", -15, -1, 0), series("c", -20, -19)]))
    found = alerts(connect(url), WEEK)
    assert [
        (each.name, (each.start - WEEK.start) / 60, (each.end - WEEK.start) / 60, each.began_before) for each in found
    ] == [
        ("b", -15.0, 1.0, True),
        ("a", 0.0, 18.0, False),
        ("a", 40.0, 41.0, False),
    ]
    spans = sorted((float(form["start"]), float(form["end"])) for _, form, _ in asked)
    assert (spans[0][0], spans[-1][1]) == (WEEK.start - SAME_FIRING, WEEK.end - 1)
    assert {form["query"] for _, form, _ in asked} == {'ALERTS{alertstate="firing",alertname=~"Gpufault.+"}'}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (success([]), "does not evaluate the rules of deploy/prometheus/rules.yml"),
        ('{"status": "error", "error": "too many samples"}', "no answer of a Prometheus API"),
    ],
)
def test_a_review_without_an_answer_about_alerts_is_written_and_says_so(
    answering: Callable[..., tuple[str, Asked]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    body: str,
    told: str,
) -> None:
    url, _ = answering(body)
    (tmp_path / "j.jsonl").write_text(
        '{"kind": "heartbeat", "time": "2026-05-01T00:00:00Z", "node": "n1", "hours": 1}\n'
    )
    flags = ("--journal", str(tmp_path), "--prometheus", url)
    assert main(["report", *flags, "--format", "json"]) == 0
    assert told in json.loads(capsys.readouterr().out)["alerts"]["missing"]
    assert main(["report", *flags, "--format", "md"]) == 0
    assert re.search(r"Alerts: not known; .*" + told.split()[0], capsys.readouterr().out)


def test_an_api_that_is_not_there_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]

    assert main(["correlate", "--prometheus", f"http://127.0.0.1:{port}"]) == 3
    assert str(port) in capsys.readouterr().err


def test_an_address_without_scheme_is_told_with_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["correlate", "--prometheus", "prometheus:9090"]) == 2
    assert "http://" in capsys.readouterr().err


def write_alerts(fleet: Fleet, out: IO[str]) -> None:
    """Two pages, one of a cause that never crashed; and a ticket of a node that crashed. As `ALERTS` of an hour each."""
    crashed = int(fleet.observed.incidents.node[0])
    first = float(fleet.observed.incidents.time[0])
    spike = 'alertname="GpufaultCrashSpike",severity="critical"'
    target = f'instance="{fleet.observed.nodes[crashed]}:9873",job="gpufault"'
    out.write("# TYPE ALERTS gauge\n")
    for labels, begin in (
        (f'{spike},root_cause="unknown"', first + 600),
        (f'{spike},root_cause="never_seen"', first + 600),
        (f'alertname="GpufaultNodeStorm",severity="warning",{target}', first + 900),
    ):
        stamps = [f"{begin + 60 * minute:.3f}" for minute in range(60)]
        out.writelines(f'ALERTS{{alertstate="firing",{labels}}} 1 {stamp}\n' for stamp in stamps)
    out.write("# EOF\n")


def with_known_cause(sample: str) -> str:
    """A sample of a counter as daemons show crashes whose cause they know: of a pair that appears with the first one."""
    pair, value, time = sample.split(" ") if sample.startswith("gpufault_incidents_total") else (sample, "0", "")
    if value == "0":
        return sample
    return f"{pair} 0 {time}{pair.replace('unknown', 'known_one')} {value} {time}"


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, Path]:
    """A fleet of 200 nodes, and the data of a Prometheus that has scraped it."""
    folder = tmp_path_factory.mktemp("history")
    case = CASES["miopen_backward_weights_rocm_6_3_0"]
    fleet = simulate(replace(case, nodes=200, rate=500, facts=6, signatures=3, days=1.5, reimaged=0.5))
    written = io.StringIO()
    write_openmetrics(fleet, written)
    (folder / "history.txt").write_text("".join(map(with_known_cause, written.getvalue().splitlines(keepends=True))))
    with open(folder / "alerts.txt", "w") as file:
        write_alerts(fleet, file)
    for name in ("history.txt", "alerts.txt"):
        command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=54h", "openmetrics", name, "data"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 5m}\n")
    return fleet, folder


@contextmanager
def prometheus(folder: Path, *flags: str) -> Iterator[str]:
    """A real one over that data; its address."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
    served = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         "--storage.tsdb.retention.time=50y", f"--web.listen-address={url[7:]}", "--log.level=error", *flags]
    )  # fmt: skip

    def ready() -> bool | None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1):
                return True
        except OSError:
            return None

    try:
        eventually(ready, seconds=60)
        yield url
    finally:
        served.terminate()
        served.wait()


def span(fleet: Fleet) -> tuple[str, ...]:
    return "--start", str(fleet.window.start), "--end", str(fleet.window.end)


@pytest.mark.heavy
@needs_prometheus
def test_a_real_prometheus_shows_what_the_journals_show(
    scraped: tuple[Fleet, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, folder = scraped
    with prometheus(folder) as url:
        assert main(["correlate", "--format", "json", "--prometheus", url, *span(fleet)]) == 1
    found = json.loads(capsys.readouterr().out)
    own = correlate(fleet.observed, fleet.window)

    assert found["findings"][0]["facts"][0] == {"fact": "rocm_version", "value": "6.3.0"}
    assert found["complete"] is True
    assert (found["nodes"], found["incidents"]) == (own.nodes, own.incidents)
    assert abs(found["findings"][0]["observed"] - own.findings[0].observed) <= 2  # crashes of one scrape are one job


@pytest.mark.heavy
@needs_prometheus
def test_a_prometheus_that_may_not_look_at_so_much_gives_a_refusal_and_no_all_clear(
    scraped: tuple[Fleet, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, folder = scraped
    with prometheus(folder, "--query.max-samples=300") as url:
        assert main(["correlate", "--format", "json", "--prometheus", url, *span(fleet)]) == 3
    told = capsys.readouterr()

    assert told.out == ""
    assert "too many samples" in told.err
    assert "the query was" in told.err


def asked(url: str, expression: str, time: float) -> dict[str, float]:
    """An instant query's values by signature (empty: a sum over all)."""
    query = urllib.parse.urlencode({"query": expression, "time": time})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=60) as answer:
        found = json.load(answer)["data"]["result"]
    return {each["metric"].get("signature", ""): float(each["value"][1]) for each in found}


@pytest.mark.heavy
@needs_prometheus
def test_the_report_has_the_numbers_of_promql_and_of_the_journals(
    scraped: tuple[Fleet, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, folder = scraped
    end = fleet.window.end - SCRAPE_SECONDS  # the last scrape
    window = ("--end", str(end), "--window", "1d", "--format", "json")
    write_journals(fleet, tmp_path / "journals")
    assert main(["report", "--journal", str(tmp_path / "journals"), *window]) == 0
    of_journals = json.loads(capsys.readouterr().out)
    all_causes = "sum by (instance, signature) (gpufault_incidents_total"
    rise = f"({all_causes}) - {all_causes} offset 1d))"
    with prometheus(folder) as url:
        assert main(["report", "--prometheus", url, *window]) == 0
        found = json.loads(capsys.readouterr().out)
        by_signature = asked(url, f"sum by (signature) ({rise})", end)
        crashed = asked(url, f"count(sum by (instance) ({rise}) > 0)", end)[""]
        nodes = asked(url, "count(up)", end)[""]
        hours = asked(url, f"sum(sum_over_time(up[1d])) * {SCRAPE_SECONDS} / 3600", end)[""]

    assert found["totals"]["incidents"] == sum(by_signature.values()) > 0
    assert {each["id"]: each["incidents"] for each in found["causes"] if each["incidents"]} == by_signature
    assert (found["totals"]["nodes_crashed"], found["nodes"]) == (crashed, nodes)
    assert found["totals"]["exposure_hours"] == pytest.approx(hours, rel=0.01)
    for name in ("incidents", "nodes_crashed"):
        assert of_journals["totals"][name] == found["totals"][name]
    assert [(each["id"], each["incidents"], each["nodes"]) for each in of_journals["causes"]] == [
        (each["id"], each["incidents"], each["nodes"]) for each in found["causes"]
    ]
    assert of_journals["nodes"] == found["nodes"]


@pytest.mark.heavy
@needs_prometheus
def test_the_report_has_the_alerts_that_a_real_prometheus_fired(
    scraped: tuple[Fleet, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, folder = scraped
    end = fleet.window.end - SCRAPE_SECONDS
    window = ("--end", str(end), "--window", "35h")
    write_journals(fleet, tmp_path / "journals")

    def report(*flags: str) -> str:
        assert main(["report", *flags, *window]) == 0
        return capsys.readouterr().out

    with prometheus(folder) as url:
        both = ("--journal", str(tmp_path / "journals"), "--prometheus", url)
        found = json.loads(report(*both, "--format", "json"))
        alone = json.loads(report("--prometheus", url, "--format", "json"))["alerts"]
        rows = list(csv.DictReader(io.StringIO(report(*both, "--format", "csv", "--table", "alerts"))))
        chat, page = report(*both, "--format", "md"), report(*both)
        fired = 'count(count_over_time(ALERTS{alertstate="firing",severity="%s"}[35h]))'
        pages, tickets = (asked(url, fired % severity, end)[""] for severity in ("critical", "warning"))
        seconds = asked(url, 'sum(count_over_time(ALERTS{alertstate="firing"}[35h])) * 60', end)[""]

    jsonschema.validate(found, SCHEMA)
    told = found["alerts"]
    assert (told["missing"], told["pages"], told["tickets"]) == (None, pages, tickets) == (None, 2, 1)
    assert (told["pages_justified"], told["pages_not_justified"]) == (1, 1)
    assert sum(row["firing_seconds"] for row in told["by_alert"]) == pytest.approx(seconds, abs=3 * 300)  # its lookback
    storm = told["by_alert"][1]
    assert (storm["alert"], storm["kind"], storm["justified"], storm["not_judged"]) == (
        "GpufaultNodeStorm",
        "ticket",
        1,
        0,
    )
    assert [(row["alert"], int(row["fired"])) for row in rows] == [("GpufaultCrashSpike", 2), ("GpufaultNodeStorm", 1)]
    assert "Alerts: 2 pages (1 justified, 1 not justified), 1 ticket" in chat
    assert "2 pages (1 justified, 1 not justified), 1 ticket" in page
    # Counts have no causes: only the ticket of a node can be judged.
    assert (alone["pages"], alone["pages_justified"], alone["pages_not_justified"]) == (2, 0, 0)
    assert alone["by_alert"][1]["justified"] == 1
