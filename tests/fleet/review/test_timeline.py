"""What happened on a node, or to a job."""

from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.observations import Window
from exporter.fleet.review.event_timeline import changed_facts, duration, of_job, of_node
from tests.fleet.review.fleets import DAY, START, crash, history, journal, watched

MONTH = Window(start=START, end=START + 28 * DAY)


def test_a_nodes_crashes_changes_and_silences_are_in_order(tmp_path: Path) -> None:
    beats = [each for i, each in enumerate(watched("a")) if not 10 <= i <= 15]  # ten days, then six without a heartbeat
    changed = {"kind": "facts", "time": rfc3339(START + 20 * DAY), "node": "a", "facts": {"gpu_count": "7"}}
    crashes = [
        crash("a", 22, source="kernel", gpu="3b:00"),
        crash("a", 21, source="job", job={"id": "9"}),
        crash("b", 22),
    ]
    found = of_node(history(journal(tmp_path, [*beats, changed, *crashes])), "a", MONTH)
    assert [(each.kind, each.time, each.what) for each in found] == [
        ("silent", START + 9 * DAY - 1, "no heartbeat"),
        ("facts", START + 20 * DAY, "gpu_count 8 → 7"),
        ("job", START + 21 * DAY, "xid"),
        ("kernel", START + 22 * DAY, "xid"),
    ]
    assert found[0].end == START + 15 * DAY - 1


def test_a_node_that_stopped_is_silent_to_the_end(tmp_path: Path) -> None:
    (found,) = of_node(history(journal(tmp_path, watched("a", days=20))), "a", MONTH)
    assert (found.time, found.end) == (START + 20 * DAY - 1, MONTH.end)


def test_failed_jobs_of_a_node_are_spans_from_their_first_incident(tmp_path: Path) -> None:
    def ended(node: str, day: float, job: str, outcome: str) -> dict[str, object]:
        return {
            "kind": "job_end",
            "time": rfc3339(START + day * DAY),
            "node": node,
            "job": {"id": job},
            "outcome": outcome,
        }

    records = [
        crash("a", 2, source="job", job={"id": "9"}),
        ended("a", 2.5, "9", "explained"),
        ended("a", 3, "10", "no_line"),
        ended("b", 3, "11", "no_line"),
        ended("a", 40, "12", "no_line"),
    ]
    found = [each for each in of_node(history(journal(tmp_path, records)), "a", MONTH) if each.kind == "job_end"]
    assert [(each.job, each.time, each.end, each.what) for each in found] == [
        ("9", START + 2 * DAY, START + 2.5 * DAY, "job 9 failed, explained by a signature"),
        ("10", START + 3 * DAY, None, "job 10 failed, no crash line in its logs"),
    ]


def test_a_failed_job_is_a_span_from_its_start_if_that_is_known(tmp_path: Path) -> None:
    ended = {"kind": "job_end", "node": "a", "job": {"id": "9"}, "outcome": "no_line", "time": rfc3339(START + 2 * DAY)}
    started, impossible = rfc3339(START + 1.5 * DAY), rfc3339(START + 3 * DAY)
    records = [ended | {"started": started}, ended | {"job": {"id": "10"}, "started": impossible}]
    [known, other] = of_node(history(journal(tmp_path, records)), "a", MONTH)
    assert (known.time, known.end) == (START + 1.5 * DAY, START + 2 * DAY)
    assert known.what == "job 9 started, ran 12 hours, failed, no crash line in its logs"
    assert (other.time, other.end) == (START + 2 * DAY, None)


def fault(
    day: float, state: str, *, gpu: str | None = "3b:00", by: str = "", action: str = "reset_gpu"
) -> dict[str, object]:
    return {
        "kind": "fault", "time": rfc3339(START + day * DAY), "node": "a", "signature": "xid", "root_cause": "nvlink",
        "gpu": gpu, "job": None, "action": action, "state": state, "cleared": {"kind": by} if by else None,
    }  # fmt: skip


def test_a_node_check_fails_from_a_fault_until_it_is_cleared(tmp_path: Path) -> None:
    records = [
        fault(1, "open"),
        fault(1.5, "open", gpu=None, action="no such action"),
        fault(1.6, "open"),  # again, without an end between them: the journal has lost it
        fault(2, "cleared", by="reboot"),
        fault(5, "open"),
        fault(6, "cleared", by="of a later version"),
        fault(7, "cleared", gpu="5d:00", by="operator"),  # its opening is older than the history
    ]
    found = of_node(history(journal(tmp_path, [*records, *records])), "a", MONTH)
    assert [
        ((each.time - START) / DAY, (each.end or 0.0) - START, each.kind, each.gpu, each.note) for each in found
    ] == [
        (1.0, 2 * DAY, "node_check", "3b:00", "reset the GPU; cleared by a reboot after 24 hours"),
        (1.5, 28 * DAY, "node_check", None, "see its cause; still open"),
        (5.0, 6 * DAY, "node_check", "3b:00", "reset the GPU; cleared by something else after 24 hours"),
    ]
    later = of_node(history(journal(tmp_path / "later", records)), "a", Window(start=START + 3 * DAY, end=MONTH.end))
    assert [each.time for each in later] == [START + 1.5 * DAY, START + 5 * DAY]


def test_each_boot_is_on_the_timeline_once(tmp_path: Path) -> None:
    def facts(day: float, boot: object) -> dict[str, object]:
        return {"kind": "facts", "time": rfc3339(START + day * DAY), "node": "a", "facts": {"os": "x"}, "boot": boot}

    first, second = ({"id": name, "time": rfc3339(START + day * DAY)} for name, day in (("b1", 1.0), ("b2", 3.0)))
    records = [facts(1.1, first), facts(2, first), facts(3.1, second), facts(4, second | {"time": rfc3339(START)})]
    records += [
        facts(5, None),
        facts(5, {"id": "b3"}),
        facts(5, "b4"),
        facts(5, {"id": "b5", "time": rfc3339(START + 6 * DAY)}),
    ]
    found = of_node(history(journal(tmp_path, records)), "a", MONTH)
    assert [(each.kind, each.time, each.what) for each in found] == [
        ("boot", START + DAY, "the node booted"),
        ("boot", START + 3 * DAY, "the node booted"),
    ]


def test_the_command_says_in_words_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = journal(tmp_path, [*watched("a"), fault(25, "open") | {"signature": "nv_xid_79_fallen_off_bus"}])
    assert main(["timeline", "a", "--journal", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "26 Jun 00:00:00Z  node check" in said
    assert "fails: GPU has fallen off the bus" in said
    assert said.rstrip().endswith("GPU 3b:00; reset the GPU; still open")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 seconds"), (119.0, "119 seconds"), (120.0, "2 minutes"), (11_520.0, "3.2 hours"), (3.456e6, "40 days")],
)
def test_durations_are_in_the_largest_unit_that_fits_twice(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_job_has_its_incidents_on_all_nodes_and_what_caused_them(tmp_path: Path) -> None:
    cause = crash("a", 5, "nvlink", source="kernel")
    records = [
        cause,
        crash("a", 5.01, job={"id": "9"}, caused_by=cause["id"], role="cascade"),
        crash("b", 5.02, job={"id": "9"}, role="cascade"),
        crash("b", 5.03, job={"id": "10"}),
    ]
    found = of_job(history(journal(tmp_path, records)), "9", MONTH)
    assert [(each.node, each.what, each.role) for each in found] == [
        ("a", "nvlink", "root"),
        ("a", "xid", "cascade"),
        ("b", "xid", "cascade"),
    ]


def test_only_facts_that_differ_are_changes() -> None:
    assert changed_facts({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == [
        "b 2 → 4",
        "c 3 → unknown",
        "d unknown → 5",
    ]


def test_the_command_prints_a_line_for_each_and_no_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    hostile = "\x1b[31mred\u202e\n" + "x" * 500
    records = [
        *watched("a"),
        crash("a", 22, hostile, root_cause=hostile, verdict=hostile, job={"id": hostile}, source="job"),
    ]
    folder = journal(tmp_path, [*records, crash("a", 23, "cuda_illegal_address", role="cascade")])
    assert main(["timeline", "a", "--journal", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) <= 100 for line in lines)
    assert lines[0].startswith("23 Jun 00:00:00Z")
    assert lines[1].endswith("consequence")


def test_a_consequence_is_named_for_itself_and_comes_after_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    consequence = crash("a", 22, "slurm_oom", root_cause="gpu_lost_from_pcie", role="cascade", source="job")
    root = crash("a", 22, "nv_xid_79_fallen_off_bus", root_cause="gpu_lost_from_pcie", source="kernel")
    folder = journal(tmp_path, [*watched("a"), consequence, root])
    assert main(["timeline", "a", "--journal", str(folder)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "The driver can no longer reach a GPU on the PCIe bus" in first
    assert "Slurm saw the OOM killer in the job" in second


def test_an_unknown_name_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", "z", "--journal", str(journal(tmp_path, watched("a")))]) == 1
    assert "no node or job 'z'" in capsys.readouterr().err


def test_a_line_fits_a_terminal_and_is_whole_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = journal(
        tmp_path / "journals", [crash("n1", 27, "x" * 200, verdict="workload"), crash("n1", 27.5, "short")]
    )
    texts = []
    for columns in ("0", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["timeline", "n1", "--journal", str(folder)]) == 0
        texts.append(capsys.readouterr().out.splitlines())
    whole, cut = texts
    assert "x" * 200 in whole[0]
    assert max(map(len, cut)) <= 80
    assert cut[0].endswith("…  workload")
