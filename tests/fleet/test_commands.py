"""`gpufault simulate` and `gpufault correlate` as their users run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import main

CONTRACT = {"window", "nodes", "incidents", "tests", "complete", "findings", "not_enough_data", "lemons", "exposed"}
FINDING = {
    "signature", "facts", "observed", "expected", "nodes_with", "nodes_without", "rate_ratio", "rate_ratio_low",
    "rate_ratio_high", "p_value", "q_value", "status", "counter_evidence", "examples", "tie_breakers",
}  # fmt: skip


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "journal"
    assert main(["simulate", str(folder), "--case", "miopen_backward_weights_rocm_6_3_0", "--window", "14d"]) == 0
    return folder


def correlated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main(["correlate", "--format", "json", *arguments])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_every_field_and_the_window_before_confirms_where_nothing_is_remembered(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = correlated(capsys, "--journal", str(journal))

    assert found.keys() >= CONTRACT
    assert found["findings"][0].keys() >= FINDING
    assert found["findings"][0]["facts"][0] == {"fact": "rocm_version", "value": "6.3.0"}
    assert found["complete"] is True
    assert found["findings"][0]["status"] == "confirmed"
    assert correlated(capsys, "--journal", str(journal), "--window", "14d")["findings"][0]["status"] == "candidate"


def test_a_remembered_candidate_is_confirmed_by_a_later_window_only(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("--journal", str(journal), "--findings.file", str(tmp_path / "findings.json"))
    first = ("--start", "2026-06-01T00:00:00Z", "--end", "2026-06-08T00:00:00Z")

    assert correlated(capsys, *kept, *first)["findings"][0]["status"] == "candidate"
    assert correlated(capsys, *kept, *first)["findings"][0]["status"] == "candidate"
    again = correlated(capsys, *kept, "--start", "2026-06-08T00:00:00Z", "--end", "2026-06-15T00:00:00Z")
    assert again["findings"][0]["status"] == "confirmed"
    assert again["findings"][0]["first_seen"]["end"] == "2026-06-08T00:00:00.000Z"


def test_a_finding_is_text_of_at_most_100_columns(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["correlate", "--journal", str(journal)]) == 1
    text = capsys.readouterr().out

    assert "miopen_slow_convolution is " in text
    assert "times as frequent on nodes with rocm_version=6.3.0" in text
    assert "confirmed: found in 2026-06-01" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_one_torn_line_makes_the_answer_incomplete_and_no_less_an_answer(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join(p.read_bytes() for p in sorted(journal.iterdir())) + b'{"kind": "inc')
    found = correlated(capsys, "--journal", str(torn))

    assert found["complete"] is False
    assert "torn.jsonl:" in found["gaps"][0]["what"]
    assert found["findings"]


def test_no_findings_are_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path / "j"), "--nodes", "200"]) == 0
    assert main(["correlate", "--journal", str(tmp_path / "j")]) == 0
    assert "No finding: no fact is shown" in capsys.readouterr().out


def test_planted_causes_are_found_with_the_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path / "j"), "--causes", "3"]) == 0
    planted = capsys.readouterr().err
    assert main(["correlate", "--journal", str(tmp_path / "j"), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]

    first = f"{found[0]['signature']} 8 times as frequent with {found[0]['facts'][0]['fact']}="
    assert first + found[0]["facts"][0]["value"] in planted


def test_lost_journals_are_gaps_and_renamed_nodes_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--nodes", "300", "--window", "14d", "--renamed", "0.2"]
    assert main(["simulate", str(tmp_path / "whole"), *options]) == 0
    assert main(["simulate", str(tmp_path / "lost"), *options, "--missing", "0.2"]) == 0
    gaps = []
    for name in ("whole", "lost"):
        capsys.readouterr()
        main(["correlate", "--journal", str(tmp_path / name), "--format", "json", "--window", "3d"])
        gaps.append({gap["kind"] for gap in json.loads(capsys.readouterr().out)["gaps"]})

    assert gaps[0] <= {"nodes_without_exposure"}  # the old names of nodes renamed shortly before
    assert "nodes_without_exposure" in gaps[1]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["correlate", "--journal", "/nowhere"], 3, "/nowhere"),
        (["correlate", "--journal", ".", "--window", "soon"], 2, "7d"),
        (["correlate", "--journal", ".", "--end", "soon"], 2, "2026-06-01T00:00:00Z"),
        (["correlate", "--journal", ".", "--start", "1", "--window", "7d"], 2, "give one"),
        (["simulate", "x", "--case", "no_such"], 2, "is not a case; use one of: review"),
        (["simulate", "x", "--nodes", "0"], 2, "--nodes"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert told in capsys.readouterr().err


def test_a_store_that_is_none_is_not_overwritten(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "findings.json"
    store.write_text('{"version": 9}')

    assert main(["correlate", "--journal", str(journal), "--findings.file", str(store)]) == 2
    assert str(store) in capsys.readouterr().err
    assert store.read_text() == '{"version": 9}'


FACTS = {"kind": "facts", "time": "2026-06-01T00:00:00Z", "node": "a", "facts": {"os": "\x1b[31mred"}}
BEAT = {"kind": "heartbeat", "time": "2026-06-02T00:00:00Z", "node": "a", "hours": 24}
CRASH = {"kind": "incident", "time": "2026-06-01T09:00:00Z", "node": "a", "signature": "x\x1b]0;title\x07"}


@pytest.mark.parametrize(
    ("records", "gap"),
    [
        ([CRASH], "nodes whose facts are not known"),
        ([BEAT, CRASH], "nodes without facts"),
        ([FACTS], "no heartbeats"),
        ([FACTS, CRASH], "no heartbeats"),
        ([FACTS, {**BEAT, "hours": 0}, CRASH], "no hours of exposure"),
        ([{**FACTS, "facts": {}}, BEAT, CRASH], None),
    ],
)
def test_what_a_journal_lacks_is_a_stated_gap_and_no_crash(
    records: list[dict[str, Any]], gap: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "j.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["correlate", "--journal", str(tmp_path)]) == 0
    text = capsys.readouterr().out

    assert ("Incomplete" in text) is (gap is not None)
    assert (gap or "") in " ".join(text.split())
    assert "\x1b" not in text


def test_two_fleets_do_not_get_into_one_folder(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(journal)]) == 3
    assert "not empty" in capsys.readouterr().err


def hand_written(folder: Path, crashing: range) -> None:
    """Journals of a hundred nodes over a week; every fourth has another driver, whose name fills a page."""
    for number in range(100):
        driver = f"{'x' * 4000}-bad" if number % 4 == 0 else "good"
        told: list[dict[str, object]] = [{"kind": "facts", "time": "2026-06-01T00:00:00Z", "facts": {"driver": driver}}]
        told += [{"kind": "heartbeat", "time": f"2026-06-0{day}T00:00:00Z", "hours": 24} for day in range(2, 9)]
        if number in crashing:
            told.append(
                {
                    "kind": "incident",
                    "time": "2026-06-03T12:00:00Z",
                    "signature": "torch_oom",
                    "job": {"id": str(number)},
                }
            )
        lines = [json.dumps({"node": f"n{number}", **record}) for record in told]
        (folder / f"n{number}.jsonl").write_text("\n".join(lines) + "\n")


def test_a_fleet_without_a_crash_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_written(tmp_path, range(0))
    assert main(["correlate", "--journal", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "There was no crash." in told
    assert "No finding: no fact" not in told


def test_what_does_not_speak_against_a_finding_is_not_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_written(tmp_path, range(0, 100, 4))
    assert main(["correlate", "--journal", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "torch_oom is at least " in told
    assert "0 of 25" not in told
    assert max(map(len, told.splitlines())) < 200


def test_a_window_that_ends_before_it_begins_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_written(tmp_path, range(0))
    for more in (["--end", "2026-06-02T00:00:00Z"], []):
        assert main(["correlate", "--journal", str(tmp_path), "--start", "2026-07-01T00:00:00Z", *more]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("gpufault correlate: --start: is not before the end, 2026-06-0")


def test_the_cases_are_listed_without_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--case", "list"]) == 0
    assert "onednn_pvc_scoreboard_hazard" in capsys.readouterr().out.splitlines()
    assert main(["simulate"]) == 2
    assert "give OUTPUT" in capsys.readouterr().err
