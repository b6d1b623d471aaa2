"""`gpufault report`: the same numbers in every format, the same as the correlator's, and harmless."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from exporter.cli import report as command
from exporter.cli.main import main
from exporter.fleet.report import document
from exporter.fleet.report.wording import effect_of, most_at_risk
from exporter.fleet.statistics.findings import FactValue, NodesAtRisk
from tests.fleet.review.fleets import crash, journal, watched
from tests.fleet.test_service_parts import EFFECT, FINDING, RESULT

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=y> \u202e\n\n# [x](javascript:y) @here `a` |\u2028" + "x" * 10_000
)
FORMULA = '=HYPERLINK("http://example.com")'
VOID = {"meta", "br"}
SCHEMA = json.loads((Path(document.__file__).parent / "schema.json").read_text())


@cache
def review(folder: Path, compare: str) -> tuple[Any, ...]:
    """What the command has to render, computed once for all formats."""
    computed = list[tuple[Any, ...]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_rendered", lambda _form, _table, *review: computed.append(review) or "")
        printed = printed_by("--journal", str(folder), "--compare", compare)
    assert printed == ""
    return computed[0]


def written(folder: Path, form: str = "html", table: str = "causes", *, compare: str = "previous") -> str:
    return command._rendered(form, table, *review(folder, compare))


def printed_by(*flags: str) -> str:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert main(["report", *flags]) == 0
    assert err.getvalue() == ""
    return out.getvalue()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 nodes over four weeks with a planted cause."""
    folder = tmp_path_factory.mktemp("fleet")
    flags = ["--nodes", "300", "--window", "28d", "--causes", "1", "--rate", "60", "--seed", "5", "--lemon", "30"]
    assert main(["simulate", str(folder), *flags]) == 0
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every field that a journal's writer chooses, with a text that breaks out of each format."""
    nodes = [f"{HOSTILE}{i}" for i in range(3)]
    fields: dict[str, Any] = {
        "root_cause": HOSTILE, "job": {"id": HOSTILE, "user": HOSTILE}, "text": HOSTILE, "path": HOSTILE, "gpu": HOSTILE,
        "captures": {"template": HOSTILE},
    }  # fmt: skip
    records = [
        crash(node, 22 + i, signature, **fields) for i, node in enumerate(nodes) for signature in (HOSTILE, FORMULA)
    ]
    records += [crash(node, 23 + i, FORMULA, id=f"f{i}") for i, node in enumerate(nodes)]
    records += [crash(nodes[0], 24, "unrecognised_crash", **{**fields, "root_cause": "unknown"})]
    facts = {"gpu_count": "8", HOSTILE: HOSTILE, "gpu_model": HOSTILE}
    return journal(
        tmp_path_factory.mktemp("hostile"), [*watched(nodes, facts=facts), *watched([FORMULA], days=20), *records]
    )


class Page(HTMLParser):
    """The tags of a page, with their attributes; its texts; and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_numbers_are_the_correlators(fleet: Path, tmp_path: Path) -> None:
    report = json.loads(written(fleet, "json"))
    main(["correlate", "--journal", str(fleet), "--format", "json", "--output", str(tmp_path / "c.json")])
    correlation: Mapping[str, Any] = json.loads((tmp_path / "c.json").read_text())
    assert report["correlation"] == correlation
    assert correlation["findings"] != []
    totals = report["totals"]
    assert (totals["incidents"], totals["origins"], report["nodes"]) == (
        correlation["incidents"], correlation["origins"], correlation["nodes"],
    )  # fmt: skip
    assert totals["exposure_hours"] == pytest.approx(correlation["window"]["exposure_hours"], rel=0.01)
    assert report["exposure"] == correlation["window"]["exposure"]
    assert sum(cause["incidents"] for cause in report["causes"]) == totals["incidents"]


def test_lost_gpu_hours_are_the_correlators(tmp_path: Path) -> None:
    job = {"job": {"id": "1"}}
    records = [crash("a", 22, **job), crash("b", 22, "other", **job), crash("a", 24), crash("b", 15)]
    report = json.loads(written(journal(tmp_path, [*watched("abc"), *records]), "json"))
    assert report["totals"]["lost_gpu_hours"] == report["correlation"]["lost_gpu_hours"]["hours"] == 24.0


@pytest.mark.parametrize("which", ["fleet", "hostile"])
def test_json_keeps_its_schema(which: str, request: pytest.FixtureRequest) -> None:
    report = written(request.getfixturevalue(which), "json")
    assert report.isascii()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(report), SCHEMA)


def test_every_format_says_the_same(fleet: Path) -> None:
    report = json.loads(written(fleet, "json"))
    page, chat = written(fleet), written(fleet, "md")
    rows = list(csv.DictReader(io.StringIO(written(fleet, "csv"))))
    assert [int(row["incidents"]) for row in rows] == [cause["incidents"] for cause in report["causes"]]
    (at_risk,) = report["correlation"]["exposed"]
    assert "Nodes at risk" in page
    assert f"**Nodes at risk**\n- {at_risk['because']}: {at_risk['count']} nodes, " in chat
    assert f"**\n\n{report['totals']['incidents']:,} root incidents on " in chat
    lead = report["causes"][0]
    assert f"{lead['incidents']:,} on {lead['nodes']} nodes" in chat
    assert report["verdict"].split(",")[0] in " ".join(Page(page).texts)
    assert report["verdict"].split(",")[0] in chat


@pytest.mark.parametrize("which", ["fleet", "hostile"])
def test_html_is_one_harmless_file(which: str, request: pytest.FixtureRequest) -> None:
    text = written(request.getfixturevalue(which))
    assert len(text.encode()) < 400_000
    page = Page(text)
    assert set(page.open) <= {"html"}
    assert not {"script", "img", "a", "link", "iframe"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name in {"style", "href", "src"}}
    assert not {"\u202e", "\u2028", "\x00"} & set(text)
    assert text.count("<style>") == 1
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.parametrize("which", ["fleet", "hostile"])
def test_markdown_fits_a_chat(which: str, request: pytest.FixtureRequest) -> None:
    lines = written(request.getfixturevalue(which), "md").splitlines()
    assert len(lines) <= 40
    assert all(len(line) < 700 for line in lines)
    text = "\n".join(lines)
    assert not re.search(r"<[a-z!@]|(?<!\\)\]\(|(?<!\\)`|@here|\u202e|\u2028", text)


@pytest.mark.parametrize("table", command.TABLES)
def test_no_cell_of_csv_is_a_formula(table: str, hostile: Path) -> None:
    rows = list(csv.reader(io.StringIO(written(hostile, "csv", table), newline="")))
    assert rows
    assert {len(row) for row in rows} == {len(rows[0])}
    for cell in (cell for row in rows for cell in row):
        assert not re.match(r"\s*[=+@]|\s*-(?![\d.])", cell)
        assert not {"\n", "\r", "\u202e"} & set(cell)


def test_a_hostile_signature_is_in_the_csv_as_text(hostile: Path) -> None:
    printed = printed_by("--journal", str(hostile), "--format", "csv")
    assert printed == written(hostile, "csv")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert f"'{FORMULA}" in {row["id"] for row in rows}


def test_nodes_that_several_reasons_put_at_risk_count_once() -> None:
    def at_risk(because: str, nodes: Sequence[str], count: int = 0, expected: float = 1.0) -> NodesAtRisk:
        return NodesAtRisk(
            because=because, signature="crash", status="candidate", nodes=tuple(nodes), count=count or len(nodes),
            expected_7d=expected,
        )  # fmt: skip

    def most(*reasons: NodesAtRisk) -> tuple[int, str] | None:
        return most_at_risk(replace(RESULT, exposed=reasons))

    reasons = [at_risk("a=1", "abc"), at_risk("b=2", "cdefghi"), at_risk("c=3", "ghxyz")]
    assert most(*reasons) == (12, "b=2 and 2 other reasons")
    assert most(reasons[0]) == (3, "a=1")
    assert most(at_risk("rare", ["rare"], 99, 0.01), *reasons) == (12, "b=2 and 2 other reasons")
    assert most(at_risk("a=1", "abc", 5000)) == (5000, "a=1")
    assert most() is None


def test_the_tables_of_the_command_are_those_of_the_document() -> None:
    assert set(command.TABLES) == set(document.TABLES)


def test_a_quiet_week_is_short(tmp_path: Path) -> None:
    folder = journal(tmp_path, watched("ab"))
    assert len(written(folder, "md").splitlines()) <= 5
    page = written(folder)
    assert page.count("<section>") <= 1
    assert "No root incident on 2 nodes." in page
    assert "Alerts: not known; add --prometheus URL to see which alerts fired." in page
    assert json.loads(written(folder, "json"))["alerts"] is None


def test_a_secret_in_a_line_is_not_in_the_report(tmp_path: Path) -> None:
    told = {
        "captures": {"template": "password=hunter2hunter2"},
        "text": "password=hunter2hunter2",
        "path": "x",
        "line": 1,
    }
    folder = journal(tmp_path, [*watched("a"), crash("a", 22, "unrecognised_crash", **told)])
    for form in ("html", "md", "json"):
        assert "hunter2" not in written(folder, form)
    assert "hunter2" not in written(folder, "csv", "unrecognised")


def test_without_comparison_no_change_is_shown(fleet: Path) -> None:
    report = json.loads(written(fleet, "json", compare="none"))
    assert (report["change"], report["compared_with"], report["causes"][0]["change"]) == (None, None, None)


def test_the_output_file_is_replaced_whole(fleet: Path, tmp_path: Path) -> None:
    target = tmp_path / "review.html"
    target.write_text("the last one")
    assert printed_by("--journal", str(fleet), "--output", str(target)) == ""
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["review.html"]


def test_a_folder_without_journals_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()  # of fixtures
    assert main(["report", "--journal", str(tmp_path)]) == 3
    assert "no journal here" in capsys.readouterr().err


def test_paper_is_not_taken_for_a_phone(fleet: Path) -> None:
    page = written(fleet)  # A4 between its margins is narrower than the limit of a phone's layout
    assert set(re.findall(r"@media ([^{]*)\(max-width", page)) == {"screen and "}


def test_what_the_window_before_asked_for_is_open_while_its_reason_is_there(tmp_path: Path) -> None:
    crashes = [crash("a", day, root_cause="nvlink_or_switch_fault") for day in (15, 16)]
    gone = journal(tmp_path / "gone", [*watched("ab"), *crashes])
    again = journal(tmp_path / "again", [*watched("ab"), *crashes, crash("b", 25, root_cause="nvlink_or_switch_fault")])
    for folder, is_open in ((gone, False), (again, True)):
        found = json.loads(written(folder, "json"))
        jsonschema.validate(found, SCHEMA)
        assert [each["open"] for each in found["actions"]] == [is_open]
        assert ("still open" if is_open else "not found again") in written(folder)
    assert json.loads(written(again, "json", compare="none"))["actions"] == []


def test_code_in_a_remediation_has_no_backticks_in_html(tmp_path: Path) -> None:
    folder = journal(tmp_path, [*watched("ab"), *(crash("a", day, "unrecognised_crash") for day in (15, 25))])
    page = " ".join(Page(written(folder)).texts)
    assert "'gpufault unknowns'" in page
    assert "`" not in page


def test_a_rollout_names_the_findings_about_it() -> None:
    new = EFFECT.rollout
    other = replace(new, facts=(FactValue(fact="kernel", value="6"),))
    repair = replace(other, verdict="follows_crashes")
    found = replace(FINDING, rollout=EFFECT)
    correlation = replace(RESULT, findings=(FINDING, found, found))
    effects = [effect_of(correlation, each) for each in (new, other, repair)]
    assert effects == ["see finding 2, 3", "no effect found", "unknown"]
