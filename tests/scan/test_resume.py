"""A scan that is stopped and goes on shows what one that is not stopped shows."""

from __future__ import annotations

import gzip
import json
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import exporter
from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.records import incident_record
from exporter.scan.plan import Wanted, expand
from exporter.scan.resume import CannotResume, Stopped
from exporter.scan.run import Summary, scan
from tests.scan.commands import CRASH

CATALOGUE = packs.load()
FACTS = {"rocm_version": "6.2"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Small logs, one that is damaged, and one in which there is much to stop in."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(4):
        (folder / f"slurm-{number}.out").write_text(f"2025-11-20T23:40:{number:02d}Z step 1\n{CRASH * number}")
    (folder / "slurm-2.out.gz").write_bytes(gzip.compress(CRASH.encode())[:-4])
    dice = random.Random(1)
    with (folder / "slurm-5.out").open("w") as large:
        large.write("PyTorch version: 2.1\n")
        for second in range(60):
            stamp = f"2025-11-20T23:{second % 60:02d}:{dice.randrange(60):02d}Z"
            large.write(f"{stamp} step {second} loss 2.25 lr 0.001 tokens/s 18231\n" * 1000)
            large.write(f"{stamp} 3: {CRASH}" * dice.choice([0, 1, 40]))
    (folder / "slurm-6.out").write_text(CRASH)
    return folder


class Interrupt:
    """Ctrl-C, when so many blocks were read."""

    def __init__(self, blocks: int) -> None:
        self.left = blocks

    def __call__(self, _path: str, size: int) -> None:
        self.left -= size > 0
        if self.left == 0 and size:
            signal.raise_signal(signal.SIGINT)


def of(folder: Path, workers: int = 1, blocks: int = 0, resumed: Stopped | None = None) -> Summary:
    logs = (Wanted(found) if isinstance(found, str) else found for found in expand([str(folder)]))
    return scan(logs, CATALOGUE, node="n", facts=FACTS, workers=workers, progress=Interrupt(blocks), resumed=resumed)


def shown(summary: Summary, catalogue: Catalogue = CATALOGUE) -> tuple[list[Mapping[str, Any]], dict[str, int]]:
    """All but the times of lines that have none."""
    records = [incident_record(d, catalogue, "n") for d in (*summary.diagnoses, *summary.notes)]
    for record in records:
        if record["time_source"] in ("observed", "file"):
            del record["time"], record["last_time"]
    return records, summary.counts


@pytest.mark.parametrize("blocks", [2, 3, 5])
def test_a_scan_stopped_again_and_again_shows_what_one_shows(archive: Path, tmp_path: Path, blocks: int) -> None:
    file = tmp_path / "left.json"
    whole = of(archive)
    assert whole.counts["unread"] == 1
    summary, stops, offsets = of(archive, blocks=blocks), 0, set()
    while summary.left:
        stops += 1
        assert stops < 40
        summary.left.write(file)
        offsets.add(summary.left.read and summary.left.read.offset)
        summary = of(archive, blocks=blocks, resumed=Stopped.read_from(file))
    assert shown(summary) == shown(whole)
    assert stops > 1
    assert len(offsets - {None}) >= 2 or blocks == 5  # inside a log, too, and never twice at the same place


@pytest.mark.heavy
def test_workers_go_on_where_one_process_was_stopped(archive: Path, tmp_path: Path) -> None:
    with (archive / "slurm-5.out").open("a") as large:
        for part in range(50):
            large.write("2025-11-20T23:50:00Z step 7 loss 2.25\n" * 80_000)
            large.write(f"2025-11-20T23:51:{part:02d}Z 3: {CRASH}")
    whole = of(archive)
    stopped = of(archive, blocks=9)
    assert stopped.left
    assert stopped.left.read
    assert stopped.left.read.offset
    stopped.left.write(tmp_path / "left.json")
    resumed = of(archive, workers=2, resumed=Stopped.read_from(tmp_path / "left.json"))
    assert shown(resumed) == shown(whole)


def test_a_log_that_has_changed_since_is_not_gone_on_with(archive: Path, tmp_path: Path) -> None:
    stopped = of(archive, blocks=6).left
    assert stopped
    assert stopped.read
    assert stopped.read.offset
    stopped.write(tmp_path / "left.json")
    log = archive / "slurm-5.out"
    log.write_bytes(log.read_bytes().replace(b"loss 2.25", b"loss 3.25"))
    with pytest.raises(CannotResume, match="is not what it was"):
        Stopped.read_from(tmp_path / "left.json")
    log.unlink()
    with pytest.raises(CannotResume, match="is not what it was"):
        Stopped.read_from(tmp_path / "left.json")


WITHOUT_COUNTS = json.dumps({"gpufault": exporter.__version__, "read": None, "now": 0, "counts": {}, "incidents": []})


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"gpufault": "0", "read": {}, "incidents": []}', "\ud800", WITHOUT_COUNTS, "[" * 200_000],
)
def test_what_is_no_file_of_a_stopped_scan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "left.json").write_text(text, errors="surrogatepass")
    with pytest.raises(CannotResume):
        Stopped.read_from(tmp_path / "left.json")
