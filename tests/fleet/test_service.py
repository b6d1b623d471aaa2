"""`gpufault fleet` as a process: what it answers before, after and between its refreshes, and when one fails."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.cli.main import main
from tests.fleet.running import Fleet

pytestmark = pytest.mark.heavy  # each refresh is a process that reads, counts and ends: seconds


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "journal"
    case = ("--case", "miopen_backward_weights_rocm_6_3_0", "--nodes", "1500", "--rate", "20")
    assert main(["simulate", str(folder), "--window", "14d", *case]) == 0
    return folder


def test_it_answers_what_correlate_says(
    fleet: Callable[..., Fleet], journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = fleet("--journal", str(journal))
    service.reaches("refreshes_total", 1)
    main(["correlate", "--journal", str(journal), "--format", "json"])
    own = json.loads(capsys.readouterr().out)
    found = service.json("correlation")

    assert {key: found[key] for key in own} == own
    assert found["age_seconds"] >= 0
    assert found["last_failure"] is None
    assert service.json("findings")["findings"] == own["findings"]
    assert service.json("exposed")["exposed"] == own["exposed"]
    assert service.json("lemons")["lemons"] == own["lemons"]
    labels = 'fact="rocm_version",signature="miopen_slow_convolution",status="confirmed",value="6.3.0"'
    assert service.metric(f"finding_rate_ratio{{{labels}}}") == own["findings"][0]["rate_ratio"]
    assert service.metric("complete") == 1
    assert service.ask("/-/ready")[0] == 200
    assert "rocm_version 6.3.0" in service.ask("/")[1]
    status, text, headers = service.ask("/static/fleet.css")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/css")
    assert "style-src 'self'" in service.ask("/")[2]["content-security-policy"]
    assert ".chart" in text


def test_who_has_the_answer_already_is_told_so(fleet: Callable[..., Fleet], journal: Path) -> None:
    service = fleet("--journal", str(journal))
    service.reaches("refreshes_total", 1)
    status, _, headers = service.ask("/api/v1/findings")

    assert (status, headers["cache-control"]) == (200, "private, no-cache")
    assert service.ask("/api/v1/findings", **{"If-None-Match": headers["etag"]})[:2] == (304, "")
    assert service.ask("/api/v1/findings", **{"If-Modified-Since": headers["last-modified"]})[0] == 304
    assert service.ask("/api/v1/findings", **{"If-None-Match": 'W/"other"'})[0] == 200


def test_without_a_result_it_is_alive_and_not_ready_and_says_why(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    service = fleet("--journal", str(tmp_path / "nowhere"))
    service.reaches('refresh_failures_total{reason="source"}', 1)
    status, told, _ = service.ask("/-/ready")

    assert service.ask("/-/healthy")[0] == 200
    assert status == 503
    assert f"{tmp_path}/nowhere: no such folder" in told
    assert service.ask("/api/v1/correlation")[0] == 503
    assert service.json("correlation")["last_failure"]["reason"] == "source"
    assert service.metric("result_age_seconds") is None
    assert "no such folder" in service.ask("/")[1]


def test_a_refresh_that_fails_leaves_the_last_result_and_is_told(
    fleet: Callable[..., Fleet], journal: Path, tmp_path: Path
) -> None:
    gathered = tmp_path / "gathered"
    gathered.symlink_to(journal)
    service = fleet("--journal", str(gathered))
    service.reaches("refreshes_total", 1)
    before, tag = service.json("findings"), service.ask("/api/v1/findings")[2]["etag"]
    gathered.unlink()
    status, told, _ = service.ask("/-/reload", "POST")  # anybody could end each refresh
    assert (status, "SIGHUP" in told) == (403, True)
    service.process.send_signal(signal.SIGHUP)
    service.reaches('refresh_failures_total{reason="source"}', 1)
    now = service.json("findings")

    assert now["findings"] == before["findings"]
    assert now["refreshed"] == before["refreshed"]
    assert now["last_failure"]["reason"] == "source"
    assert service.ask("/api/v1/findings")[2]["etag"] != tag
    assert service.metric("last_refresh_successful") == 0
    assert service.ask("/-/ready")[0] == 200  # it answers; that it grows old is told by its age
    assert "The last refresh failed" in service.ask("/")[1]

    gathered.symlink_to(journal)
    service.process.send_signal(signal.SIGHUP)
    service.reaches("last_refresh_successful", 1)
    assert service.json("findings")["last_failure"] is None


def test_while_a_refresh_works_or_hangs_everything_is_answered(fleet: Callable[..., Fleet], journal: Path) -> None:
    service = fleet("--journal", str(journal))
    refresh = service.child()
    os.kill(refresh, signal.SIGSTOP)

    service.reaches("refresh_running", 1)
    assert service.ask("/-/healthy")[0] == 200
    assert service.ask("/-/ready")[0] == 503
    assert service.ask("/")[0] == 200
    os.kill(refresh, signal.SIGKILL)
    service.reaches('refresh_failures_total{reason="killed"}', 1)
    assert "SIGKILL; most likely memory was short" in service.ask("/-/ready")[1]


def test_a_refresh_that_takes_too_long_is_ended(fleet: Callable[..., Fleet], journal: Path) -> None:
    service = fleet("--journal", str(journal), "--refresh.timeout=1s")
    os.kill(service.child(), signal.SIGSTOP)
    service.reaches('refresh_failures_total{reason="timeout"}', 1)

    assert "refresh.timeout" in service.ask("/-/ready")[1]


def test_sigterm_ends_the_refresh_with_the_service(fleet: Callable[..., Fleet], journal: Path) -> None:
    service = fleet("--journal", str(journal))
    refresh = service.child()
    service.process.terminate()

    assert service.process.wait(timeout=30) == 0
    assert not Path(f"/proc/{refresh}").exists()


def test_findings_are_confirmed_over_a_restart(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    case = ["--case", "miopen_backward_weights_rocm_6_3_0", "--nodes", "1500", "--rate", "20"]
    assert main(["simulate", str(tmp_path / "all"), "--window", "14d", *case]) == 0
    week = tmp_path / "week"
    week.mkdir()
    for path in (tmp_path / "all").iterdir():
        kept = [
            line for line in path.read_text().splitlines() if json.loads(line)["time"] <= "2026-06-08T00:00:00.000Z"
        ]
        (week / path.name).write_text("\n".join(kept) + "\n")
    store = f"--findings.file={tmp_path}/kept/findings.json"
    first = fleet("--journal", str(week), store)
    first.reaches('findings{status="candidate"}', 1)
    first.process.terminate()
    first.process.wait(timeout=30)
    for path in (tmp_path / "all").iterdir():
        path.replace(week / path.name)

    fleet("--journal", str(week), store).reaches('findings{status="confirmed"}', 1)


def test_a_configuration_that_is_wrong_stays_out_of_force_and_is_told(
    fleet: Callable[..., Fleet], journal: Path, tmp_path: Path
) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text(f"journal: {journal}\nwindow: 10d\n")
    service = fleet("--config.file", str(config))
    service.reaches("refreshes_total", 1)
    config.write_text(f"journal: {journal}\nwindow: soon\nrefresh: {{intervall: 1h}}\n")
    service.process.send_signal(signal.SIGHUP)
    service.reaches("config_last_reload_successful", 0)
    told = service.log.read_text()

    assert f"{config}:2:1: window: invalid duration 'soon'" in told
    assert f"{config}:3:11: refresh.intervall: no such key here" in told
    assert service.metric("config_last_reload_successful") == 0
    assert service.metric("complete") == 1
    assert service.ask("/-/ready")[0] == 503
