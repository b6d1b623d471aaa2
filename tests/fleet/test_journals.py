"""Journals as they are found: many files, twice the same, torn lines, clocks that run ahead."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from exporter.demo.simulated_journals import write_journals
from exporter.demo.simulator import FleetPlan, Planted, simulate
from exporter.fleet.input import journals
from exporter.fleet.input.journals import MAX_FACTS, LoadedWindow, NothingToRead, load
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.prepare import prepare

from .small import DAY, START

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FACTS = {"kind": "facts", "time": "2026-06-01T00:00:00.000Z", "node": "a", "facts": {"driver": "1", "os": None}}
BEAT = {"kind": "heartbeat", "time": "2026-06-02T00:00:00Z", "node": "a", "hours": 24.0, "gpu_busy_hours": None}
CRASH = {
    "kind": "incident",
    "id": "i1",
    "time": "2026-06-01T12:00:00Z",
    "node": "a",
    "signature": "x",
    "job": {"id": "7", "user": "u"},
}
NOW = START + 30 * DAY
JOURNALS_PAGE = Path(__file__).parents[2] / "docs" / "journals.md"
PLANTED = Planted(signature="crash", facts=(("color", "red"),), ratio=12)


def written(path: Path, *records: dict[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))


def read(folder: Path, *, now: float = NOW, span: float = 7 * DAY) -> LoadedWindow:
    return load(folder, now=now, span=span)


def kinds(loaded: LoadedWindow) -> dict[str, int]:
    return {gap.kind: gap.count for gap in loaded.observed.gaps}


def test_what_services_export_says_together_what_all_journals_say(tmp_path: Path) -> None:
    colors = ("color", (("red", 0.2), ("blue", 0.8)))
    fleet = simulate(FleetPlan(nodes=600, facts=6, rate=60.0, days=7, planted=(PLANTED,), fixed=(colors,), seed=1))
    write_journals(fleet, tmp_path / "all")
    export = JOURNALS_PAGE.read_text().partition("```sql\n")[2].partition("```")[0]
    (tmp_path / "merged").mkdir()
    for service in ("a", "b"):
        own = tmp_path / service
        for journal in (tmp_path / "all").glob("*.jsonl"):
            lines = journal.read_text().splitlines()
            written(
                own / journal.name, *(x for x in lines if (json.loads(x)["node"][-1] in "02468") == (service == "a"))
            )
        with journals.journals(own, now=fleet.window.end) as db:
            db.execute(export.replace("merged/a-", f"{tmp_path}/merged/{service}-"))

    one, other = (load(tmp_path / of, now=fleet.window.end, span=7 * DAY) for of in ("all", "merged"))
    findings = [correlate(loaded.observed, loaded.window).findings for loaded in (one, other)]
    said = [[(f.signature, f.facts, f.observed, f.crashes, f.examples) for f in of] for of in findings]
    assert said[0]
    assert said[0] == said[1]


def test_heartbeats_of_a_large_fleet_are_merged_by_node_and_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    colors = ("color", (("red", 0.2), ("blue", 0.8)))
    fleet = simulate(
        FleetPlan(nodes=1500, rate=60, days=7, beat_hours=6.0, planted=(PLANTED,), fixed=(colors,), seed=1)
    )
    write_journals(fleet, tmp_path / "journals")
    whole = read(tmp_path / "journals")
    monkeypatch.setattr(journals, "MAX_BEATS", len(whole.observed.beats.node) - 1)
    merged = read(tmp_path / "journals")

    assert (len(whole.observed.beats.node), len(merged.observed.beats.node)) == (1500 * 7 * 4, 1500 * 7)
    for field in ("hours", "busy"):
        sums = [np.bincount(one.beats.node, getattr(one.beats, field)) for one in (whole.observed, merged.observed)]
        assert sums[0] == pytest.approx(sums[1])
    for one in (whole, merged):
        (first, *_) = correlate(one.observed, one.window).findings
        assert (first.signature, str(first.facts[0])) == (PLANTED.signature, "color=red")


def test_the_records_of_a_node_are_read_and_the_window_ends_with_the_newest(tmp_path: Path) -> None:
    written(tmp_path / "journal-000001.jsonl", FACTS, BEAT, CRASH)
    loaded = read(tmp_path)
    observed = loaded.observed

    assert observed.nodes == ("a",)
    assert observed.signatures == ("x",)
    assert (observed.facts.names, observed.facts.values) == (("driver",), (("1",),))
    assert list(observed.beats.hours) == [24.0]
    assert loaded.window.end == pytest.approx(START + DAY, abs=0.01)
    assert observed.gaps == ()


def test_segments_in_any_depth_and_form_are_one_journal(tmp_path: Path) -> None:
    written(tmp_path / "a" / "journal-000001.jsonl", FACTS)
    (tmp_path / "b").mkdir()
    with gzip.open(tmp_path / "b" / "journal-000002.jsonl.gz", "wt") as file:
        file.write(json.dumps(BEAT) + "\n")
    written(tmp_path / "crash.jsonl", CRASH)
    parquet = str(tmp_path / "crash.parquet")
    duckdb.execute(
        f"COPY (SELECT * FROM read_json('{tmp_path}/crash.jsonl', format = 'newline_delimited')) TO '{parquet}'"
    )
    (tmp_path / "crash.jsonl").unlink()
    observed = read(tmp_path).observed

    assert (len(observed.facts.node), len(observed.beats.node), len(observed.incidents.node)) == (1, 1, 1)
    assert observed.incidents.user[0] == 0


def test_parquet_holds_facts_as_struct_map_or_text(tmp_path: Path) -> None:
    for name, facts in (("s", "{'driver': '1'}"), ("m", "MAP {'driver': '1'}"), ("t", '\'{"driver": "1"}\'')):
        row = f"SELECT 'facts' AS kind, TIMESTAMP '2026-06-01' AS time, '{name}' AS node, {facts} AS facts"
        duckdb.execute(f"COPY ({row}) TO '{tmp_path}/{name}.parquet'")
    observed = read(tmp_path).observed

    assert observed.nodes == ("m", "s", "t")
    assert observed.facts.values == (("1",),)
    assert observed.facts.codes.tolist() == [[0], [0], [0]]


def test_a_record_that_comes_twice_counts_once(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", FACTS, BEAT, CRASH, FACTS, BEAT, CRASH)
    written(tmp_path / "2.jsonl", BEAT, CRASH)
    loaded = read(tmp_path)

    assert len(loaded.observed.incidents.node) == 1
    assert prepare(loaded.observed, loaded.window).design.states.hours.sum() == pytest.approx(24.0, abs=0.01)


def test_incidents_without_ids_are_the_same_when_all_that_tells_them_apart_is(tmp_path: Path) -> None:
    crash = {k: v for k, v in CRASH.items() if k != "id"}
    written(tmp_path / "1.jsonl", FACTS, BEAT, crash, crash, {**crash, "time": "2026-06-01T13:00:00Z"})

    assert len(read(tmp_path).observed.incidents.node) == 2


def test_consequences_are_no_evidence_of_their_own(tmp_path: Path) -> None:
    cascade = {**CRASH, "id": "i2", "role": "cascade", "caused_by": "i1"}
    peer = {**CRASH, "id": "i3", "root_cause": "peer_failure"}
    written(tmp_path / "1.jsonl", FACTS, BEAT, CRASH, cascade, peer)

    assert list(read(tmp_path).observed.incidents.id) == ["i1"]


def test_lines_that_do_not_parse_are_counted_and_named(tmp_path: Path) -> None:
    torn = json.dumps(CRASH)[:40]
    written(
        tmp_path / "1.jsonl", FACTS, torn, BEAT, "", "\x00\x00", {**CRASH, "time": "yesterday"}, {**BEAT, "hours": -3},
        {**FACTS, "facts": "none"}, {"kind": "weather", "time": 3},
    )  # fmt: skip
    gap = read(tmp_path).observed.gaps[0]

    assert (gap.kind, gap.count) == ("bad_lines", 5)
    for place in (
        "1.jsonl:2: not JSON",
        "1.jsonl:5: not JSON",
        "1.jsonl:6: no usable time",
        "1.jsonl:7: no usable hours",
        "1.jsonl:8: no usable facts",
    ):
        assert place in gap.message


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_of_a_damaged_archive_what_stands_before_the_damage_is_read(tmp_path: Path, ending: str) -> None:
    crashes = [{**CRASH, "id": f"{number:08x}" * 4, "text": f"x{number}"} for number in range(2000)]
    written(tmp_path / "2.jsonl", *crashes)
    packed = (gzip.compress if ending == ".gz" else zstd.compress)((tmp_path / "2.jsonl").read_bytes())
    (tmp_path / "2.jsonl").unlink()
    written(tmp_path / "1.jsonl", FACTS, BEAT)
    half = packed[: len(packed) // 2]
    (tmp_path / f"2.jsonl{ending}").write_bytes(half if ending == ".gz" else half + bytes(100) + half)
    (tmp_path / "3.parquet").write_bytes(b"PAR1")
    loaded = read(tmp_path)

    assert 200 < len(loaded.observed.incidents.id) < 2000
    assert kinds(loaded) == {"damaged_files": 2}
    assert f"2.jsonl{ending}" in loaded.observed.gaps[0].message


def test_where_all_is_damaged_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "3.parquet").write_bytes(b"PAR1")
    with pytest.raises(OSError, match="journals cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[" * 100_000, "not JSON"),
        ({**CRASH, "node": "x", "captures": {}, "time": int("9" * 400)}, "no usable time"),
        ({**BEAT, "hours": int("9" * 400)}, "no usable hours"),
    ],
    ids=["lists in lists", "a long time", "long hours"],
)
def test_no_line_of_one_node_stops_the_reading_of_all(tmp_path: Path, line: dict[str, Any] | str, why: str) -> None:
    written(tmp_path / "1.jsonl", FACTS, BEAT, CRASH, line)
    loaded = read(tmp_path)

    assert len(loaded.observed.incidents.node) == 1
    assert kinds(loaded)["bad_lines"] == 1
    assert why in loaded.observed.gaps[0].message


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "9" * 5000], ids=["lists in lists", "a long number"])
def test_facts_of_one_node_that_cannot_be_read_leave_those_of_the_others(tmp_path: Path, value: str) -> None:
    unread = f'{{"kind": "facts", "node": "other", "time": "{FACTS["time"]}", "facts": {{"a": {value}}}}}'
    written(tmp_path / "1.jsonl", FACTS, BEAT, CRASH, unread)

    assert read(tmp_path).observed.facts.names == ("driver",)


def test_facts_that_one_node_makes_up_do_not_crowd_out_those_of_the_others(tmp_path: Path) -> None:
    made_up = {**FACTS, "node": "z", "facts": {f"a{number}": "x" for number in range(2 * MAX_FACTS)}}
    written(tmp_path / "journal-000001.jsonl", made_up, FACTS, {**FACTS, "node": "b"}, BEAT, CRASH)
    facts = read(tmp_path).observed.facts

    assert len(facts.names) == MAX_FACTS
    assert facts.names[0] == "driver"
    assert (facts.codes[:, 0] + 1).tolist() == [1, 1, 0]
    assert kinds(read(tmp_path)) == {"facts_left_out": MAX_FACTS + 1}


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.parquet"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    written(tmp_path / "journal-000001.jsonl", FACTS, BEAT, CRASH)
    os.mkfifo(tmp_path / name)

    assert kinds(read(tmp_path)) == {"damaged_files": 1}


def test_bytes_that_are_no_text_do_not_stop_the_reading(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", FACTS, BEAT)
    with open(tmp_path / "1.jsonl", "ab") as file:
        file.write(b'{"kind": "incident", "node": "\xff\xfe"}\n' + json.dumps(CRASH).encode() + b"\n\xff")
    loaded = read(tmp_path)

    assert len(loaded.observed.incidents.node) == 1
    assert kinds(loaded) == {"bad_lines": 2}


def test_a_node_whose_clock_runs_ahead_does_not_move_the_window(tmp_path: Path) -> None:
    ahead = [{**record, "node": "b", "time": "2031-01-01T00:00:00Z"} for record in (FACTS, BEAT)]
    written(tmp_path / "1.jsonl", FACTS, BEAT, CRASH, *ahead)
    loaded = read(tmp_path)

    assert loaded.window.end == pytest.approx(START + DAY, abs=0.01)
    assert kinds(loaded) == {"clock_ahead": 2}
    assert "b" in loaded.observed.gaps[0].message


def test_where_all_are_ahead_it_is_our_own_clock_that_is_wrong(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", FACTS, BEAT, CRASH)

    assert read(tmp_path, now=0.0).observed.gaps == ()


def test_times_may_be_unix_seconds_or_carry_a_zone(tmp_path: Path) -> None:
    zone = {**CRASH, "id": "2", "time": "2026-06-01T03:00:00+02:00"}
    written(tmp_path / "1.jsonl", FACTS, BEAT, {**CRASH, "time": START + 3600}, zone)

    assert sorted(read(tmp_path).observed.incidents.time - START) == [3600.0, 3600.0]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_where_no_journal_is_it_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(NothingToRead, match=name):
        read(tmp_path / name)


def test_only_the_earlier_window_that_was_watched_is_there_to_be_compared(tmp_path: Path) -> None:
    beats = [{**BEAT, "time": START + day * DAY} for day in range(1, 15)]
    written(tmp_path / "1.jsonl", FACTS, *beats)

    assert read(tmp_path, span=7 * DAY).before is not None
    assert read(tmp_path, span=10 * DAY).before is None
