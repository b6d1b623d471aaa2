"""The life of a node fault: what opens it, what clears it, and what is known when it returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from exporter.config import packs
from exporter.core.diagnosis.fault_history import (
    KEPT_SECONDS,
    MAX_FAULTS,
    MAX_RECOVERIES,
    REQUEST_CAUSES,
    REQUEST_SIGNATURE,
    FaultHistory,
)
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.node_faults import Fault, fault_json, fault_record
from exporter.core.diagnosis.recoveries import CLEARS, Recovery
from exporter.core.facts.driver_answer import DriverAnswer
from exporter.core.facts.gpus import Gpu
from exporter.core.model import ACTIONS, OPERATOR_ACTIONS, Action, Moment, RecoveryKind
from tests.support.matches import NOW, catalogue_of, match

GPU, OTHER = "0000:c1:00.0", "0000:c2:00.0"
CATALOGUE = catalogue_of(
    """
signatures:
  - {id: gpu_lost, vendor: nvidia, patterns: ['GPU lost'], severity: critical, sources: [kernel]}
  - {id: reset_ok, patterns: ['reset (?P<gpu>[0-9a-f:.]{12}) ended: (?P<how>[a-z]+)'], role: context, severity: info,
     sources: [kernel], recovery: {kind: gpu_reset, where: {how: well}}}
  - {id: loaded, vendor: nvidia, patterns: ['driver loaded'], role: context, severity: info, sources: [kernel],
     recovery: {kind: driver_reload}}
  - {id: amd_loaded, vendor: amd, patterns: ['amd driver loaded'], role: context, severity: info, sources: [kernel],
     recovery: {kind: driver_reload}}
root_causes:
  - {id: power, signatures: [gpu_lost], verdict: infrastructure, action: reset_gpu, when: {reported_by: kernel}}
"""
)
BUILTIN = packs.load()


def at(seconds: float, boot: str = "boot") -> Moment:
    """So many seconds after NOW, on a node that booted 1,000 s before it; another boot was just at that time."""
    return Moment(time=NOW + seconds, boot=boot, boot_seconds=1000.0 + seconds if boot == "boot" else 1.0)


def fault(seconds: float = 0.0, *, action: Action = "reset_gpu", gpu: str | None = GPU, boot: str = "boot") -> Fault:
    time = NOW + seconds
    return Fault(
        time=time, last_time=time, count=1, signature="gpu_lost", root_cause="power", title="a cause", gpu=gpu,
        job=None, remediation="Mend it.", incident=str(seconds), boot=boot, boot_seconds=1000.0 + seconds,
        action=action, vendor="nvidia",
    )  # fmt: skip


def card(serial: str, pci: str = GPU) -> Gpu:
    return Gpu(pci=pci, vendor="amd", serial=serial)


class Node:
    """A node's faults, and what a daemon does with them."""

    def __init__(self, history: FaultHistory | None = None) -> None:
        self.history = history or FaultHistory({})
        self.tracker = IncidentTracker(CATALOGUE, "node", window=60.0, settle=15.0)
        self.told: list[tuple[str, str]] = []
        self.cards: Iterable[Gpu] = ()

    def see(self, seen: Fault) -> None:
        self.history.add(seen, at(seen.time - NOW, seen.boot))

    def say(
        self, signature: str, seconds: float, gpu: str | None = GPU, source: str = "kernel", **captures: str
    ) -> None:
        shown = match(signature, seconds, source=source, gpu=gpu, boot_seconds=1000.0 + seconds, captures=captures)  # type: ignore[arg-type]
        self.history.note([shown], CATALOGUE, at(seconds))

    def open_at(self, seconds: float, boot: str = "boot") -> list[Fault]:
        now = at(seconds, boot)
        for changed in self.history.refresh(self.tracker, lambda _: {}, CATALOGUE, self.cards, now):
            record = fault_record(changed, "node", now)
            self.told.append((record["state"], record["cleared"]["kind"] if record["cleared"] else ""))
        return list(self.history.open)


def test_a_fault_stays_open_however_long_nothing_is_heard_of_it() -> None:
    node = Node()
    node.see(fault())
    assert len(node.open_at(1)) == 1
    assert len(node.open_at(30 * 86400)) == 1
    assert node.told == [("open", "")]


def test_a_reset_of_its_gpu_clears_a_fault_and_no_other() -> None:
    node = Node()
    node.see(fault())
    node.see(fault(gpu=OTHER))
    node.say("reset_ok", 60, how="well")
    assert [f.gpu for f in node.open_at(61)] == [OTHER]
    assert node.told == [("open", ""), ("open", ""), ("cleared", "gpu_reset")]
    [cleared] = node.history.cleared
    told = fault_json(cleared, at(61))
    assert (told["state"], told["cleared"]["kind"]) == ("cleared", "gpu_reset")


@pytest.mark.parametrize(
    ("signature", "seconds", "gpu", "source", "captures"),
    [
        ("reset_ok", 60, GPU, "kernel", {"how": "badly"}),
        ("reset_ok", -60, GPU, "kernel", {"how": "well"}),
        ("reset_ok", 60, None, "kernel", {"how": "well"}),
        ("reset_ok", 60, GPU, "job", {"how": "well"}),
        ("amd_loaded", 60, None, "kernel", {}),
    ],
    ids=["a failed reset", "one before the fault", "whose, nobody knows", "a job says so", "another vendor's driver"],
)
def test_no_other_line_clears_it(
    signature: str, seconds: float, gpu: str | None, source: str, captures: dict[str, str]
) -> None:
    node = Node()
    node.see(fault())
    node.say(signature, seconds, gpu, source, **captures)
    assert len(node.open_at(90)) == 1


def test_a_loaded_driver_clears_what_a_reset_mends_on_all_its_gpus() -> None:
    node = Node()
    for gpu in (GPU, OTHER):
        node.see(fault(gpu=gpu))
    node.see(fault(5, gpu="0000:c3:00.0", action="reboot"))
    node.say("loaded", 60, None)
    assert [f.action for f in node.open_at(61)] == ["reboot"]


@pytest.mark.parametrize("action", sorted(OPERATOR_ACTIONS))
@pytest.mark.parametrize("kind", sorted(CLEARS))
def test_a_recovery_clears_what_asks_for_as_much_or_less(kind: RecoveryKind, action: Action) -> None:
    node = Node()
    node.see(fault(action=action))
    if kind == "reboot":
        now_open = node.open_at(60, "next boot")
    elif kind == "card_swap":
        node.history = FaultHistory({})
        node.see(replace(fault(action=action), card="A"))
        node.cards = [card("B")]
        now_open = node.open_at(60)
    else:
        node.history.recover(Recovery(kind=kind, time=NOW + 60, boot="boot", boot_seconds=1060.0, gpu=GPU))
        now_open = node.open_at(60)
    cleared = not now_open
    assert cleared == (action in CLEARS[kind])
    mildest_first = [a for a in ACTIONS if a in CLEARS[kind]]
    assert mildest_first
    assert CLEARS["gpu_reset"] <= CLEARS["reboot"] <= CLEARS["card_swap"] == CLEARS["operator"] == OPERATOR_ACTIONS


def test_a_fault_that_is_told_only_after_its_reset_was_seen_is_cleared() -> None:
    node = Node()
    node.say("reset_ok", 10, how="well")
    node.see(fault(0))
    assert node.open_at(16) == []
    assert node.told == [("open", ""), ("cleared", "gpu_reset")]


def test_an_incident_that_has_not_settled_goes_by_its_last_line() -> None:
    node = Node()
    node.tracker.add([match("gpu_lost", s, source="kernel", gpu=GPU, boot_seconds=1000.0 + s) for s in (0, 5)])
    node.say("reset_ok", 3, how="well")
    assert [f.last_time for f in node.open_at(6)] == [NOW + 5]
    node.say("reset_ok", 7, how="well")
    assert node.open_at(8) == []


def test_a_fault_that_returns_says_how_often_it_came() -> None:
    node = Node()
    for day in range(3):
        node.see(fault(day * 86400))
        [now_open] = node.open_at(day * 86400 + 1)
        assert (now_open.times, len(now_open.openings)) == (day + 1, day + 1)
        node.say("reset_ok", day * 86400 + 60, how="well")
        assert node.open_at(day * 86400 + 61) == []
    later = 2 * 86400 + KEPT_SECONDS
    node.see(fault(later))
    assert [f.times for f in node.open_at(later + 1)] == [2]  # of the last 14 days
    assert node.told == [("open", ""), ("cleared", "gpu_reset")] * 3 + [("open", "")]


def test_a_card_is_followed_to_another_address_by_its_serial() -> None:
    node = Node()
    node.see(replace(fault(), card="A"))
    node.cards = [card("B"), card("A", OTHER)]
    assert node.open_at(60) == []
    assert node.history.cleared[0].cleared is not None
    assert node.history.cleared[0].cleared.reason == "card A was replaced by B"
    node.see(replace(fault(120, gpu=OTHER), card="A"))
    assert [(f.gpu, f.times) for f in node.open_at(121)] == [(OTHER, 2)]
    node.see(replace(fault(130), card="B"))
    assert [(f.gpu, f.times) for f in node.open_at(131) if f.card == "B"] == [(GPU, 1)]


def test_lines_that_join_a_cleared_fault_open_it_again() -> None:
    node = Node()
    node.tracker.add([match("gpu_lost", 0, source="kernel", gpu=GPU, boot_seconds=1000.0)])
    for diagnosis in node.tracker.settle(NOW + 15, lambda _: {}):
        node.history.add_settled(diagnosis, CATALOGUE, at(15))
    node.say("reset_ok", 20, how="well")
    assert node.open_at(21) == []
    node.tracker.add([match("gpu_lost", 30, source="kernel", gpu=GPU, boot_seconds=1030.0)])
    assert [f.times for f in node.open_at(31)] == [2]
    assert [state for state, _ in node.told] == ["open", "cleared", "open"]


def test_a_cleared_fault_is_forgotten_after_14_days() -> None:
    node = Node()
    node.see(fault())
    node.say("reset_ok", 60, how="well")
    node.open_at(61)
    node.history.saved()
    node.open_at(60 + KEPT_SECONDS + 1)
    assert list(node.history) == []
    assert list(node.history.unsaved().values()) == [None]


def test_all_of_it_outlives_the_process() -> None:
    node = Node()
    node.see(replace(fault(), card="A"))
    node.say("reset_ok", 60, how="well")
    node.open_at(61)
    rows = {key: text for key, text in node.history.unsaved().items() if text is not None}
    again = Node(FaultHistory(rows))
    assert list(again.history) == list(node.history)
    again.see(replace(fault(50), card="A"))  # from before the reset
    assert again.open_at(70) == []
    assert again.told == []


def test_of_too_many_the_cleared_ones_go_first() -> None:
    node = Node()
    node.see(fault(gpu=None))
    for number in range(MAX_FAULTS - 1):
        node.see(fault(number, gpu=f"0000:{number:02x}:00.0"))
    node.say("reset_ok", 90, "0000:05:00.0", how="well")
    node.open_at(91)
    node.see(fault(100, gpu="0000:ff:00.0"))
    assert len(node.open_at(101)) == MAX_FAULTS
    for number in range(2 * MAX_RECOVERIES):
        node.history.recover(Recovery(kind="gpu_reset", time=NOW, gpu=f"0001:{number:02x}:00.0"))
    assert sum(key.startswith("recovery") for key, text in node.history.unsaved().items() if text) == MAX_RECOVERIES


def says(seconds: float, action: Action = "ignore", gpu: str = GPU, boot: str = "boot") -> DriverAnswer:
    """The driver's answer, when asked so many seconds after NOW."""
    return DriverAnswer(asked_at=at(seconds, boot), actions={gpu: action})


@pytest.mark.parametrize("action", sorted(OPERATOR_ACTIONS))
def test_a_driver_that_asks_for_nothing_withdraws_what_it_would_ask_for(action: Action) -> None:
    node = Node()
    node.see(fault(action=action))
    node.history.add_driver_answer(says(30), CATALOGUE)
    left = node.open_at(31)
    assert [f.driver_asks for f in left] == ([] if action in ("reset_gpu", "reboot") else ["ignore"])
    assert node.told == [("open", ""), *([] if left else [("cleared", "driver")])]


@pytest.mark.parametrize(
    "answer",
    [says(2), says(30, gpu=OTHER), says(30, "restart_job"), says(30, "reset_gpu"), DriverAnswer(asked_at=at(30))],
    ids=["asked too early", "of another GPU", "of peers", "a reset", "nothing known"],
)
def test_no_other_answer_of_a_driver_withdraws_it(answer: DriverAnswer) -> None:
    node = Node()
    node.see(fault())
    node.history.add_driver_answer(answer, CATALOGUE)
    assert len(node.open_at(31)) == 1


def test_what_is_seen_after_the_driver_was_asked_opens_the_fault_again() -> None:
    node = Node()
    node.see(fault())
    node.history.add_driver_answer(says(30), CATALOGUE)
    assert node.open_at(31) == []
    node.see(fault(40))
    assert len(node.open_at(41)) == 1


def test_a_fault_of_another_vendor_is_not_the_drivers() -> None:
    node = Node()
    node.see(replace(fault(), vendor="any"))
    node.history.add_driver_answer(says(30), CATALOGUE)
    assert len(node.open_at(31)) == 1


def test_a_driver_that_asks_for_a_reset_is_a_fault_until_it_asks_for_nothing() -> None:
    node = Node()
    node.history.add_driver_answer(says(0, "reset_gpu"), BUILTIN)
    node.history.add_driver_answer(says(30, "reset_gpu"), BUILTIN)  # told again, it is the same
    [told] = node.open_at(31)
    assert (told.signature, told.root_cause, told.gpu, told.action, told.driver_asks) == (
        REQUEST_SIGNATURE, REQUEST_CAUSES["reset_gpu"], GPU, "reset_gpu", "reset_gpu",
    )  # fmt: skip
    assert told.remediation
    node.history.add_driver_answer(says(60), BUILTIN)
    assert node.open_at(61) == []
    assert node.told == [("open", ""), ("cleared", "driver")]


def test_a_driver_confirms_a_fault_and_opens_no_second_one() -> None:
    node = Node()
    node.see(fault())
    node.history.add_driver_answer(says(30, "reset_gpu"), BUILTIN)
    assert [(f.signature, f.driver_asks) for f in node.open_at(31)] == [("gpu_lost", "reset_gpu")]
    assert [fault_json(f, at(31))["driver_asks"] for f in node.history.open] == ["reset_gpu"]


def test_a_driver_confirms_a_fault_whose_incident_has_not_settled() -> None:
    node = Node()
    node.tracker.add([match("gpu_lost", 0, source="kernel", gpu=GPU, boot_seconds=1000.0)])
    assert [f.settled for f in node.open_at(1)] == [False]
    node.history.add_driver_answer(says(2, "reset_gpu"), BUILTIN)
    assert [f.signature for f in node.open_at(3)] == ["gpu_lost"]


@pytest.mark.parametrize(("is_open", "asks"), [("run_diagnostics", "reset_gpu"), ("reset_gpu", "reboot")])
def test_a_driver_that_asks_for_more_is_a_fault_of_its_own(is_open: Action, asks: Action) -> None:
    node = Node()
    node.see(fault(action=is_open))
    node.history.add_driver_answer(says(30, asks), BUILTIN)
    assert [(f.signature, f.action) for f in node.open_at(31)] == [("gpu_lost", is_open), (REQUEST_SIGNATURE, asks)]
    assert ("reboot" in node.history.open[1].title) == (asks == "reboot")


def test_a_driver_that_asks_for_an_unknown_action_is_a_fault() -> None:
    node = Node()
    node.history.add_driver_answer(says(30, "run_diagnostics"), BUILTIN)
    assert [(f.root_cause, f.action) for f in node.open_at(31)] == [("gpu_action_required", "run_diagnostics")]


def test_a_card_whose_unique_id_comes_and_goes_is_the_same_card() -> None:
    """A driver prints `GPU-????????` until a GPU is initialised; its library knows the serial number all the time."""
    node = Node()
    whole = Gpu(pci=GPU, vendor="nvidia", unique_id="GPU-1", serial="165")
    node.cards = [whole]
    node.open_at(0)
    node.see(replace(fault(action="replace"), card=whole.identity))
    for seconds, here in enumerate((whole, replace(whole, unique_id=None), replace(whole, serial=None), whole)):
        node.cards = [here]
        assert len(node.open_at(seconds)) == 1
    node.cards = [replace(whole, unique_id="GPU-2")]
    assert node.open_at(9) == []


def test_a_fault_that_a_version_with_other_keys_stored_lives_on_once() -> None:
    seen = Node()
    seen.see(replace(fault(), card="A"))
    [(key, row)] = seen.history.unsaved().items()
    node = Node(FaultHistory({f"other {key}": str(row)}))
    assert dict(node.history.unsaved()) == {f"other {key}": None, key: row}
    node.history.recover(Recovery(kind="operator", time=NOW + 10))
    assert node.open_at(11) == []
    assert node.open_at(12) == []
    assert node.told == [("cleared", "operator")]
