"""A reload: no file of the configuration and no number of requests stops the main loop or keeps logs unread."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Kernel, Node, eventually, gpufault
from tests.support.bad_files import KINDS, endless, fifo
from tests.support.fuse_server import EVERY_CALL, FuseServer, needs_fuse

JOBS = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
KERNEL = 'gpufault_lines_matched_total{signature="e2e_crash",source="kernel"}'
RELOAD_OK = "gpufault_config_last_reload_successful"


@pytest.fixture
def node(make_node: Callable[..., Node], kernel: Kernel, tmp_path: Path) -> Node:
    files = {"kind": "files", "paths": [f"{tmp_path}/jobs/*.log"], "start": "beginning"}
    return make_node([files, {"kind": "kmsg", "path": str(kernel.path)}])


def goes_on(node: Node, kernel: Kernel, number: int) -> None:
    """The kernel's log and job logs are read."""
    kernel.say(f"e2e crash seq={number} of kernel")
    with (node.logs / "a.log").open("a") as log:
        log.write(f"e2e crash seq={number} of a\n")
    eventually(lambda: node.value(KERNEL) == number)
    eventually(lambda: node.value(JOBS) == number)


@pytest.mark.heavy
@pytest.mark.parametrize("role", ["pack", "configuration"])
def test_a_file_of_any_kind_fails_a_reload_and_stops_nothing(node: Node, kernel: Kernel, role: str) -> None:
    node.start()
    goes_on(node, kernel, 1)
    good = node.config.read_text()
    path = node.folder / "packs" / "bad.yaml" if role == "pack" else node.config
    for number, make in enumerate(KINDS, 2):
        path.unlink(missing_ok=True)
        make(path)
        code, text = node.post("/-/reload")
        assert code == 500, make.__name__
        assert path.name in text, "the error names the file"
        assert node.value(RELOAD_OK) == 0
        goes_on(node, kernel, number)
        path.rmdir() if path.is_dir() else path.unlink()
    if role == "configuration":
        path.write_text(good)
    assert node.post("/-/reload") == (200, "reloaded.\n")
    assert node.value(RELOAD_OK) == 1


@needs_fuse
@pytest.mark.heavy
@pytest.mark.parametrize("role", ["pack", "configuration"])
def test_a_file_on_a_mount_that_hangs_delays_only_the_reload(
    node: Node, kernel: Kernel, tmp_path: Path, role: str
) -> None:
    (tmp_path / "behind").mkdir()
    mount = FuseServer(tmp_path / "behind", tmp_path / "mnt")
    path = node.folder / "packs" / "far.yaml" if role == "pack" else node.config
    text = "pack: far\nsignatures: []\n" if role == "pack" else path.read_text()
    (mount.folder / "far.yaml").write_text(text)
    path.unlink(missing_ok=True)
    path.symlink_to(mount.point / "far.yaml")
    try:
        node.start()
        goes_on(node, kernel, 1)
        mount.hang(*EVERY_CALL)
        asked: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: asked.append(node.post("/-/reload")))
        asking.start()
        eventually(lambda: mount.waiting)
        for number in (2, 3, 4):
            goes_on(node, kernel, number)
        assert not asked, "it still waits for the file"
        asking.join(timeout=120)
        assert asked[0][0] == 500
        assert "does not answer" in asked[0][1]
        goes_on(node, kernel, 5)
        mount.go_on()
        assert eventually(lambda: node.post("/-/reload")[0] == 200)
        goes_on(node, kernel, 6)
        assert node.stop() == 0
    finally:
        mount.go_on()
        mount.close()


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["POST", "SIGHUP"])
def test_requests_without_a_pause_keep_no_log_unread(node: Node, kernel: Kernel, way: str) -> None:
    node.start()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            if way == "POST":
                node.post("/-/reload")
            else:
                assert node.process is not None
                node.process.send_signal(signal.SIGHUP)
                time.sleep(0.02)

    def applied() -> int:
        return node.log.read_text().count('event="configuration applied"')

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    began = time.monotonic()
    try:
        number = 0
        while number < 20 or applied() < 2:
            number += 1
            goes_on(node, kernel, number)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert applied() <= (time.monotonic() - began) / 2.0 + 2, "they are served together, with a rest in between"


READERS = {
    "signatures check": ["signatures", "check", "{}"],
    "run --config.check": ["run", "--config.check", "--config.file", "{}"],
    "fleet --config.file": ["fleet", "--config.file", "{}", "--web.listen-address", "127.0.0.1:0"],
    "scan --facts": ["scan", "--facts", "{}", "/dev/null"],
    "run --web.config.file": ["run", "--config.check", "--web.config.file", "{}"],
}


@pytest.mark.parametrize("reader", READERS)
def test_no_command_waits_for_a_file_or_reads_it_without_end(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "named.yaml"
    (endless if reader == "scan --facts" else fifo)(path)  # a pipe, as of `<(command)`, is what scan's user gave it
    arguments = [part.format(path) for part in READERS[reader]]
    done = subprocess.run(
        [gpufault(), *arguments], check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    assert done.returncode in (1, 2, 3)
    assert "named.yaml" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
