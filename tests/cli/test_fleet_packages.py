"""Commands that need the extra `fleet` say how to install it where it is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli.main import COULD_NOT_RUN, FLEET_PACKAGES

PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({FLEET_PACKAGES}))  # none of them can be imported
from exporter.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["correlate --journal", "report --journal", "fleet --journal", "simulate"])
def test_a_missing_package_is_named_with_the_way_to_get_it(command: str, tmp_path: Path) -> None:
    arguments = [*command.split(), str(tmp_path / "fleet")]
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=False, capture_output=True, text=True)
    assert ran.returncode == COULD_NOT_RUN
    assert re.fullmatch(r"gpufault: (duckdb|numpy|scipy) is missing; pip install 'gpufault\[fleet\]'\n", ran.stderr)
