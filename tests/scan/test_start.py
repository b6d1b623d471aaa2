"""The start of a scan loads only what a log without a crash needs: most of the time of a small scan is the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Packs are compiled in a wheel, and text in a checkout, which pydantic and YAML read. Which ones there are is no matter here.
CODE = """
import sys
from exporter.config import packs
from exporter.core.catalogue.loader import Compiled
packs._compiled = Compiled
from exporter.cli.main import main
print(main(["scan", "--quiet", sys.argv[1]]), sorted(set(sys.argv[2].split()) & set(sys.modules)))
"""
HEAVY = (
    "pydantic yaml regex sqlite3 asyncio ssl http.client multiprocessing concurrent.futures uvicorn email csv decimal"
    " dataclasses inspect"
)


def test_a_scan_of_a_log_without_a_crash_loads_no_library_that_it_does_not_need(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 1\n")
    command = [sys.executable, "-P", "-c", CODE, str(log), HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 []\n"


def test_a_scan_exits_without_a_last_collection_of_garbage(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 1\n")
    code = f"import atexit, gc\natexit.register(lambda: print(gc.get_freeze_count() > 10_000))\n{CODE}"
    command = [sys.executable, "-P", "-c", code, str(log), ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 []\nTrue\n"
