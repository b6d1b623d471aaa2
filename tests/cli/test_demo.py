"""`gpufault demo` as one who tries it out starts and ends it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from exporter.cli.demo import message_of

DEMO = (sys.executable, "-m", "exporter.cli.main", "demo", "--web.listen-address=127.0.0.1:0")


@pytest.mark.parametrize("fleet", [["--node-only"], ["--fleet.listen-address=127.0.0.1:0"]], ids=["node", "both"])
def test_a_demo_that_ends_while_it_replays_says_nothing_of_it(fleet: list[str]) -> None:
    done = subprocess.run([*DEMO, *fleet, "--seconds=0.5"], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Replaying crash logs" in done.stdout
    assert "Counted" not in done.stdout


def test_made_up_crashes_are_not_served_to_the_network() -> None:
    done = subprocess.run(
        [*DEMO, "--fleet.listen-address=:9874"], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "loopback only" in done.stderr


@pytest.mark.heavy
def test_the_demo_shows_a_node_and_a_fleet_and_ends_at_ctrl_c() -> None:
    command = [*DEMO, "--fleet.listen-address=127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        told = ""
        while not ("Fleet page complete" in told and "Ctrl-C" in told):
            line = demo.stdout.readline()
            assert line, f"the demo ended: {demo.stderr.read()}"
            told += line
        node, fleet = re.findall(r"^(?:  |Fleet page: )(http://\S+)/ ", told, re.MULTILINE)
        page, overview = (urllib.request.urlopen(url, timeout=60).read().decode() for url in (node, fleet))
        demo.send_signal(signal.SIGINT)
        assert (demo.wait(60), demo.stderr.read()) == (0, "")
    assert "  1  network_home_cache_unwritable            hsa_aperture_violation" in told
    assert "MIOpen" in page
    for planted in ("580.95.05", "2.26.2", "n0412", "12 nodes were not seen for a day"):
        assert planted in overview


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"level": "info", "event": "listening", "addresses": ["127.0.0.1:9874"]}', "http://127.0.0.1:9874/"),
        ('{"level": "info", "event": "refreshed", "findings": 2, "seconds": 8.4}', "2 findings, computed in 8 s"),
        ('{"level": "error", "event": "refresh failed"}', "refresh failed"),
        ("gpufault: cannot listen on 127.0.0.1:9874: Address already in use", "Address already in use"),
    ],
)
def test_what_the_fleet_service_logs_is_told_in_plain_words(line: str, told: str) -> None:
    assert told in message_of(line)


def test_the_rest_of_the_log_is_not_shown() -> None:
    assert message_of('{"level": "info", "event": "web configuration applied"}') == ""
