"""The file for node_exporter: written whole, read by the real one, gone when nobody renews it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.config.outputs import TextfileConfig
from exporter.metrics.exposition import Family, MetricsSnapshot
from exporter.outputs.textfile import Textfile
from tests.e2e.conftest import Node, eventually, make_node
from tests.e2e.test_prometheus import free_port

__all__ = ["make_node"]

CRASH = "e2e crash seq=1 of a\n"
COUNTED = 'gpufault_incidents_total{root_cause="e2e_cause",signature="e2e_crash"}'


def snapshot(value: float) -> MetricsSnapshot:
    return MetricsSnapshot((Family("gpufault_x_total", "counter", "Some.", ("text",), {('a"\n\\ü',): value}),))


def textfile(path: Path, said: list[str], mode: str = "0644") -> Textfile:
    config = TextfileConfig.model_validate({"path": str(path), "interval": "1s", "mode": mode})
    return Textfile(config, lambda: snapshot(1), lambda level, what: said.append(f"{level}: {what}"))


@pytest.mark.parametrize(("mode", "expected"), [("0644", 0o644), ("0640", 0o640)])
def test_a_file_has_the_mode_that_is_asked_for_and_not_the_numbers_of_the_process(
    tmp_path: Path, mode: str, expected: int
) -> None:
    path = tmp_path / "gpufault.prom"
    textfile(path, [], mode).write()
    assert path.read_text().splitlines()[1:] == [
        "# TYPE gpufault_x_total counter",
        'gpufault_x_total{text="a\\"\\n\\\\ü"} 1.0',
    ]
    assert stat.S_IMODE(path.stat().st_mode) == expected
    assert os.listdir(tmp_path) == ["gpufault.prom"]


def test_what_a_killed_daemon_left_half_written_is_in_nobodys_way(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".gpufault.prom.half").symlink_to(victim)
    (tmp_path / "gpufault.prom").symlink_to(victim)
    textfile(tmp_path / "gpufault.prom", []).write()
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["gpufault.prom", "victim"]
    assert not (tmp_path / "gpufault.prom").is_symlink()


def test_a_folder_that_cannot_be_written_is_told_once_and_tried_again(tmp_path: Path) -> None:
    said: list[str] = []
    file = textfile(tmp_path / "missing/gpufault.prom", said)
    file.start()
    failed = 0

    def failed_twice() -> bool:
        nonlocal failed
        failed += file.take_counts().failed["disk"]
        return failed >= 2

    eventually(lambda: failed_twice() or None)
    assert not file.up
    assert len(said) == 1
    assert "No such file or directory" in said[0]
    (tmp_path / "missing").mkdir()
    eventually(lambda: file.up or None)
    assert (tmp_path / "missing/gpufault.prom").exists()
    file.stop(5.0)
    assert os.listdir(tmp_path / "missing") == []


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    path = tmp_path / "gpufault.prom"
    values = iter(range(1, 10_000))
    config = TextfileConfig(path=path)
    many = {(str(n),): 0.0 for n in range(500)}

    def latest() -> MetricsSnapshot:
        value = float(next(values))
        return MetricsSnapshot((Family("gpufault_x", "gauge", "Some.", ("n",), dict.fromkeys(many, value)),))

    file = Textfile(config, latest, lambda _level, _what: None)
    file.write()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            file.write()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
            assert len(lines) == 500
            assert len({line.rsplit(" ", 1)[1] for line in lines}) == 1
    finally:
        stop.set()
        writer.join()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], str]]]:
    """A node_exporter, the folder that it reads, and what it shows."""
    program = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
    if not program:
        pytest.skip("no node_exporter")
    folder = tmp_path / "textfile"
    folder.mkdir()
    port = free_port()
    command = [program, "--collector.disable-defaults", "--collector.textfile", "--collector.cpu"]
    arguments = [f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "node_exporter.log").open("wb") as log:
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)

    def shown() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def listens() -> bool | None:
        assert process.poll() is None, (tmp_path / "node_exporter.log").read_text()
        try:
            return bool(shown())
        except OSError:
            return None

    try:
        eventually(listens)
        yield folder, shown
    finally:
        process.kill()
        process.wait()


@pytest.mark.heavy
@pytest.mark.deploy
def test_node_exporter_shows_what_the_daemon_has_committed(
    make_node: Callable[..., Node], collector: tuple[Path, Callable[[], str]]
) -> None:
    folder, shown = collector
    path = folder / "gpufault.prom"
    node = make_node(outputs={"textfile": {"path": str(path), "interval": "1s"}})
    node.start()
    (node.logs / "a.log").write_text(CRASH)
    eventually(lambda: f"{COUNTED} 1" in shown() or None)
    metrics = shown()
    assert "node_textfile_scrape_error 0" in metrics
    assert f'node_textfile_mtime_seconds{{file="{path}"}}' in metrics
    served = [line for line in node.get("/metrics").splitlines() if line.startswith("gpufault_incidents_total")]
    assert len(served) > 100
    assert {line.removesuffix(".0") for line in served} <= set(metrics.splitlines())
    if shutil.which("promtool"):
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=path.read_bytes(), capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr.decode()
    node.kill()
    assert path.exists()  # and its time stands still
    node.start()
    eventually(lambda: f"{COUNTED} 1" in shown() or None)
    assert node.stop() == 0
    assert not path.exists()
    assert "gpufault_" not in shown()
