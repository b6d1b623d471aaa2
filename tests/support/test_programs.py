from tests.support.programs import missing, reason, skipped_tests


def test_skipped_tests_are_counted_by_missing_program() -> None:
    assert missing("sh", "no-such-program") == ["no-such-program"]
    reasons = [f"Skipped: {reason(absent)}" for absent in (["jq"], ["jq", "strace"])]
    assert skipped_tests([*reasons, "Skipped: needs root"]) == [
        "missing: jq; tests skipped: 2",
        "missing: strace; tests skipped: 1",
    ]
