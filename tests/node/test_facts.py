"""The node's facts over time: as of then, whatever fails, hangs or is set back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.config.node import FactsConfig
from exporter.core.facts.driver_answer import DriverAnswer
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Moment
from exporter.node.facts import KEPT_CHANGES, MAX_VALUE, NodeFacts
from exporter.probes import Gathered


def gathered(failed: Mapping[str, str] | None = None, gpus: tuple[Gpu, ...] = (), **facts: str) -> Gathered:
    return Gathered(facts=facts, failed=failed or {}, gpus=gpus)


def node(*rounds: Gathered, stored: Mapping[str, str] | None = None, **settings: Any) -> NodeFacts:
    """Facts that are gathered in rounds, the last of them for ever."""
    left = list(rounds)
    return NodeFacts(FactsConfig(**settings), stored or {}, lambda: left.pop(0) if len(left) > 1 else left[0])


def test_facts_are_gathered_at_once_and_then_now_and_again() -> None:
    facts = node(gathered(os="Debian"), gathered(os="Ubuntu"), interval="300s")
    assert facts.facts == {}
    assert facts.refresh(0.0, wait=True)
    assert facts.facts == {"os": "Debian"}
    assert not facts.refresh(299.0, wait=True)
    assert facts.refresh(300.0, wait=True)
    assert facts.facts == {"os": "Ubuntu"}
    assert not facts.refresh(600.0, wait=True)  # gathered again, and the same


def test_a_card_in_another_slot_is_news_though_no_fact_has_changed() -> None:
    def card(serial: str) -> tuple[Gpu, ...]:
        return (Gpu(pci="0000:c1:00.0", serial=serial),)

    facts = node(gathered(gpus=card("1"), os="x"), gathered(gpus=card("1"), os="x"), gathered(gpus=card("2"), os="x"))
    assert [facts.refresh(now, wait=True) for now in (0.0, 300.0, 600.0, 900.0)] == [True, False, True, False]
    assert facts.facts == {"os": "x"}


def test_gpus_that_were_there_the_day_before_are_lost() -> None:
    counts = ("8", "7", "7", "6", "6", "8")
    facts = node(*(gathered(gpu_count=count) for count in counts), interval="1s")
    lost = []
    for hours in (0, 1, 23, 24.5, 26, 27):
        facts.refresh(hours * 3600.0, wait=True)
        lost.append(facts.facts["gpus_lost"])
    assert lost == ["0", "1", "1", "2", "1", "0"]  # 26 hours later the eighth is more than a day away
    again = node(gathered(gpu_count="6"), stored=store(facts, {}))
    again.refresh(28 * 3600.0, wait=True)
    assert again.facts["gpus_lost"] == "2"  # also over a restart


def test_other_settings_are_obeyed_at_once() -> None:
    facts = node(gathered(os="Debian"), interval="300s")
    facts.refresh(0.0, wait=True)
    facts.use(FactsConfig(interval="300s", extra={"rack": "r12"}))
    assert facts.refresh(1.0, wait=True)
    assert facts.facts == {"os": "Debian", "rack": "r12"}


def test_a_clock_that_is_set_back_stops_no_gathering() -> None:
    facts = node(gathered(os="Debian"), gathered(os="Ubuntu"))
    facts.refresh(1e9, wait=True)
    assert facts.refresh(1e9 - 86400, wait=True)
    assert facts.facts == facts.at(1e9) == {"os": "Ubuntu"}
    again = node(gathered(), stored=store(facts, {}))
    assert again.facts == again.at(0.0) == {"os": "Ubuntu"}  # what a wrong clock told of the future is forgotten


def test_facts_are_those_of_the_time_that_is_asked_about() -> None:
    facts = node(gathered(rocm="6.1"), gathered(rocm="6.2"), gathered(rocm="6.3"), interval="1s")
    for now in (10.0, 20.0, 30.0):
        facts.refresh(now, wait=True)
    asked = (0.0, 10.0, 19.9, 20.0, 29.0, 30.0, 99.0)
    assert [facts.at(time)["rocm"] for time in asked] == ["6.1", "6.1", "6.1", "6.2", "6.2", "6.3", "6.3"]


def test_nothing_is_known_before_anything_was_gathered() -> None:
    assert node(gathered(os="Debian")).at(5.0) == {}


def test_what_has_gone_is_gone_though_another_probe_fails_for_ever() -> None:
    failed = {"home": "hung"}
    facts = node(gathered(failed, bios_version="1.2", home_fs_type="nfs"), gathered(failed), interval="1s")
    facts.refresh(0.0, wait=True)
    assert facts.refresh(1.0, wait=True)
    assert facts.facts == {"home_fs_type": "nfs"}


def test_what_a_failed_probe_could_have_told_is_as_it_was() -> None:
    facts = node(
        gathered(os="Debian", gpu_model="MI300X"),
        gathered({"pci": "hung"}, os="Ubuntu"),
        gathered(os="Ubuntu"),
        interval="1s",
    )
    facts.refresh(1.0, wait=True)
    facts.refresh(2.0, wait=True)
    assert (facts.facts, facts.failed) == ({"os": "Ubuntu", "gpu_model": "MI300X"}, {"pci": "hung"})
    facts.refresh(3.0, wait=True)  # now it says that there is none
    assert (facts.facts, facts.failed) == ({"os": "Ubuntu"}, {})


def test_a_probe_that_hangs_holds_up_nobody_and_is_not_started_twice() -> None:
    done, started = threading.Event(), []

    def hang() -> Gathered:
        started.append(1)
        assert done.wait(30)
        return gathered(os="Debian")

    facts = NodeFacts(FactsConfig.model_validate({"interval": "1s"}), {}, hang)
    assert [facts.refresh(now) for now in (0.0, 5.0, 10.0)] == [False, False, False]
    done.set()
    assert facts.refresh(10.0, wait=True)
    assert (facts.facts, len(started)) == ({"os": "Debian"}, 1)


def test_a_site_adds_facts_and_commands_that_tell_facts() -> None:
    commands = {
        "rack": ["echo", "r12 "],
        "nvidia_ecc": ["echo", "Enabled\nDisabled\nEnabled"],  # a line for each GPU
        "os": ["echo", "Ubuntu"],  # what the administrator says counts
        "long": ["seq", "1000"],
        "empty": ["true"],
        "failing": ["false"],
        "missing": ["/no/such/program"],
        "odd": ["echo", "\0"],
    }
    facts = node(gathered(os="Debian", none=""), extra={"room": "b"}, commands=commands)
    facts.refresh(0.0, wait=True)
    assert len(facts.facts["long"]) == MAX_VALUE
    assert {name: value for name, value in facts.facts.items() if name != "long"} == {
        "rack": "r12",
        "nvidia_ecc": "Disabled+Enabled",
        "os": "Ubuntu",
        "room": "b",
    }
    assert sorted(facts.failed) == ["command failing", "command missing", "command odd"]


def test_the_facts_are_those_of_the_configured_machine(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=sles\nVERSION_ID=15.5\n")
    facts = NodeFacts(FactsConfig(rootfs=tmp_path), {})
    facts.refresh(0.0, wait=True)
    assert facts.facts == {"os": "sles 15.5"}


def test_the_vendors_that_are_present_are_known() -> None:
    gpus = tuple(
        Gpu(pci=f"0000:0{n}:00.0", vendor=vendor) for n, vendor in enumerate(["amd", "nvidia", "matrox", None])
    )
    facts = node(gathered(gpus=gpus))
    facts.refresh(0.0, wait=True)
    assert facts.vendors == {"amd", "nvidia"}


def store(facts: NodeFacts, stored: dict[str, str]) -> dict[str, str]:
    for name, text in facts.unsaved().items():
        if text is None:
            stored.pop(name, None)
        else:
            stored[name] = text
    facts.saved()
    assert facts.unsaved() == {}
    return stored


def test_the_history_outlives_the_process() -> None:
    facts = node(gathered(rocm="6.1"), gathered(rocm="6.2"), interval="1s")
    stored: dict[str, str] = {}
    for now in (10.0, 20.5):
        facts.refresh(now, wait=True)
        store(facts, stored)
    again = node(gathered(rocm="6.2"), stored=stored)
    assert [again.at(time)["rocm"] for time in (15.0, 25.0)] == ["6.1", "6.2"]
    assert not again.refresh(30.0, wait=True)  # nothing new
    assert again.unsaved() == {}


def test_the_history_is_bounded_in_memory_and_in_the_state() -> None:
    count = iter(range(10**6))
    facts = NodeFacts(FactsConfig.model_validate({"interval": "1s"}), {}, lambda: gathered(rocm=str(next(count))))
    stored: dict[str, str] = {}
    for now in range(KEPT_CHANGES + 9):
        facts.refresh(float(now), wait=True)
        store(facts, stored)
    assert len(stored) == KEPT_CHANGES
    assert facts.at(0.0) == {"rocm": "9"}  # the oldest that is still known


NVIDIA = Gpu(pci="0000:c1:00.0", vendor="nvidia", unique_id="GPU-1")


def says(*gpus: Gpu, absent: tuple[str, ...] = (), failed: Mapping[str, str] | None = None) -> DriverAnswer:
    at = Moment(time=1.0, boot="b", boot_seconds=1.0)
    return DriverAnswer(asked_at=at, gpus=gpus, absent=absent, failed=failed or {})


def test_a_driver_adds_serial_numbers_and_facts_and_keeps_them_while_it_fails() -> None:
    facts = node(gathered(gpus=(NVIDIA,), os="x"))
    facts.refresh(0.0, wait=True)
    told = Gpu(pci=NVIDIA.pci, serial="165", facts={"gpu_ecc": "true", "nvidia_nvlinks": "18 of 18"})
    assert facts.driver_says(says(told), 1.0)
    assert not facts.driver_says(says(told), 2.0)  # no news
    assert not facts.driver_says(says(failed={"driver": "no answer within 20 s"}), 3.0)
    facts.refresh(400.0, wait=True)
    assert facts.facts == {"os": "x", "gpu_ecc": "true", "nvidia_nvlinks": "18 of 18"}
    assert [gpu.serial for gpu in facts.gpus] == ["165"]


def test_what_a_driver_said_goes_with_its_library_or_the_wish_to_ask() -> None:
    stored = {"0.0": '{"os": "x", "gpu_ecc": "true"}'}
    for settings in ({}, {"ask_driver": False}):
        facts = node(gathered(gpus=(NVIDIA,), os="x"), stored=stored, **settings)
        facts.refresh(1.0, wait=True)
        assert ("gpu_ecc" in facts.facts) == (not settings)
        facts.driver_says(says(absent=("nvidia",)), 2.0)
        assert facts.facts == {"os": "x"}
