"""Loads configuration and packs in a process of its own.

pydantic and YAML take 17 MiB of memory. A daemon needs them only at the start and when it reloads, so it leaves them to a
process that ends.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.text.problems import InvalidInput

LOAD_SECONDS = 60.0  # 2 s of work; a busy node takes longer

if TYPE_CHECKING:
    from exporter.config.node import Config
    from exporter.core.catalogue.loader import Catalogue

    Loaded = tuple[Config, Catalogue]


def load(options: argparse.Namespace, dry: Path | None = None) -> Loaded:
    """The plain configuration and its catalogue. Raises InvalidInput with all problems, or OSError.

    dry: a folder for state and journal, instead of the configured ones, and no outputs.
    """
    request = argparse.Namespace(config_file=options.config_file, state_dir=options.state_dir, dry=dry)
    process = subprocess.Popen(  # noqa: S603 (ourselves)
        (sys.executable, "-P", "-m", __name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the daemon, which then ends this process
    )
    try:
        output, _ = process.communicate(pickle.dumps(request), timeout=LOAD_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: it may be in a call that no signal ends
        reason = "a file of the configuration or of the packs, or the file system it is on, does not answer"
        raise OSError(f"the configuration was not loaded within {LOAD_SECONDS:.0f} s: {reason}") from None
    if process.returncode:
        raise OSError(f"the process that loads the configuration ended with {process.returncode}; its error is above")
    answer: Loaded | InvalidInput | OSError = pickle.loads(output)  # noqa: S301 (of our own process)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _load(options: argparse.Namespace) -> Loaded:
    from exporter.cli import options as flags
    from exporter.config import packs
    from exporter.config.plain import plain
    from exporter.outputs import receiver_settings

    config = flags.load_config(options)
    flags.refuse(options, receiver_settings.problems(config.outputs))
    if options.state_dir:
        config = config.model_copy(update={"state_dir": Path(options.state_dir).absolute()})
    catalogue = packs.load(config.signatures.dirs)
    flags.refuse(options, packs.unknown(catalogue, config.signatures.disable))
    if options.dry:
        config = _isolated_in(options.dry, config)
    return plain(config), catalogue.without(config.signatures.disable)


def _isolated_in(folder: Path, config: Config) -> Config:
    """The same configuration, with state and journal in a folder, and without outputs."""
    journal = config.journal.model_copy(update={"dir": None})
    outputs = config.outputs.model_copy(update={"otlp": None, "webhook": None, "textfile": None})
    return config.model_copy(update={"state_dir": folder, "journal": journal, "outputs": outputs})


def main() -> None:
    """Answer the request on standard input with the configuration and catalogue, or the error."""
    try:
        answer: object = _load(pickle.load(sys.stdin.buffer))  # noqa: S301 (of the process that started this one)
    except (InvalidInput, OSError) as error:
        answer = error
    with suppress(BrokenPipeError):  # the daemon is gone
        pickle.dump(answer, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
