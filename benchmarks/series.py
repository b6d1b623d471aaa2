"""How many series nodes have, and what many nodes cost a plain Prometheus: `python -m benchmarks.series`.

A daemon runs on the files of a node with eight GPUs of one vendor, once quiet and once with a bad week. Then a real
Prometheus scrapes that page as often as --nodes many nodes would offer it, with the shipped rules, and is asked for its
memory and CPU. What 10,000 nodes cost is extrapolated from that, by series and samples.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import shutil
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import structlog
import yaml

from exporter.config import packs
from exporter.config.node import Config
from exporter.core.facts.conclude import with_derived_facts
from exporter.daemon.daemon import Daemon
from exporter.metrics.exposition import Exposition
from exporter.node.facts import NodeFacts
from exporter.probes import Gathered, gather
from exporter.store.state import State
from tests.support.monitoring import DEPLOY, Program, free_port

ROOTS = {"AMD": "amd_mi300x", "Intel": "intel", "NVIDIA": "nvidia"}
GPUS = 8
FLEET = 10_000
INTERVAL = 15.0
BAD_WEEK = 40  # job crashes of other kinds
FIXTURES = Path(__file__).parents[1] / "tests/fixtures/roots"


def eight_gpus(root: Path) -> Gathered:
    """The facts of a machine, with its GPUs repeated until there are eight."""
    found = gather(root, timeout_seconds=30.0)
    cards = [gpu for gpu in found.gpus if gpu.facts.get("gpu_has_driver") == "true"]
    gpus = tuple(
        replace(cards[n % len(cards)], pci=f"0000:{n:02x}:00.0", serial=f"S{n}", unique_id=None) for n in range(GPUS)
    )
    known = {name: value for name, value in found.facts.items() if name != "gpu_count"}
    return Gathered(facts=with_derived_facts({**known, "gpu_count": str(GPUS)}, gpus), failed={}, gpus=gpus)


def page_of(machine: Gathered, folder: Path, crashes: int = 0) -> str:
    """/metrics of a node, after so many crashes of jobs."""
    logs = folder / "jobs"
    logs.mkdir(parents=True)
    config = Config.model_validate(
        {
            "state_dir": str(folder / "state"),
            "incidents": {"settle": "1ms", "window": "1ms"},
            "sources": [
                {"kind": "files", "paths": [f"{logs}/*.out"], "start": "beginning"},
                {"kind": "kmsg", "path": "/dev/null"},
            ],
        }
    )
    catalogue = packs.load([])
    jobs = [
        s for s in catalogue.signatures.values() if "job" in s.sources and s.examples and s.vendor in _vendors(machine)
    ]
    for number, signature in enumerate(jobs[:crashes]):
        (logs / f"slurm-{1000 + number}.out").write_text(f"{signature.examples[0].text}\n")
    state = State(config.state_dir)
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    log = structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=quiet)
    daemon = Daemon(config, catalogue, state, node="n", log=log, facts=NodeFacts(config.facts, {}, lambda: machine))
    daemon.drain()
    text = Exposition(daemon.snapshot).render(None, None).body.decode()
    daemon.finish()
    state.close()
    return text


def _vendors(machine: Gathered) -> set[str | None]:
    return {"any", *(gpu.vendor for gpu in machine.gpus)}


def series(text: str) -> Counter[str]:
    """Series by metric."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return Counter(line.partition("{")[0].partition(" ")[0] for line in lines)


@contextmanager
def scraped(text: str) -> Iterator[str]:
    """The address of a server that answers each path with the page, compressed as a daemon does."""
    body = gzip.compress(text.encode(), compresslevel=1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def prometheus_cost(text: str, nodes: int, seconds: float, folder: Path) -> dict[str, float]:
    """What Prometheus says of itself after scraping so many nodes for so long."""
    with scraped(text) as address:
        targets = [{"targets": [address], "labels": {"instance": f"node-{n:05}"}} for n in range(nodes)]
        (folder / "targets.json").write_text(json.dumps(targets))
        own = f"127.0.0.1:{free_port()}"
        interval = f"{INTERVAL:g}s"
        config = {
            "global": {"scrape_interval": interval, "evaluation_interval": "60s"},
            "rule_files": [str(DEPLOY / "prometheus/rules.yml")],
            "scrape_configs": [
                {"job_name": "gpufault", "file_sd_configs": [{"files": [str(folder / "targets.json")]}]},
                {"job_name": "prometheus", "scrape_interval": "5s", "static_configs": [{"targets": [own]}]},
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        server = Program(
            folder / "prometheus.log", "prometheus", f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={own}", "--log.level=warn",
        )  # fmt: skip
        try:
            time.sleep(seconds / 2)
            before = _cpu_seconds(server.process.pid)
            time.sleep(seconds / 2)
            spent = _cpu_seconds(server.process.pid) - before
            with urllib.request.urlopen(f"http://{own}/metrics", timeout=30) as answer:
                shown = answer.read().decode()
        finally:
            server.stop()
    value = dict(line.rsplit(" ", 1) for line in shown.splitlines() if line and not line.startswith("#"))
    return {
        "series": float(value["prometheus_tsdb_head_series"]),
        "resident": float(value["process_resident_memory_bytes"]),
        "cores": spent / (seconds / 2),
    }


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500, help="that Prometheus scrapes; 0: only count (default: 500)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of scraping (default: 120)")
    options = parser.parse_args()
    largest = ""
    print(
        f"| node with {GPUS} GPUs | series | after {BAD_WEEK} kinds of crashes | kB a scrape, gzip |\n"
        "| --- | ---: | ---: | ---: |"
    )
    for vendor, root in ROOTS.items():
        with tempfile.TemporaryDirectory() as folder:
            machine = eight_gpus(FIXTURES / root)
            quiet = page_of(machine, Path(folder, "quiet"))
            bad = page_of(machine, Path(folder, "bad"), BAD_WEEK)
        zipped = len(gzip.compress(quiet.encode(), compresslevel=1)) / 1000
        print(f"| {vendor} | {series(quiet).total()} | {series(bad).total()} | {zipped:.0f} |")
        largest = max(largest, quiet, key=lambda text: series(text).total())
    print("\nMost of them: " + ", ".join(f"{name} {count}" for name, count in series(largest).most_common(6)))
    if not options.nodes or not shutil.which("prometheus"):
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "none").mkdir()
        empty = prometheus_cost("", 1, 20.0, Path(folder, "none"))
        cost = prometheus_cost(largest, options.nodes, options.seconds, Path(folder))
    extra = (cost["resident"] - empty["resident"]) / cost["series"]
    many = series(largest).total() * FLEET
    print(
        f"\n{options.nodes} nodes, {cost['series']:,.0f} series every {INTERVAL:g} s: {cost['resident'] / 2**20:,.0f} MiB, "
        f"{cost['cores']:.2f} cores; {extra:,.0f} bytes a series.\n"
        f"{FLEET:,} nodes: {many / 1e6:.1f} million series, {many / INTERVAL / 1e3:,.0f} thousand samples a second, "
        f"{many * extra / 2**30:.0f} GiB, {cost['cores'] * FLEET / options.nodes:.0f} cores; with an interval of 60 s "
        f"{cost['cores'] * FLEET / options.nodes * INTERVAL / 60:.1f} cores."
    )


if __name__ == "__main__":
    main()
