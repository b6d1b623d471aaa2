"""Runbooks: one per alert, and every command in them and on the troubleshooting page is valid."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.commands import PROGRAMS, PROMETHEUS, consoles, programs, typed, understood
from tests.support.programs import needs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/runbooks"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("Gpufault*.md"))}
GROUPS = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
HEADINGS = ["Meaning", "Impact", "First 5 minutes", "Mitigation", "False positives", "Related"]

SYMPTOMS = {"troubleshooting": (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")}
COMMANDS = [
    (name, command)
    for name, page in {**PAGES, **SYMPTOMS}.items()
    for line in typed(page)
    for command in programs(line)
]


def test_every_alert_has_one_runbook() -> None:
    assert PAGES.keys() == ALERTS.keys()


@pytest.mark.parametrize("name", PAGES)
def test_a_runbook_has_all_sections_and_valid_links(name: str) -> None:
    page = PAGES[name]
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == HEADINGS
    assert [line for block in consoles(page) for line in block if not line.startswith("$ ")] == []
    assert typed(page)
    assert [link for link in re.findall(r"\]\(([^)#]+)\)", page) if not (FOLDER / link).exists()] == []


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_command_of_a_runbook_is_valid(name: str, command: list[str]) -> None:
    program, *arguments = command
    if program == "gpufault":
        assert understood(command)
    elif program == "promtool":
        assert arguments[:3] == PROMETHEUS
        assert len(arguments) == 4
    else:
        assert program in PROGRAMS


@needs("promtool")
def test_every_query_of_a_runbook_is_valid_promql(tmp_path: Path) -> None:
    queries = [command[-1] for _, command in COMMANDS if command[0] == "promtool"]
    assert queries
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    command = ["promtool", "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs("jq")
@pytest.mark.parametrize("filter_", sorted({c[-1] for _, c in COMMANDS if c[0] == "jq"}))
def test_every_filter_of_a_runbook_is_valid_jq(filter_: str) -> None:
    done = subprocess.run(["jq", filter_], input="", check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


CAUSE, SIGNATURE = "gpu_lost_from_pcie", "nv_xid_79_fallen_off_bus"
CRASH = {
    "kind": "incident",
    "id": "1",
    "role": "root",
    "signature": SIGNATURE,
    "root_cause": CAUSE,
    "evidence": [{"value": "79"}],
}
OTHER = {"id": "0", "signature": "torch_oom", "root_cause": "unknown", "text": f"no {SIGNATURE}, no {CAUSE}"}
SEGMENTS = [  # each ends with records that only mention the crash, or are its consequences
    [CRASH, CRASH | OTHER],
    [CRASH, CRASH | {"id": "2", "role": "cascade", "signature": "srun_task_exit"}, CRASH | OTHER | {"role": "cascade"}],
]


@needs("jq")
@pytest.mark.parametrize(
    "line", [line for page in {**PAGES, **SYMPTOMS}.values() for line in typed(page) if ".jsonl" in line]
)
def test_a_runbook_finds_the_crash_in_the_journal_and_not_its_consequence(line: str, tmp_path: Path) -> None:
    for number, records in enumerate(SEGMENTS):
        segment = tmp_path / f"journal-00000{number}.jsonl"
        segment.write_text("".join(json.dumps(record) + "\n" for record in records))
    typed_here = (
        line.replace("ssh NODE", "sh -c").replace("/var/lib/gpufault/journal", str(tmp_path))
        .replace("SIGNATURE", SIGNATURE).replace("CAUSE", CAUSE)
    )  # fmt: skip
    done = subprocess.run(["sh", "-c", f"{typed_here} | jq -s last"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    shown = {key: value for key, value in json.loads(done.stdout).items() if key in CRASH}
    assert shown
    assert shown.items() <= CRASH.items()
