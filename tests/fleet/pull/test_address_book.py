"""Who may speak for a node where daemons tell their names: whatever one of them claims, whenever, in whatever order."""

from __future__ import annotations

from itertools import permutations

import pytest

from exporter.fleet.pull.address_book import FORGET_SECONDS, Settled, Spoken, settle

NOW = 1_780_000_000.0
TWO = {"n3": Spoken("a3", NOW), "n7": Spoken("a7", NOW)}  # n7 is where the attacker is


def names(settled: Settled) -> dict[str, str]:
    return dict(settled.speakers)


@pytest.mark.parametrize("others", [*permutations(["a1", "a5", "a9"])])
def test_whoever_claims_a_proven_name_does_not_get_it(others: tuple[str, ...]) -> None:
    """The order of addresses decides nothing; nor does a daemon that is silent for a moment."""
    for honest in ("n3", None):
        settled = settle(TWO, {**dict.fromkeys(others, "n3"), "a3": honest, "a7": "n7"}, NOW)
        assert names(settled) == {"n3": "a3", "n7": "a7"}
        assert "which is at a3" in settled.refused["n3"]
        assert "pull.dns_names: kubernetes" in settled.refused["n3"]


@pytest.mark.parametrize(
    "honest", [{"a3": "n3"}, {"a3": None}, {}, {"a4": "n3"}], ids=["up", "silent", "gone", "moved"]
)
def test_an_address_that_has_spoken_for_a_node_does_not_take_another(honest: dict[str, str | None]) -> None:
    """Also while the other node is down, and also if it comes back at a new address."""
    settled = settle(TWO, {"a7": "n3", **honest}, NOW)
    assert settled.speakers.get("n3") == next(iter(honest), None)
    assert "it has spoken for n7" in settled.refused["n3"]
    assert names(settle(settled.spoken, {"a7": "n3", "a4": "n3"}, NOW + 60))["n3"] == "a4"


def test_names_that_nobody_has_proven_go_to_nobody_if_two_claim_them() -> None:
    settled = settle({}, {"a1": "n3", "a3": "n3", "a7": "n7"}, NOW)
    assert names(settled) == {"n7": "a7"}
    assert "a1, a3 claims to be node n3" in settled.refused["n3"]
    assert names(settle(settled.spoken, {"a3": "n3", "a7": "n7"}, NOW)) == {"n3": "a3", "n7": "a7"}


def test_pods_that_are_replaced_go_on_without_an_operator() -> None:
    """One at a time, all at once, and with addresses that go from one to another."""
    for claims in (
        {"a8": "n3", "a7": "n7"},
        {"a8": "n3", "a9": "n7"},
        {"a7": "n3", "a3": "n7"},
        {"a7": "n3", "a9": "n7"},
    ):
        settled = settle(TWO, claims, NOW)
        assert (names(settled), settled.refused) == ({name: at for at, name in claims.items()}, {})
        assert {node: one.address for node, one in settled.spoken.items()} == names(settled)


def test_an_address_is_free_for_another_node_a_day_after_it_was_listed() -> None:
    gone = settle(TWO, {"a3": "n3"}, NOW + 60)
    assert "n7" in gone.spoken
    early = settle(gone.spoken, {"a3": "n3", "a7": "n8"}, NOW + FORGET_SECONDS - 1)
    assert (names(early), "spoken for n7" in early.refused["n8"]) == ({"n3": "a3"}, True)
    restarted = settle(gone.spoken, {"a3": "n3", "a7": "n8"}, NOW + 9 * FORGET_SECONDS)  # nobody looked in between
    assert names(restarted) == {"n3": "a3"}
    late = settle(gone.spoken, {"a3": "n3"}, NOW + FORGET_SECONDS + 1)
    assert names(settle(late.spoken, {"a3": "n3", "a7": "n8"}, NOW + FORGET_SECONDS + 2)) == {"n3": "a3", "n8": "a7"}
