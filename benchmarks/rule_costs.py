"""How long a real Prometheus takes for each group of the shipped rules, and how much memory.

`python benchmarks/rule_costs.py [--nodes 2000] [--zeros 340] [--minutes 6] [--outage] [--rules FILE]`

A server on loopback plays the daemons of so many nodes, each with the families that the rules read and so many pairs of
signature and root cause that never occurred. A day of what the rules remember is written into Prometheus' store before, in
blocks of 18 hours, to which Prometheus compacts: each block that a range touches costs as much again for each series.
With --outage, Prometheus is just back after two hours, and the rules have to read their memory.
All groups are evaluated once a minute, so that each has as many measurements. On a machine that does other work, look at
the median, and compare two files of rules at the same time. Needs prometheus and promtool.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RULES = Path(__file__).resolve().parent.parent / "deploy/prometheus/rules.yml"
PAIRS, FACTS, CAUSES = 10, 30, 40
SOURCES = ("files", "kmsg", "journald")
SLOWEST = 8
BLOCK = "18h"


def exposition(node: int, zeros: int) -> str:
    """What one daemon shows: ten pairs occurred; one node in 50 has a crash of this hour, one in 100 an open fault."""

    def lines() -> Iterator[str]:
        yield 'gpufault_build_info{version="1"} 1'
        yield 'gpufault_node_info{driver_version="550",gpu_model="m"} 1'
        for pair in range(PAIRS):
            labels = f'signature="s{pair}",root_cause="c{pair}"'
            now = 3 + (node % 50 == 0 and pair == 0 and time.time() > STARTED + 180)
            yield f'gpufault_incident_verdicts_total{{{labels},verdict="unclear",source="job"}} {now:d}'
            severity = "critical" if pair == 1 else "error"
            yield f'gpufault_signature_info{{signature="s{pair}",severity="{severity}"}} 1'
        for pair in range(zeros):
            yield f'gpufault_incidents_total{{signature="z{pair}",root_cause="unknown"}} 0'
        for fact in range(FACTS):
            yield f'gpufault_node_fact{{fact="fact_{fact}",value="v{node % 3}"}} 1'
        yield f'gpufault_node_fact{{fact="rack",value="r{node // 32}"}} 1'
        yield f'gpufault_node_fact{{fact="driver_version",value="{550 + node % 2}"}} 1'
        for cause in range(CAUSES):
            yield f'gpufault_exposure{{root_cause="c{cause}"}} 0'
        for source in SOURCES:
            yield f'gpufault_source_up{{source="{source}"}} 1'
            yield f'gpufault_source_lag_seconds{{source="{source}"}} 0'
            for reason in ("unreadable", "gone_unread", "binary"):
                yield f'gpufault_source_dropped_total{{source="{source}",reason="{reason}"}} 1'
            yield f'gpufault_unmatched_error_lines_total{{source="{source}"}} 7'
        yield f"gpufault_last_commit_timestamp_seconds {time.time():.0f}"
        yield f"process_start_time_seconds {STARTED:.0f}"
        yield "gpufault_state_up 1"
        yield "gpufault_journal_up 1"
        yield "gpufault_config_last_reload_successful 1"
        if node % 50 == 0:
            yield f'gpufault_job_incidents{{job="{node}",user="u{node % 40}",signature="s0",root_cause="c0"}} 1'
        if node % 100 == 0:
            yield 'gpufault_node_fault{gpu="0000:3b:00.0",root_cause="c1",action="reset_gpu"} 1'

    return "\n".join(lines()) + "\n"


STARTED = time.time()


class Daemons(BaseHTTPRequestHandler):
    """/NODE/ZEROS is the metrics of a node."""

    def do_GET(self) -> None:
        _, node, zeros = self.path.split("?")[0].split("/")
        body = exposition(int(node), int(zeros)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # Prometheus waits no longer
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


def remembered(nodes: int, *, outage: bool) -> Iterator[str]:
    """What the rules have recorded within a day, as OpenMetrics; with an outage, until two hours ago."""
    last = STARTED - (7200 if outage else 600)
    quarters = [at for at in (STARTED - seconds for seconds in range(90000, 600, -900)) if at < last]
    fives = [at for at in (STARTED - seconds for seconds in range(90000, 600, -300)) if at < last]
    hour_ago = [] if outage else [STARTED - seconds for seconds in range(4000, 1800, -60)]
    for node in range(nodes):
        target = f'job="gpufault",instance="n{node}"'
        for pair in range(PAIRS):
            labels = f'{target},signature="s{pair}",root_cause="c{pair}",verdict="unclear",source="job"'
            yield from (f"instance_incident:gpufault_incidents:quarter{{{labels}}} 3 {at:.0f}\n" for at in quarters)
            yield from (f"instance_incident:gpufault_incidents:total{{{labels}}} 3 {at:.0f}\n" for at in hour_ago)
        yield from (f"instance:gpufault_seen:quarter{{{target}}} {at:.0f} {at:.0f}\n" for at in quarters)
        yield from (f"instance:gpufault_seen:timestamp{{{target}}} {at:.0f} {at:.0f}\n" for at in hour_ago)
        for source in SOURCES:
            labels = f'{target},source="{source}"'
            yield from (f"instance_source:gpufault_unread:total{{{labels}}} 2 {at:.0f}\n" for at in fives)
    yield "# EOF\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def measure(asked: argparse.Namespace, folder: Path) -> Iterator[str]:
    nodes = asked.nodes
    history = folder / "history.txt"
    with history.open("w") as file:
        file.writelines(remembered(nodes, outage=asked.outage))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", f"--max-block-duration={BLOCK}", "openmetrics", "-q", str(history),
         str(folder / "data")],
        check=True,
    )  # fmt: skip
    history.unlink()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Daemons)
    targets = [
        {
            "targets": [f"127.0.0.1:{server.server_port}"],
            "labels": {"instance": f"n{n}", "__metrics_path__": f"/{n}/{asked.zeros}"},
        }
        for n in range(nodes)
    ]
    (folder / "targets.json").write_text(json.dumps(targets))
    rules = re.sub(
        r"^    interval: \S+$", "    interval: 1m", asked.rules.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    (folder / "rules.yml").write_text(rules, encoding="utf-8")
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1m, scrape_timeout: 30s, evaluation_interval: 1m}\n"
        f"rule_files: [{folder}/rules.yml]\n"
        f"scrape_configs: [{{job_name: gpufault, file_sd_configs: [{{files: [{folder}/targets.json]}}]}}]\n"
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{free_port()}"
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address={address}", "--log.level=error"]
    )  # fmt: skip
    try:
        seconds: dict[str, list[float]] = defaultdict(list)
        for _ in range(asked.minutes):
            time.sleep(60)
            for group in ask(address, "/api/v1/rules")["data"]["groups"]:
                seconds[group["name"]].append(group["evaluationTime"])
                for rule in group["rules"]:
                    seconds[f"{group['name']}: {rule['name']}"].append(rule["evaluationTime"])
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            shown = answer.read().decode()
        failed = sum(
            float(value) for value in re.findall(r"prometheus_rule_evaluation_failures_total\{.*\} (\S+)", shown)
        )
        series = re.search(r"^prometheus_tsdb_head_series (\S+)", shown, re.MULTILINE)
        memory = re.search(r"^process_resident_memory_bytes (\S+)", shown, re.MULTILINE)
        up = ask(address, "/api/v1/query?query=count(up==1)")["data"]["result"][0]["value"][1]
    finally:
        prometheus.kill()  # nothing of it is kept
        prometheus.wait(timeout=60)
        server.shutdown()
        server.server_close()
    yield f"{up} of {nodes} nodes answered; series: {float(series[1]) if series else 0:,.0f}; "
    yield f"memory: {float(memory[1]) / 2**30 if memory else 0:.1f} GiB; failed evaluations: {failed:.0f}; "
    yield f"load: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores\n\n"
    yield "| group or rule | seconds, median | at most |\n|---|---|---|\n"
    slowest = sorted((name for name in seconds if ":" in name), key=lambda name: -statistics.median(seconds[name]))
    shown_names = sorted(name for name in seconds if ":" not in name) + slowest[:SLOWEST]
    yield from (
        f"| {name} | {statistics.median(seconds[name]):.2f} | {max(seconds[name]):.2f} |\n" for name in shown_names
    )


def ask(address: str, path: str) -> Any:
    """The answer of Prometheus' API."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        return json.load(answer)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--zeros", type=int, default=340, help="pairs of a node that never occurred (default: 340)")
    parser.add_argument("--minutes", type=int, default=6)
    parser.add_argument("--outage", action="store_true", help="Prometheus was down for the two hours before")
    parser.add_argument("--rules", type=Path, default=RULES, help="default: deploy/prometheus/rules.yml")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print("".join(measure(asked, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
