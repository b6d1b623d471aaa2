"""One table of exit codes holds for all commands: what could not run never looks like what was found."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from exporter.cli import signatures
from exporter.cli.main import COMMANDS, COULD_NOT_RUN, EXIT_CODES, FINDINGS, FINE, USAGE, _parser, main

ROOT = Path(__file__).parents[2]
CRASH = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
LOCAL = "http://127.0.0.1:1"  # where nothing listens
NEEDED = {  # arguments without which a command does not begin
    "scan": ["{log}"], "explain": ["{log}"], "unknowns": ["{log}"], "correlate": ["--journal", "{journals}"],
    "report": ["--journal", "{journals}"], "timeline": ["n1", "--journal", "{journals}"], "top": ["--once", LOCAL],
    "fleet": ["--journal", "{journals}", "--web.listen-address", "127.0.0.1:0"], "simulate": ["{new}"],
    "clear": ["all", "--reason", "repaired"], "signatures": ["list"], "node-conditions": ["--once"],
    "restart-check": ["--job", "7"],
}  # fmt: skip
VERBS = {
    "list": [], "show": ["nv_xid_79_fallen_off_bus"], "new": ["x failed"], "check": [], "test": [],
    "diff": ["builtin", "{packs}"], "schema": [], "docs": ["--out", "{new}"],
    "reports": ["--address", "https://tickets.example.com"],
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_text(CRASH)
    (tmp_path / "journals").mkdir()
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs/bad.yaml").write_text("pack: mine\nsignatures: [{id: x}]\n")
    (tmp_path / "bad.yaml").write_text("sources: [{kind: filez}]\n")
    names = {"log": "x.log", "journals": "journals", "packs": "packs", "config": "bad.yaml", "new": "new"}
    return {name: str(tmp_path / path) for name, path in names.items()}


def code_of(arguments: Sequence[str], files: dict[str, str]) -> int:
    try:
        return main([argument.format(**files) for argument in arguments])
    except SystemExit as error:  # argparse
        return int(error.code or 0)


def flags_of(command: str) -> str:
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        main([command, "--help"])
    return printed.getvalue()


@pytest.mark.parametrize("command", [*COMMANDS, *(f"signatures {verb}" for verb in VERBS)])
def test_a_wrong_flag_is_invalid_usage_and_prints_the_usage_of_its_command(
    command: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "|".join(VERBS) == signatures.VERBS
    name, _, verb = command.partition(" ")
    needed = VERBS[verb] if verb else NEEDED.get(name, [])
    assert code_of([*command.split(), *needed, "--no-such-flag"], files) == USAGE
    told = capsys.readouterr().err
    where = f"gpufault {command}" if verb or name != "signatures" else "gpufault signatures list"
    assert told.startswith(f"usage: {where} ")
    assert told.endswith(f"{where}: error: unrecognized arguments: --no-such-flag\n")


WITH_PACKS = [name for name in COMMANDS if name != "signatures" and "--signatures.dir" in flags_of(name)] + [
    f"signatures {verb}" for verb in ("list", "show", "new", "docs")
]
TAKING_PACKS = [f"signatures {verb}" for verb in ("check", "test", "diff")]


@pytest.mark.parametrize("command", [*WITH_PACKS, *TAKING_PACKS])
def test_a_rejected_pack_is_invalid_input(
    command: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, verb = command.partition(" ")
    needed = VERBS[verb] if verb else NEEDED.get(name, [])
    if name in ("correlate", "report", "timeline", "fleet"):
        assert main(["simulate", "--nodes=2", "--window=1d", files["new"]]) == FINE
        needed = [part.replace("{journals}", "{new}") for part in needed]
    if name == "fleet":
        needed = [*needed, "--config.check"]
    packs = ["{packs}"] if command in ("signatures check", "signatures test") else ["--signatures.dir", "{packs}"]
    if command == "signatures diff":
        packs = []
    assert code_of([*command.split(), *needed, *packs], files) == USAGE
    captured = capsys.readouterr()
    assert "bad.yaml:2:" in captured.err + captured.out


@pytest.mark.parametrize("command", [name for name in COMMANDS if " --config.file" in flags_of(name)])
def test_an_invalid_configuration_is_invalid_input(
    command: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    needed = [part for part in NEEDED.get(command, []) if command != "fleet"]
    assert code_of([command, *needed, "--config.file", "{config}"], files) == USAGE
    assert "bad.yaml:1:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        "scan /nowhere/x.log", "explain /nowhere/x.log", "unknowns /nowhere/x.log", "unknowns {journals}",
        "correlate --journal /nowhere", "report --journal /nowhere", "timeline n1 --journal /nowhere",
        "scan --facts /nowhere/f.yaml {log}", "explain --facts /nowhere/f.yaml {log}", "facts --path.rootfs /nowhere",
        "run --config.file /nowhere/c.yaml", "fleet --config.file /nowhere/c.yaml", "doctor --config.file /nowhere/c.yaml",
        "inject --config.file /nowhere/c.yaml", "clear all --reason x --state.dir /nowhere", "simulate {journals}/../x.log",
        f"clear all --reason x --url {LOCAL}", f"top --once {LOCAL}", f"unknowns {LOCAL}", f"node-check --url {LOCAL}",
        f"inject --url {LOCAL}", f"correlate --prometheus {LOCAL}", f"report --prometheus {LOCAL}",
        "scan {log} --engine dask --dask.address 127.0.0.1:1",
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_asked_is_no_finding(
    arguments: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(arguments.split(), files) == COULD_NOT_RUN
    captured = capsys.readouterr()
    assert captured.err + captured.out  # node-check's answer is on stdout, for the hooks
    assert "internal error" not in captured.err


def test_every_command_is_in_one_of_these_tests() -> None:
    assert set(NEEDED) <= set(COMMANDS)
    assert {
        line.split(" ")[0] for line in _parser().format_help().split("commands:")[1].split() if line in COMMANDS
    } == set(COMMANDS)


def test_a_finding_is_one_and_none_is_zero(files: dict[str, str]) -> None:
    assert code_of(["scan", "{log}"], files) == FINDINGS
    Path(files["log"]).write_text("step 1\n")
    assert code_of(["scan", "{log}"], files) == FINE


def test_no_incident_in_what_could_be_read_is_not_claimed_of_the_rest(files: dict[str, str]) -> None:
    Path(files["log"]).write_text("step 1\n")
    assert code_of(["scan", "{log}", "/nowhere/y.log"], files) == COULD_NOT_RUN
    Path(files["log"]).write_text(CRASH)
    assert code_of(["scan", "{log}", "/nowhere/y.log"], files) == FINDINGS


def test_the_help_and_the_page_have_the_same_table() -> None:
    assert EXIT_CODES.split(": ", 1)[1].split(";")[0] == "0: fine"
    page = (ROOT / "docs/commands.md").read_text()
    codes = {
        int(line.split("|")[1])
        for line in page.splitlines()
        if line.startswith("| ") and line.split("|")[1].strip().isdigit()
    }
    assert codes == {FINE, FINDINGS, USAGE, COULD_NOT_RUN, 130}
    assert [name for name in COMMANDS if f"| `{name}` |" not in page] == []
