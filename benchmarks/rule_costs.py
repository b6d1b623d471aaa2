"""How long a real Prometheus takes for each group of the shipped rules, and how much memory.

`python benchmarks/rule_costs.py [--nodes 2000] [--zeros 340] [--minutes 6]`

A server on loopback plays the daemons of so many nodes, each with the families that the rules read and so many pairs of
signature and root cause that never occurred. A day of what the rules remember is written into Prometheus' store before, in
blocks of 18 hours, to which Prometheus compacts: each block that a range touches costs as much again for each series.
On a machine that does other work, look at the median. Needs prometheus and promtool.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
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
PORT = 39873
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
        for source in ("files", "kmsg", "journald"):
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


def remembered(nodes: int) -> Iterator[str]:
    """A day of what gpufault-memory records each quarter of an hour, as OpenMetrics."""
    times = [STARTED - seconds for seconds in range(86400, 600, -900)]
    for node in range(nodes):
        target = f'job="gpufault",instance="n{node}"'
        for pair in range(PAIRS):
            labels = f'{target},signature="s{pair}",root_cause="c{pair}",verdict="unclear",source="job"'
            yield from (f"instance_incident:gpufault_incidents:quarter{{{labels}}} 3 {at:.0f}\n" for at in times)
        yield from (f"instance:gpufault_seen:quarter{{{target}}} {at:.0f} {at:.0f}\n" for at in times)
    yield "# EOF\n"


def measure(nodes: int, zeros: int, minutes: int, folder: Path) -> Iterator[str]:
    history = folder / "history.txt"
    with history.open("w") as file:
        file.writelines(remembered(nodes))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", f"--max-block-duration={BLOCK}", "openmetrics", "-q", str(history),
         str(folder / "data")],
        check=True,
    )  # fmt: skip
    history.unlink()
    targets = [
        {"targets": [f"127.0.0.1:{PORT}"], "labels": {"instance": f"n{n}", "__metrics_path__": f"/{n}/{zeros}"}}
        for n in range(nodes)
    ]
    (folder / "targets.json").write_text(json.dumps(targets))
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1m, scrape_timeout: 30s, evaluation_interval: 1m}\n"
        f"rule_files: [{RULES}]\n"
        f"scrape_configs: [{{job_name: gpufault, file_sd_configs: [{{files: [{folder}/targets.json]}}]}}]\n"
    )
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Daemons)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{PORT + 1}"
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address={address}", "--log.level=error"]
    )  # fmt: skip
    try:
        seconds: dict[str, list[float]] = defaultdict(list)
        for _ in range(minutes):
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
        prometheus.terminate()
        prometheus.wait(timeout=60)
        server.shutdown()
        server.server_close()
    yield f"{up} of {nodes} nodes answered; series: {float(series[1]) if series else 0:,.0f}; "
    yield f"memory: {float(memory[1]) / 2**30 if memory else 0:.1f} GiB; failed evaluations: {failed:.0f}\n\n"
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
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print("".join(measure(asked.nodes, asked.zeros, asked.minutes, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
