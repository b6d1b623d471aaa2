"""A real Prometheus and a real Alertmanager on free ports of loopback, and a receiver of what is sent to people."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.conftest import Node

DEPLOY = Path(__file__).parents[2] / "deploy"
XID = "3,901,{clock},-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Program:
    """A server that was started, and is ended with `stop`."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        with log.open("ab") as said:
            self.process = subprocess.Popen(command, stdout=said, stderr=said)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


class Prometheus(Program):
    """Scrapes `targets`, by job: address to the labels that its series get."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Mapping[str, Mapping[str, str]]],
        *,
        interval: str = "1s",
        rules: Path | None = None,
        alertmanager: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """settings: more keys of each scrape job, such as basic_auth."""
        own = f"127.0.0.1:{free_port()}"
        self.url = f"http://{own}"
        jobs: list[dict[str, Any]] = [{"job_name": "prometheus", "static_configs": [{"targets": [own]}]}]
        jobs += [
            {
                "job_name": job,
                "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in of.items()],
                **(settings or {}),
            }
            for job, of in targets.items()
        ]
        config: dict[str, Any] = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "scrape_configs": jobs,
        }
        if rules:
            config["rule_files"] = [str(rules)]
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        super().__init__(
            folder / "prometheus.log",
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={own}",
            "--log.level=warn",
        )

    def ask(self, path: str, **form: str) -> dict[str, Any]:
        """The answer of its API; empty while it is not up. Raises HTTPError where it refuses what was asked."""
        data = urllib.parse.urlencode(form).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", data or None, timeout=20) as answer:
                read: dict[str, Any] = json.load(answer)
                return read
        except urllib.error.HTTPError as error:
            told = error.read().decode()
            error.close()
            if error.code == 503:
                return {}
            raise AssertionError(f"{path} {form}: {told}") from None
        except OSError:
            return {}

    def series(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query."""
        found = self.ask("query", query=expression).get("data", {}).get("result", [])
        return [(series["metric"], float(series["value"][1])) for series in found]

    def query(self, expression: str) -> list[float]:
        """The values of an instant query."""
        return [value for _, value in self.series(expression)]


class Alertmanager(Program):
    """Works by a configuration file."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        super().__init__(
            folder / "alertmanager.log",
            "prometheus-alertmanager",
            f"--config.file={config}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        )


@dataclass(frozen=True, slots=True)
class Notification:
    """What Alertmanager sent to one receiver at once."""

    receiver: str
    status: str
    alerts: tuple[Mapping[str, Any], ...]

    @property
    def names(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.alerts}


class Receiver:
    """A web server that keeps what is posted to /NAME for each name, in order."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        notifications = self.notifications

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                notifications.append(Notification(self.path.strip("/"), sent["status"], tuple(sent["alerts"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def sent_to(self, receiver: str) -> list[Notification]:
        return [notification for notification in self.notifications if notification.receiver == receiver]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def write_history(folder: Path, samples: Iterable[tuple[str, Iterable[tuple[float, float]]]]) -> None:
    """Blocks below folder/tsdb with these gauges, as if a Prometheus had seen them: a series, then (time, value)."""
    text = folder / "history.txt"
    with text.open("w") as file:
        for series, points in samples:
            file.writelines(f"{series} {value:g} {time:.3f}\n" for time, value in points)
        file.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(folder / "tsdb")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def quiet_days(names: Iterable[str], now: float) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Three days of nodes on which nothing happens, a sample each four minutes (a series is looked for up to five
    minutes back): what Prometheus would have scraped of them, and what the rules would have recorded of that.
    """
    times = [now - seconds for seconds in range(3 * 86400, 0, -240)]
    zeros = [(moment, 0.0) for moment in times]
    for name in names:
        labels = f'cluster="e2e",job="gpufault",instance="{name}"'
        yield f"up{{{labels}}}", [(moment, 1.0) for moment in times]
        pair = 'signature="hip_error_captured_event",root_cause="unknown"'
        yield f"gpufault_incidents_total{{{labels},{pair}}}", zeros
    yield 'cluster_root_cause_kind:gpufault_crashes:count1h{cluster="e2e",root_cause="any",kind="suspect"}', zeros
    yield 'cluster_root_cause:gpufault_crashes:count1d{cluster="e2e",root_cause="any"}', zeros


def hasty_rules(folder: Path) -> Path:
    """The rules that are shipped, evaluated as often as Prometheus is told to."""
    text = (DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8")
    path = folder / "rules.yml"
    path.write_text(re.sub(r"^    interval: \S+\n", "", text, flags=re.MULTILINE))
    shipped, hasty = (yaml.safe_load(t)["groups"] for t in (text, path.read_text()))
    assert [group["rules"] for group in hasty] == [group["rules"] for group in shipped]
    return path


def node_at(folder: Path, **sections: Any) -> Node:
    """A node called as its folder, whose kernel's log is a file there."""
    folder.mkdir()
    (folder / "kmsg").touch()
    sources = [{"kind": "files", "paths": [f"{folder}/jobs/*.log"]}, {"kind": "kmsg", "path": str(folder / "kmsg")}]
    return Node(folder, sources, node=folder.name, **sections)


def fall_off_the_bus(node: Node) -> None:
    """Let the kernel of a node report that a GPU is gone."""
    clock = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 1000
    with (node.folder / "kmsg").open("a") as kernel:
        kernel.write(XID.format(clock=clock))
