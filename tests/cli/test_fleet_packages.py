"""Commands that need the extra `fleet` say how to install it where it is missing: for the way gpufault was installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli.main import COULD_NOT_RUN, main
from exporter.process import extras

PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({extras.FLEET}))  # none of them can be imported
from exporter.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["correlate --journal", "report --journal", "fleet --journal", "simulate"])
def test_all_missing_packages_are_named_at_once_with_the_way_to_get_them(command: str, tmp_path: Path) -> None:
    arguments = [*command.split(), str(tmp_path / "fleet")]
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=False, capture_output=True, text=True)
    assert ran.returncode == COULD_NOT_RUN
    found = re.fullmatch(
        r"gpufault: duckdb, numpy and scipy are missing; (\S+) -m pip install '(.*)\[fleet\]'\n", ran.stderr
    )
    assert found, ran.stderr
    assert found[1] == sys.executable
    assert Path(found[2]).exists()  # the checkout or the wheel


@pytest.mark.parametrize(
    ("installed", "how"),
    [
        ("/usr/lib/gpufault/lib/python3.11/site-packages", "apt install ./gpufault-fleet_*.deb"),
        ("checkout", "-m pip install '{root}[fleet]'"),
        ("from a wheel", "-m pip install '{wheel}[fleet]'"),
        ("from an index", "-m pip install 'gpufault[fleet]'"),
    ],
)
def test_the_command_is_that_of_the_installation(
    installed: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, wheel = tmp_path / "root", tmp_path / "gpufault-0.1.0-py3-none-any.whl"
    root.mkdir()
    wheel.touch()
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(f'{{"url": "file://{wheel}"}}'))
    if installed == "checkout":
        (root / "pyproject.toml").touch()
    elif installed == "from an index":
        monkeypatch.setattr(extras, "distribution", lambda _: Installed(None))
    told = extras.how_to_install("fleet", Path(installed) if installed.startswith("/") else root)
    assert told.endswith(how.format(root=root, wheel=wheel))


def test_the_timeline_of_a_node_needs_none_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = tmp_path / "fleet"
    assert main(["simulate", "--case=review", "--nodes=12", "--end=1700000000", str(fleet)]) == 0
    records = [json.loads(line) for line in next(fleet.glob("*.jsonl")).read_text().splitlines()]
    crashes = [record for record in records if record["kind"] == "incident" and record.get("job")]
    for name in (crashes[0]["node"], crashes[0]["job"]["id"], crashes[-1]["job"]["id"]):
        arguments = ["timeline", name, "--journal", str(fleet), "--since=42d", "--end=1700000000", "--format=json"]
        code = main(arguments)
        told = capsys.readouterr().out
        ran = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=False, capture_output=True, text=True)
        assert (ran.returncode, json.loads(ran.stdout)) == (code, json.loads(told)), ran.stderr
        assert json.loads(told)


def test_what_only_duckdb_reads_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "history.duckdb").touch()
    arguments = ["timeline", "n1", "--journal", str(tmp_path / "history.duckdb")]
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=False, capture_output=True, text=True)
    assert ran.returncode == COULD_NOT_RUN
    assert ran.stderr.startswith("gpufault: duckdb, numpy and scipy are missing; ")


class Installed:
    """The part of a distribution that says where pip had it from."""

    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, _name: str) -> str | None:
        return self._direct_url
