"""`gpufault node-check`: whether this node is fit for jobs, for Slurm's hooks and for the node-problem-detector."""

import argparse
import json
import time
from typing import Any

from exporter.cli import daemon_client
from exporter.cli import options as flags

DESCRIPTION = (
    "Ask the daemon of this node for critical infrastructure incidents that an operator has to "
    "fix before the node takes jobs again. Exit code 0: none; 1: there is one, and the line names it; 3: not known, "
    "because the daemon does not answer or cannot see everything. It drains nothing."
)
HEALTHY, PROBLEM, UNKNOWN = 0, 1, 3
NPD_UNKNOWN = 2
NPD_BYTES = 80  # max_output_length of a custom plugin, if nothing else is configured
PREFIX = "[node_problem] gpufault:"  # reasons that begin so are left to the operator by tools that act on others
MAX_ANSWER = 1 << 20  # bytes; 64 faults are 40 kB


class Unknown(Exception):
    """Why the node's state is not known."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", default="boot", metavar="TIME", help="boot (the default), 6h (so long ago), RFC 3339 or Unix seconds"
    )
    parser.add_argument(
        "--job",
        action="append",
        metavar="ID",
        help="ignore incidents that name another job; repeat it for several ids: an array task is 8 and 7_1",
    )
    parser.add_argument(
        "--format",
        default="text",
        choices=("text", "json", "npd"),
        help=f"npd: at most {NPD_BYTES} characters, and 2 for not known; default: text",
    )
    flags.add(parser, "--url", default="http://127.0.0.1:9873", metavar="URL", help="the daemon; default: %(default)s")
    parser.add_argument(
        "--timeout", type=float, default=2.0, metavar="SECONDS", help="for all of it; default: %(default)s"
    )
    daemon_client.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    try:
        answer = _bounded(options)
    except Exception as error:  # whatever it is: a hook must not take it for a problem of the node
        answer = {"unknown": str(error) or repr(error)}
    unknown = NPD_UNKNOWN if options.format == "npd" else UNKNOWN
    code = PROBLEM if answer.get("faults") else unknown if _why_unknown(answer) else HEALTHY
    if options.format == "json":
        print(json.dumps({"status": {HEALTHY: "healthy", PROBLEM: "problem"}.get(code, "unknown"), **answer}))
    else:
        print(_writable(_npd(answer) if options.format == "npd" else _text(answer)))
    return code


def _text(answer: dict[str, Any]) -> str:
    if faults := answer.get("faults"):
        first, more = faults[0], len(faults) - 1
        where = "".join(f" {name} {first[name]}" for name in ("gpu", "job") if first[name])
        again = f", time {first['times']} in 14 days" if first.get("times", 1) > 1 else ""
        return f"{PREFIX} {_named(first)}{where}{again}{f' and {more} more' if more else ''}"
    if why := _why_unknown(answer):
        return f"gpufault: unknown: {why}"
    return f"gpufault: healthy since {answer['since']}"


def _npd(answer: dict[str, Any]) -> str:
    """The same text, shortened for NPD, which adds the name of the node's condition."""
    if faults := answer.get("faults"):
        return _named(faults[0])[:NPD_BYTES]
    return (_why_unknown(answer) or "healthy")[:NPD_BYTES]


def _named(fault: dict[str, Any]) -> str:
    when = fault["last_time"].partition(".")[0]
    return f"{fault['root_cause']} {fault['signature']} {when}Z"


def _why_unknown(answer: dict[str, Any]) -> str:
    blind: list[str] = answer.get("blind", [])
    return str(answer.get("unknown") or (f"not everything is seen: {'; '.join(blind)}" if blind else ""))


def _writable(text: str) -> str:
    """The text on one line, safe for a terminal and a drain reason."""
    return "".join(c if c.isprintable() and c.isascii() else ascii(c)[1:-1] for c in text)


def _bounded(options: argparse.Namespace) -> dict[str, Any]:
    """The daemon's answer, or why it is missing, within the time limit, even if name resolution or the server hangs."""
    import threading

    answers: list[dict[str, Any]] = []

    def ask() -> None:
        try:
            answers.append(_ask(options))
        except Exception as error:
            answers.append({"unknown": str(error) or repr(error)})

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(options.timeout)
    return answers[0] if answers else {"unknown": f"{options.url}: no answer within {options.timeout:g} s"}


def _ask(options: argparse.Namespace) -> dict[str, Any]:
    import urllib.error
    import urllib.parse

    asked = [("since", repr(since))] if (since := _since(options.since)) is not None else []
    asked += [("job", job) for job in options.job or ()]
    if not options.url.startswith(("http://", "https://")):
        raise Unknown(f"--url: {options.url!r} is not an http:// or https:// address")
    where = f"{options.url.rstrip('/')}/api/v1/node-check?{urllib.parse.urlencode(asked)}"
    try:
        report = json.loads(daemon_client.ask(where, options, timeout=options.timeout, most=MAX_ANSWER))
    except urllib.error.HTTPError as error:
        raise Unknown(f"{options.url}: {error.code} {error.reason}{_ADVICE.get(error.code, '')}") from error
    except OSError as error:
        raise Unknown(f"{options.url}: {daemon_client.failure_of(error)}; is gpufault running?") from error
    except (ValueError, RecursionError) as error:
        raise Unknown(f"{options.url}: no answer of gpufault") from error
    if not isinstance(report, dict) or not isinstance(report.get("faults"), list):
        raise Unknown(f"{options.url}: no answer of gpufault")
    return report


_ADVICE = {401: "; give --user and --password-file", 404: "; is it the node daemon, and not older than this command?"}


def _since(text: str) -> float | None:
    """Unix seconds; None for the boot."""
    return None if text == "boot" else flags.since("--since", text, time.time())
