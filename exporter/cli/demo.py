"""`gpufault demo`: the real daemon on loopback, with crashes replayed from bundled logs. No GPU, no root, no network."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from exporter.cli import options as flags

DESCRIPTION = "Runs the real daemon in a temporary folder, replays bundled crash logs into it and says what to look at."
SETTLE_SECONDS = 3.0
LINE_SECONDS = 0.02
# The replayed logs are those of a fleet; what one node can only have once (its home's file system) is given here.
FACTS = {"home_fs_type": "nfs4", "home_cache_writable": "false", "rack": "demo"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        "--web.listen-address",
        default="127.0.0.1:9873",
        metavar="HOST:PORT",
        help="loopback only; default: 127.0.0.1:9873",
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="N", help="stop after N seconds; default: at Ctrl-C"
    )


def run(options: argparse.Namespace) -> int:
    import tempfile

    from exporter.cli.own_log import start_logging
    from exporter.config import packs
    from exporter.config.node import Config, FactsConfig, FilesConfig, IncidentsConfig, KmsgConfig
    from exporter.daemon.daemon import Daemon
    from exporter.daemon.service import Service
    from exporter.store.state import State
    from exporter.web.routes import router
    from exporter.web.serving import serve

    host = options.web_listen_address.rpartition(":")[0]
    if host not in ("127.0.0.1", "localhost", "[::1]"):
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
        server = serve([options.web_listen_address], router(service, "/metrics"))
        url = f"http://{server.addresses[0]}"
        print(_WELCOME.format(url=url, folder=folder), flush=True)
        stopped = threading.Event()
        replay = threading.Thread(target=_replay, args=(jobs, kernel, url, stopped), name="replay", daemon=True)
        replay.start()
        if options.seconds:
            threading.Timer(options.seconds, service.stop).start()
        service.run()
        stopped.set()
        replay.join()  # it writes into the folder, and asks the server
        server.close(timeout=5.0)
        state.close()
    return 0


_WELCOME = """gpufault demo: made-up crashes, real daemon. Logs are in {folder}

  {url}/          what this node sees, and its last incidents
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
        now = "\n".join(
            f"  {line}"
            for line in lines
            if line.startswith(("gpufault_incidents_total{", "gpufault_cascades_total{")) and not line.endswith(" 0.0")
        )
        if now and now == seen:
            break
        seen = now
    print("Counted so far (each incident once, whatever the number of lines and ranks):\n")
    print(seen)
    print(
        "\nslurm-48290.out only quotes errors (git grep, a header, a test's name): it counts for nothing."
        "\nNext: open the page above; `gpufault explain` shows why a line counts; Ctrl-C ends the demo.",
        flush=True,
    )
