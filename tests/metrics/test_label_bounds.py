"""Storms that a job may raise, through the real daemon: what its log says and what its files are called is no label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.config.node import Config
from exporter.core.facts.gpus import Gpu
from exporter.daemon.daemon import Daemon
from exporter.probes import Gathered
from tests.support.daemons import finish, quiet_daemon
from tests.support.matches import catalogue_of

PACK = r"""
pack: test
signatures:
  - id: gpu_fault
    patterns: ['GPU fault at (?P<gpu>\S+) by (?P<user>\S+)']
    sources: [job, kernel]
"""
REAL = "0000:c1:00.0"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Daemons over `tmp_path/jobs` and `tmp_path/kmsg`, on a node with one GPU, or with those that are given."""
    daemons: list[Daemon] = []
    (tmp_path / "jobs").mkdir()
    (tmp_path / "kmsg").touch()

    def start(gpus: tuple[str, ...] = (REAL,), label_values: int = 10) -> Daemon:
        config = Config.model_validate(
            {
                "state_dir": str(tmp_path / "state"),
                "sources": [
                    {"kind": "files", "paths": [f"{tmp_path}/jobs/**/*.log"], "start": "beginning"},
                    {"kind": "kmsg", "mode": "file", "path": str(tmp_path / "kmsg")},
                ],
                "limits": {"label_values": label_values},
                "incidents": {"late_after": "9999d"},
            }
        )
        gathered = Gathered(facts={}, failed={}, gpus=tuple(Gpu(pci=gpu) for gpu in gpus))
        daemons.append(quiet_daemon(config, catalogue_of(PACK), gathered))
        return daemons[-1]

    yield start
    for daemon in daemons:
        finish(daemon)


def series(daemon: Daemon, name: str) -> dict[tuple[str, ...], float]:
    return next((dict(f.samples) for f in daemon.snapshot().families if f.name == name), {})


def addresses(count: int) -> list[str]:
    return [f"0000:{n // 32:02x}:{n % 32:02x}.0" for n in range(count)]


def test_addresses_that_a_job_makes_up_share_one_label(make: Callable[..., Daemon], tmp_path: Path) -> None:
    lines = "".join(f"GPU fault at {gpu} by ada\n" for gpu in [*addresses(500), REAL])
    (tmp_path / "jobs/1.log").write_text(lines)
    daemon = make()
    daemon.drain()
    gpus = series(daemon, "gpufault_gpu_incidents_total")
    assert set(gpus) <= {("other", "gpu_fault"), (REAL, "gpu_fault")}
    assert sum(gpus.values()) == sum(series(daemon, "gpufault_incidents_total").values())
    assert series(daemon, "gpufault_label_values_refused_total") == {("gpu",): gpus["other", "gpu_fault"]}


def test_a_node_whose_gpus_are_not_known_has_so_many_labels_and_no_more(
    make: Callable[..., Daemon], tmp_path: Path
) -> None:
    for number, gpu in enumerate(addresses(50)):
        (tmp_path / f"jobs/job_{number + 1}.log").write_text(f"GPU fault at {gpu} by ada\n")
    daemon = make(gpus=())
    daemon.drain()
    gpus = series(daemon, "gpufault_gpu_incidents_total")
    assert (len(gpus), gpus["other", "gpu_fault"]) == (11, 40)
    assert series(daemon, "gpufault_label_values_refused_total") == {("gpu",): 40}


def test_a_gpu_that_only_the_kernel_still_names_has_its_label(make: Callable[..., Daemon], tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text("3,1,1000,-;GPU fault at 0000:d2:00.0 by driver\n")
    daemon = make()
    daemon.drain()
    assert set(series(daemon, "gpufault_gpu_incidents_total")) == {("0000:d2:00.0", "gpu_fault")}


def test_neither_names_of_files_nor_what_lines_say_become_labels(make: Callable[..., Daemon], tmp_path: Path) -> None:
    canary = "CANARY"
    for number in range(300):
        folder = tmp_path / f"jobs/{canary}{number}"
        folder.mkdir()
        (folder / f"job_{number}_{canary}.log").write_text(
            f"GPU fault at {canary}{number} by {canary}{number}\nsegfault {canary}\n"
        )
        (folder / f"{canary}.log").symlink_to("/etc/passwd")
    daemon = make()
    before = Counter(family.name for family in daemon.snapshot().families for _ in family.samples)
    daemon.drain()
    shown = daemon.snapshot().families
    assert not any(canary in label for family in shown for labels in family.samples for label in labels)
    after = Counter(family.name for family in shown for _ in family.samples)
    assert after.pop("gpufault_job_incidents") == 50
    assert sum((after - before).values()) < 10
    assert series(daemon, "gpufault_incidents_total")["gpu_fault", "unknown"] > 0
    assert series(daemon, "gpufault_source_dropped_total")["files", "outside_roots"] == 300
