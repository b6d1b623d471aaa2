"""The command line: the list of commands, and the only place that sets exit codes.

Commands are imported only when they run, so `--help` takes no longer than argparse.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from exporter import __version__

if TYPE_CHECKING:
    from exporter.store.state import StateUnusable

FINE, FINDINGS, USAGE, COULD_NOT_RUN = 0, 1, 2, 3
EXIT_CODES = (
    "Exit codes: 0: fine; 1: findings, such as incidents, an unfit node or a failed check; 2: invalid usage, configuration, "
    "pack or facts; 3: could not run, as when nothing can be read, a package is missing or a server does not answer; "
    "130: interrupted."
)
COMMANDS = {  # each is a module of exporter.cli
    "run": "the node daemon: tail logs, count crashes by root cause, serve /metrics",
    "scan": "find and explain crashes in logs: files, folders, globs, archives, or - for stdin",
    "explain": "why a line did or did not match, and how its cause was chosen",
    "unknowns": "crashes that no signature names, like ones together, in journals or logs",
    "facts": "this node's facts: kernel, drivers, GPUs, file systems",
    "signatures": "the signature author's tools",
    "correlate": "which configuration makes which crash more frequent, over all nodes of a fleet",
    "report": "the fleet health review of a week: HTML, Markdown, JSON or CSV",
    "timeline": "what happened on a node, or to a job, in order",
    "top": "what is happening now, by cause and node, from node daemons or a fleet service",
    "fleet": "the correlator as a service: page, JSON and /metrics, refreshed on a timer",
    "simulate": "a fleet with planted causes, as journals or as OpenMetrics history",
    "inject": "one tagged test line through a real source, to prove the path end to end",
    "demo": "the daemon on loopback with replayed crashes: no GPU, no root, no network",
    "doctor": "what this installation can and cannot see here, and why",
    "clear": "clear an open fault of this node after a repair",
    "node-conditions": "Kubernetes node conditions and events from the faults of node daemons",
    "restart-check": "whether a job that crashed is worth a restart, and on which nodes: an exit code, for requeue scripts",
    "node-check": "whether this node is fit for jobs: one line and an exit code, for Slurm's hooks",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a locale without UTF-8 has no sign for is written as its code
            stream.reconfigure(errors="backslashreplace")
    options = _parser(next(iter(arguments), "")).parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `gpufault scan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        verb = getattr(options, "verb", "")  # of `signatures`
        return _report_error(error, f"{options.command} {verb}".rstrip())
    return code


def _report_error(error: Exception, command: str) -> int:
    from exporter.cli.options import UsageError
    from exporter.core.text.phrases import printable
    from exporter.core.text.problems import InvalidInput
    from exporter.process import extras
    from exporter.store.state import StateUnusable

    if isinstance(error, UsageError):
        print(printable(f"gpufault {command}: {error}"), file=sys.stderr)
        return USAGE
    if isinstance(error, InvalidInput):
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return USAGE
    if isinstance(error, OSError | StateUnusable):
        print(f"gpufault: {_error_message(error)}", file=sys.stderr)
        return COULD_NOT_RUN
    if isinstance(error, ModuleNotFoundError) and error.name in extras.FLEET:
        print(f"gpufault: {extras.missing_fleet_packages()}", file=sys.stderr)
        return COULD_NOT_RUN
    if os.environ.get("GPUFAULT_TRACEBACK"):
        raise error
    print(
        f"gpufault: internal error: {error!r}; run it again with GPUFAULT_TRACEBACK=1 and report what it prints",
        file=sys.stderr,
    )
    return COULD_NOT_RUN


def _error_message(error: OSError | StateUnusable) -> str:
    """The message of an error, beginning with the file's name if known, like errors of configurations."""
    from exporter.core.text.phrases import printable

    name = getattr(error, "filename", None)
    if isinstance(error, OSError) and error.strerror:
        return printable(
            f"{os.fspath(name)}: {error.strerror}" if isinstance(name, str | os.PathLike) else error.strerror
        )
    return printable(str(error))


class _Parser(argparse.ArgumentParser):
    """Takes flags only as they are spelt: what an abbreviation stands for changes when a flag is added.

    An unknown flag is an error of the subcommand that got it, with that subcommand's usage.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown


def _parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of the given command; without one, of all commands; with an unknown one, of their names."""
    parser = _Parser(
        prog="gpufault",
        description="Find out why GPU jobs crash across your fleet.",
        epilog=f"`gpufault demo` shows it at work without a GPU, root or network. {EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"gpufault {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        help_text = COMMANDS[name]
        if command not in (None, name):
            commands.add_parser(name, help=help_text)
            continue
        module = import_module(f"exporter.cli.{name.replace('-', '_')}")
        whole = commands.add_parser(name, help=help_text, description=module.DESCRIPTION)
        module.add_arguments(whole)
        whole.set_defaults(run=module.run, command=name)
    return parser


if __name__ == "__main__":
    sys.exit(main())
