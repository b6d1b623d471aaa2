"""`gpufault demo`: the node daemon on replayed crashes and the fleet service on a simulated fleet, both on loopback."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from exporter.cli import options as flags

DESCRIPTION = (
    "Runs the node daemon on replayed crash logs, and the fleet service on a simulated fleet of 2,000 nodes over six weeks. "
    "Both serve their pages on loopback and keep their files in a temporary folder. No GPU, no root, no network."
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SETTLE_SECONDS = 3.0
LINE_SECONDS = 0.02
EXPLAINED = "slurm-48213.out:12"  # a line whose explanation is worth reading
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

    from exporter.config import packs
    from exporter.config.node import Config, FactsConfig, FilesConfig, IncidentsConfig, KmsgConfig
    from exporter.daemon.daemon import Daemon
    from exporter.daemon.service import Service
    from exporter.process.own_log import start_logging
    from exporter.store.state import State
    from exporter.web.readers import Readers
    from exporter.web.routes import router
    from exporter.web.serving import serve

    for address in (options.web_listen_address, options.fleet_listen_address):
        if address.rpartition(":")[0] not in LOOPBACK:
            raise flags.UsageError("made-up crashes are served on loopback only; give 127.0.0.1:PORT")
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
    _show(url, jobs, stopped)


def _show(url: str, jobs: Path, stopped: threading.Event) -> None:
    """Wait until the counters stop changing, then print those above 0."""
    import urllib.request

    seen = ""
    deadline = time.monotonic() + 45
    while time.monotonic() < deadline:
        if stopped.wait(SETTLE_SECONDS + 2):
            return
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 (our own server)
            lines = answer.read().decode().splitlines()
        now = "\n".join(f"  {count:.0f}  {label}" for label, count in _counted(lines))
        if now and now == seen:
            break
        seen = now
    print("Counted on the node (each incident once, whatever the number of lines and ranks):\n")
    print(seen)
    log = shlex.quote(f"{jobs}/{EXPLAINED}")
    print(
        "\nslurm-48290.out only quotes errors (git grep, a header, a test's name), so it is not counted."
        "\nNext: open the pages, or see in another terminal why a line counts:"
        f"\n\n  {shlex.quote(_own_command())} explain {log}"
        "\n\nCtrl-C ends the demo and removes its files.",
        flush=True,
    )


def _own_command() -> str:
    """The command as it can be typed: by its name, or by its path beside this Python."""
    script = Path(sys.executable).with_name("gpufault")
    named = shutil.which("gpufault")
    is_named = named is not None and os.path.realpath(named) == os.path.realpath(script)
    return "gpufault" if is_named or not script.exists() else str(script)


def _counted(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Root causes and consequences with their counts, from lines of /metrics."""
    for line in lines:
        if sample := _SAMPLE.match(line):
            cause, signature, count = sample[1], sample[2], float(sample[3])
            if count:
                yield (
                    (f"{cause:<40} {signature}" if cause else f"{'consequence of one of them':<40} {signature}"),
                    count,
                )


COMMAND = (sys.executable, "-m", "exporter.cli.main")
END_SECONDS = 10.0  # from SIGTERM to SIGKILL
SHOWN = """
Fleet page: {url}/   (2,000 simulated nodes, six weeks; it fills within some seconds)
  What was planted: a driver rollout that breaks NVLinks, a library version that makes collectives hang,
  a bad node (n0412), 12 nodes that went silent."""
COMPLETE = "Fleet page complete: {findings} findings, computed in {seconds:.0f} s."


class FleetDemo:
    """Simulates the fleet and serves its pages in the background, until `close`."""

    def __init__(self, folder: Path, address: str, prepare: str) -> None:
        """prepare: a shell command that runs first; empty: none."""
        self._folder, self._address, self._prepare = folder, address, shlex.split(prepare)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the running child process."""
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(END_SECONDS)
            child.kill()
        self._thread.join()

    def _run(self) -> None:
        if self._prepare and not self._succeeds(self._prepare):
            return
        journals = str(self._folder / "journals")
        if not self._succeeds((*COMMAND, "simulate", "--case=review", f"--end={time.time():.0f}", journals)):
            return
        arguments = (
            f"--journal={journals}",
            "--window=7d",
            f"--web.listen-address={self._address}",
            "--log.format=json",
        )
        for line in self._lines((*COMMAND, "fleet", *arguments)):
            if message := message_of(line):
                print(message, flush=True)

    def _succeeds(self, command: Sequence[str]) -> bool:
        """Run a command; if it fails, print what it printed."""
        output = list(self._lines(command))
        child = self._child
        if child is None or self._closed:
            return False
        if child.returncode:
            print("\n".join([*output, "gpufault demo: no fleet page"]), file=sys.stderr, flush=True)
        return not child.returncode

    def _lines(self, command: Sequence[str]) -> Iterator[str]:
        """The lines that a command prints, until it ends."""
        with self._lock:
            if self._closed:
                return
            # In a session of its own, so that only this process decides about Ctrl-C.
            child = self._child = subprocess.Popen(  # noqa: S603 (our own commands, and the caller's)
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="backslashreplace", start_new_session=True,
            )  # fmt: skip
        assert child.stdout is not None
        with child.stdout:
            yield from (line.rstrip("\n") for line in child.stdout)
        child.wait()


def message_of(line: str) -> str:
    """What a line of the fleet service's log says to somebody who tries the demo; empty: nothing."""
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if event.get("event") == "listening":
        return SHOWN.format(url=f"http://{event['addresses'][0]}")
    if event.get("event") == "refreshed":
        return COMPLETE.format(findings=event["findings"], seconds=event["seconds"])
    return "" if event.get("level") in ("info", "debug") else line
