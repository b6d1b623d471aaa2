"""`gpufault facts`: prints the facts of this node, as diagnosis and the correlator use them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.core.facts.gpus import Gpu

DESCRIPTION = (
    "Prints what is known of this node. A fact that is not known is absent; a probe that failed is told on stderr."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="text", choices=("text", "json"))
    parser.add_argument(
        "--path.rootfs", dest="path_rootfs", default="/", metavar="DIR", help="the root of the node's files"
    )
    parser.add_argument("--home", metavar="DIR", help="a home folder of jobs, where homes are not below /home")


def _card_summary(gpu: Gpu) -> Iterator[str]:
    """The values that differ between cards, in one line."""
    yield gpu.facts.get("gpu_model", gpu.vendor or "a GPU")
    for name, value in (
        ("unique id", gpu.unique_id),
        ("serial", gpu.serial),
        ("KFD node", gpu.kfd_node),
        ("link now", " ".join(filter(None, (gpu.pcie_speed, gpu.facts.get("pcie_width"))))),
        ("retired pages", gpu.facts.get("gpu_retired_pages")),
    ):
        if value is not None and value != "":
            yield f"{name} {value}"


def run(options: argparse.Namespace) -> int:
    from exporter.core.facts.driver_answer import with_driver_gpus
    from exporter.core.facts.gpus import facts_of
    from exporter.node.driver_probe import DriverProbe
    from exporter.probes import gather
    from exporter.sources.boot import moment

    if not os.path.isdir(options.path_rootfs):
        raise NotADirectoryError(f"--path.rootfs: {options.path_rootfs} is not a folder")
    gathered = gather(Path(options.path_rootfs), home=Path(options.home) if options.home else None, environ=os.environ)
    gpus, facts, failed = gathered.gpus, dict(gathered.facts), dict(gathered.failed)
    if gpus and Path(options.path_rootfs) == Path("/"):  # the library speaks of this machine alone
        answer = DriverProbe().ask({gpu.vendor or "" for gpu in gpus}, moment(time.time()))
        gpus, failed = with_driver_gpus(gpus, answer.gpus), failed | dict(answer.failed)
        facts = facts_of(answer.gpus) | facts
    if options.format == "json":
        print(json.dumps(dict(sorted(facts.items())), indent=2))
    else:
        width = max((len(name) for name in facts), default=0)
        for name, value in sorted(facts.items()):
            print(f"{name:<{width}}  {value}")
        if gpus:
            print()
        for gpu in gpus:
            print(f"{gpu.pci}  {', '.join(_card_summary(gpu))}")
    for probe, why in sorted(failed.items()):
        print(f"probe {probe} failed: {why}", file=sys.stderr)
    return 0
