"""`gpufault demo`: the node daemon on replayed crashes and the fleet service on a simulated fleet, both on loopback."""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from exporter.cli import options as flags

DESCRIPTION = (
    "Runs the node daemon on replayed crash logs, and the fleet service on a simulated fleet of 2,000 nodes over six weeks. "
    "Both serve their pages on loopback and keep their files in a temporary folder. No GPU, no root, no network."
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SETTLE_SECONDS = 3.0
LINE_SECONDS = 0.02
# The replayed logs are those of a fleet; what one node can only have once (its home's file system) is given here.
FACTS = {"home_fs_type": "nfs4", "home_cache_writable": "false", "rack": "demo"}

_SAMPLE = re.compile(
    r'gpufault_(?:incidents|cascades)_total\{(?:root_cause="(\w+)",)?signature="(\w+)"\} (\d+(?:\.\d+)?)$', re.ASCII
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        "--web.listen-address",
        default="127.0.0.1:9873",
        metavar="HOST:PORT",
        help="page of the node; loopback only; default: 127.0.0.1:9873",
    )
    flags.add(
        parser,
        "--fleet.listen-address",
        default="127.0.0.1:9874",
        metavar="HOST:PORT",
        help="page of the fleet; loopback only; default: 127.0.0.1:9874",
    )
    parser.add_argument("--node-only", action="store_true", help="no fleet page")
    parser.add_argument(
        "--fleet.prepare", dest="fleet_prepare", default="", metavar="COMMAND",
        help="run this before the fleet page, for example to install what it needs",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="N", help="stop after N seconds; default: at Ctrl-C"
    )


def run(options: argparse.Namespace) -> int:
    import tempfile

    from exporter.cli.demo_fleet import FleetDemo
    from exporter.cli.own_log import start_logging
    from exporter.config import packs
    from exporter.config.node import Config, FactsConfig, FilesConfig, IncidentsConfig, KmsgConfig
    from exporter.daemon.daemon import Daemon
    from exporter.daemon.service import Service
    from exporter.store.state import State
    from exporter.web.readers import Readers
    from exporter.web.routes import router
    from exporter.web.serving import serve

    for address in (options.web_listen_address, options.fleet_listen_address):
        if address.rpartition(":")[0] not in LOOPBACK:
            print("gpufault demo: made-up crashes are served on loopback only; give 127.0.0.1:PORT", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory(prefix="gpufault-demo-") as folder:
        root = Path(folder)
        jobs = root / "jobs"
        jobs.mkdir()
        kernel = root / "kmsg"
        kernel.touch()
        config = Config(
            node="demo",
            state_dir=root / "state",
            sources=[
                FilesConfig(kind="files", paths=[f"{jobs}/*.out"]),
                KmsgConfig(kind="kmsg", mode="file", path=str(kernel)),
            ],
            incidents=IncidentsConfig.model_validate({"settle": f"{SETTLE_SECONDS}s"}),
            facts=FactsConfig(extra=FACTS),
        )
        catalogue = packs.load()
        state = State(config.state_dir)
        daemon = Daemon(config, catalogue, state, node="demo", log=start_logging("warning", "logfmt"))
        service = Service(daemon, lambda: (config, catalogue))
        server = serve([options.web_listen_address], router(service, "/metrics", Readers(everyone=True)))
        url = f"http://{server.addresses[0]}"
        print(_WELCOME.format(url=url, folder=folder), flush=True)
        fleet = None
        if not options.node_only:
            print("Simulating a fleet of 2,000 nodes; its page follows …", flush=True)
            fleet = FleetDemo(root, options.fleet_listen_address, options.fleet_prepare)
        stopped = threading.Event()
        replay = threading.Thread(target=_replay, args=(jobs, kernel, url, stopped), name="replay", daemon=True)
        replay.start()
        if options.seconds:
            threading.Timer(options.seconds, service.stop).start()
        service.run()
        stopped.set()
        if fleet is not None:
            fleet.close()
        replay.join()  # it writes into the folder, and asks the server
        server.close(timeout=5.0)
        state.close()
    return 0


_WELCOME = """gpufault demo: made-up crashes, real programs. Files are in {folder}

  {url}/          the node's page: its latest incidents and what caused them
  {url}/metrics   what Prometheus scrapes

Replaying crash logs; each is counted {settle} after its first line …
""".replace("{settle}", f"{SETTLE_SECONDS:.0f} s")


def _replay(jobs: Path, kernel: Path, url: str, stopped: threading.Event) -> None:
    """Write each bundled log line by line, then print the counters."""
    from importlib.resources import files

    bundled = sorted((f for f in (files("exporter.demo") / "logs").iterdir()), key=lambda f: f.name)
    for log in bundled:
        if log.name.endswith(".out"):
            with open(jobs / log.name, "a", buffering=1, encoding="utf-8") as target:
                for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
                    target.write(line)
                    if stopped.wait(LINE_SECONDS):
                        return
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    with open(kernel, "a", encoding="utf-8") as target:
        records = (files("exporter.demo") / "logs" / "kernel.kmsg").read_text(encoding="utf-8")
        for line in records.splitlines():
            head, text = line.split(";", 1)
            pri, seq, us, flags_ = head.split(",", 3)
            target.write(f"{pri},{seq},{int((now - 60) * 1e6) + int(us)},{flags_};{text}\n")
    _show(url, stopped)


def _show(url: str, stopped: threading.Event) -> None:
    """Wait until the counters stop changing, then print those above 0."""
    import urllib.request

    seen = ""
    deadline = time.monotonic() + 45
    while time.monotonic() < deadline:
        if stopped.wait(SETTLE_SECONDS + 2):
            return
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 (our own server)
            lines = answer.read().decode().splitlines()
        now = "\n".join(f"  {count:.0f}  {what}" for what, count in _counted(lines))
        if now and now == seen:
            break
        seen = now
    print("Counted on the node (each incident once, whatever the number of lines and ranks):\n")
    print(seen)
    print(
        "\nslurm-48290.out only quotes errors (git grep, a header, a test's name), so it is not counted."
        "\nNext: open the pages; `gpufault explain` shows why a line counts; Ctrl-C ends the demo.",
        flush=True,
    )


def _counted(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Root causes and consequences with their counts, from lines of /metrics."""
    for line in lines:
        if found := _SAMPLE.match(line):
            cause, signature, count = found[1], found[2], float(found[3])
            if count:
                yield (
                    (f"{cause:<40} {signature}" if cause else f"{'consequence of one of them':<40} {signature}"),
                    count,
                )
