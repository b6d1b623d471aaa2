"""What the check behind each test finds: threads and processes that are still there."""

from __future__ import annotations

import subprocess
import threading

from tests.support.leftovers import left_behind, running


def test_a_thread_that_runs_on_is_named() -> None:
    before, stop = running(), threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten", daemon=True)
    thread.start()
    assert left_behind(before, seconds=0.0) == ["thread 'forgotten' in threading.Event.wait"]
    stop.set()
    assert left_behind(before) == []


def test_a_process_that_runs_on_or_was_not_waited_for_is_named() -> None:
    before = running()
    process = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert left_behind(before, seconds=0.0)[0].startswith(f"process {process.pid} ")
    process.kill()
    process.stdout.read()  # ends with the process
    assert left_behind(before, seconds=0.1)[0].startswith(f"process {process.pid} ")
    process.wait()
    process.stdout.close()
    assert left_behind(before) == []
