"""Documentation pages: their commands, metrics, configuration keys and links exist."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.commands import programs, understood, written

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PATHS = [
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("internals/**/*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
]
PAGES = {
    str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else f"../{path.name}": path.read_text(encoding="utf-8")
    for path in PATHS
}
COMMANDS = [
    (name, command)
    for name, page in PAGES.items()
    for line in written(page)
    for command in programs(line)
    if command[0] == "gpufault" and command[1] not in {"COMMAND", "…"}  # any of them
]
RECORDED = re.compile(r"[a-z_]+:gpufault_[a-z_]+:[a-z0-9]+")
SHORTENED = re.compile(r"gpufault_[a-z_]*(?:…|\()")  # a family of them
METRIC = re.compile(r"\b(?:gpufault|problem)_(?!test_line)[a-z_]*[a-z]\b")


def code(page: str) -> str:
    """Everything between backticks."""
    return "\n".join(re.findall(r"```.*?```|`[^`]+`", page, re.DOTALL))


def heading_ids(page: str) -> set[str]:
    """The anchors that GitHub makes of headings, and those that a page names itself."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', page))


def test_a_line_is_split_as_a_shell_would() -> None:
    assert list(programs("gpufault facts > f.json; sudo gpufault doctor 2>&1 | tail -n 1  # all of it")) == [
        ["gpufault", "facts"],
        ["gpufault", "doctor", "2"],
        ["tail", "-n", "1"],
    ]
    assert list(programs("kubectl exec POD -- gpufault inject")) == [
        ["kubectl", "exec", "POD", "--", "gpufault", "inject"],
        ["gpufault", "inject"],
    ]
    assert not understood(["gpufault", "doctor", "--no-such-flag"])


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_command_on_a_page_is_valid(name: str, command: list[str]) -> None:
    assert understood(command)


def test_commands_are_found_in_every_form_of_markup() -> None:
    assert {"../README.md", "correlator.md", "faq.md", "install-kubernetes.md", "install-slurm.md", "upgrading.md"} <= {
        name for name, _ in COMMANDS
    }


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_metric_on_a_page_exists(name: str) -> None:
    known = set(re.findall(r"^\| `(\w+)`", PAGES["metrics.md"], re.MULTILINE))
    text = SHORTENED.sub("", RECORDED.sub("", code(PAGES[name])))
    assert set(METRIC.findall(text)) - known == set()


@pytest.mark.parametrize("name", ["faq.md", "install-linux.md", "troubleshooting.md", "tuning.md", "upgrading.md"])
def test_a_configuration_key_on_a_page_exists(name: str) -> None:
    known = set(re.findall(r"^\| `([\w.]+)`", PAGES["configuration.md"], re.MULTILINE))
    sections = {key.partition(".")[0] for key in known if "." in key}
    named = {key for key in re.findall(r"`(\w+\.\w+)", PAGES[name]) if key.partition(".")[0] in sections}
    assert named - known == set()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_link_on_a_page_resolves(name: str) -> None:
    folder = (DOCS / name).parent.resolve()
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"```.*?```", "", PAGES[name], flags=re.DOTALL))
    for path, _, anchor in (link.partition("#") for link in links):
        target = folder / path if path else (DOCS / name).resolve()
        assert target.exists(), path
        if anchor:
            assert anchor in heading_ids(target.read_text(encoding="utf-8")), f"{path}#{anchor}"


def test_the_index_links_to_every_page() -> None:
    linked = {
        posixpath.join(posixpath.dirname(index), path)
        for index in ("README.md", "internals/decisions/README.md")
        for path in re.findall(r"\]\(([\w/-]+\.md)\)", PAGES[index])
    }
    assert {name for name in PAGES if ".." not in name} - {"README.md"} - linked == set()


@pytest.mark.parametrize("name", [name for name in sorted(PAGES) if re.match(r"internals/decisions/\d{4}-", name)])
def test_a_decision_is_short(name: str) -> None:
    parts = re.findall(r"^\*\*([\w ]+)", PAGES[name], re.MULTILINE)
    assert [*parts[:3], parts[-1]] == ["Context", "Decision", "Rejected", "Look again when"]
    assert len(PAGES[name]) <= 1500


def test_the_index_has_at_most_a_dozen_entries() -> None:
    assert len(re.findall("^- ", PAGES["README.md"], re.MULTILINE)) <= 12


def test_no_alert_needs_a_series_that_the_tuning_page_drops() -> None:
    (scrape,) = (y for y in re.findall(r"```yaml\n(.*?)```", PAGES["tuning.md"], re.DOTALL) if "metric_relabel" in y)
    (job,) = yaml.safe_load(scrape)["scrape_configs"]
    expressions = [
        rule["expr"]
        for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    asked = [
        (metric, dict(re.findall(r'(\w+)="([^"]*)"', matchers or "")))
        for expression in expressions
        for metric, matchers in re.findall(r"\b(gpufault_\w+)(?:\{([^}]*)\})?(?!:)", RECORDED.sub("", expression))
    ]
    assert ("gpufault_signature_info", {"severity": "critical"}) in asked
    rules = job["metric_relabel_configs"]
    assert all(rule["action"] == "drop" for rule in rules)
    assert [each for rule in rules for each in asked if may_drop(rule, *each)] == []


def may_drop(rule: dict[str, Any], metric: str, matchers: dict[str, str]) -> bool:
    """Whether a relabelling rule can drop a series of this selector; a label without a matcher may have any value."""
    metrics, *values = rule["regex"].split(";")
    labels = zip(rule["source_labels"][1:], values, strict=True)
    return re.fullmatch(metrics, metric) is not None and all(
        label not in matchers or re.fullmatch(value, matchers[label]) for label, value in labels
    )


@pytest.mark.parametrize("name", re.findall(r"\]\((docs/images/[\w-]+\.png)\)\]", PAGES["../README.md"]))
def test_a_picture_is_small(name: str) -> None:
    picture = (ROOT / name).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 300_000
