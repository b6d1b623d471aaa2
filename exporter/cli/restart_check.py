"""`gpufault restart-check`: whether a job that crashed is worth a restart, for scripts that requeue jobs."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from exporter.cli import daemon_client
from exporter.cli import options as flags
from exporter.core.model import UNKNOWN
from exporter.core.text.phrases import printable

if TYPE_CHECKING:
    from exporter.core.diagnosis.record_schema import IncidentRecord
    from exporter.core.diagnosis.restarts import RestartAdvice

CODES = {"as_is": 0, "unknown": 3, "elsewhere": 4, "after_change": 5, "never": 6}
DESCRIPTION = (
    "Says whether a job that crashed is worth a restart, by the causes of its incidents. Exit code 0: as it is; 4: on other "
    "nodes than those that --format=avoid names; 5: after a change; 6: not at all, it was cancelled; 3: not known. "
    "It restarts nothing. A node's daemon knows the incidents of its node, a fleet service those of all nodes of the job."
)
URL = "http://127.0.0.1:9873"
TIMEOUT_SECONDS = 10.0
POLL_SECONDS, SETTLE_SECONDS = 1.0, 5.0  # between two looks; from the first incident on
MAX_INCIDENTS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", required=True, metavar="ID", help="the job, as the scheduler names it")
    parser.add_argument(
        "--since",
        default="1h",
        metavar="TIME",
        help="ignore earlier incidents: 6h (so long ago), RFC 3339 or Unix seconds",
    )
    parser.add_argument(
        "--wait",
        default=None,
        metavar="30s",
        help="how long to wait for the first incident; the daemon needs some 15 s",
    )
    parser.add_argument(
        "--format",
        default="text",
        choices=("text", "json", "avoid"),
        help="avoid: the nodes to avoid, with commas between",
    )
    flags.add(
        parser, "--url", default=URL, metavar="URL", help="a node daemon or a fleet service; default: %(default)s"
    )
    daemon_client.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from exporter.core.diagnosis.restarts import restart_advice

    start = flags.since("--since", options.since, time.time())
    give_up = time.monotonic() + (flags.seconds("--wait", options.wait) if options.wait else 0)
    incidents = _incidents(options, start or 0.0)
    while not incidents and time.monotonic() < give_up:
        time.sleep(POLL_SECONDS)
        incidents = _incidents(options, start or 0.0)
        if incidents:  # others of the same crash are decided by then
            time.sleep(min(SETTLE_SECONDS, max(0.0, give_up - time.monotonic())))
            incidents = _incidents(options, start or 0.0)
    advice = restart_advice(incidents)
    print(_shown(advice, options))
    return CODES[advice.restart]


def _shown(advice: RestartAdvice, options: argparse.Namespace) -> str:
    why = advice.incident
    if options.format == "avoid":
        return ",".join(printable(node) for node in advice.avoid)
    if options.format == "json":
        about = (
            {"root_cause": why.root_cause, "signature": why.signature, "node": why.node, "id": why.id} if why else None
        )
        return json.dumps({"restart": advice.restart, "avoid": advice.avoid, "incident": about})
    if why is None:
        return printable(f"gpufault: restart unknown: no root incident of job {options.job} since {options.since}")
    cause = f"{why.root_cause} " if why.root_cause not in (None, "", UNKNOWN) else ""  # a fleet's answer has one name
    return printable(f"gpufault: {advice}: {cause}{why.signature} on {why.node}")


def _incidents(options: argparse.Namespace, start: float) -> list[IncidentRecord]:
    """The incidents of the job. Raises OSError where no server answers so, UsageError for a wrong address."""
    from exporter.core.diagnosis.record_schema import incident_of

    try:
        found = daemon_client.incidents(options.url, options, start, MAX_INCIDENTS, TIMEOUT_SECONDS, job=options.job)
        return [incident_of(given) for given in found["incidents"]]
    except (ValueError, RecursionError) as error:
        raise OSError(f"{options.url}: no list of incidents ({error})") from error
