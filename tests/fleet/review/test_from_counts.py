"""A review from what a Prometheus has counted."""

import duckdb
import pytest

from exporter.fleet.observations import Observed
from exporter.fleet.report.html_report import as_html
from exporter.fleet.report.markdown import as_markdown
from exporter.fleet.review.from_counts import NOTE, fill_from_counts
from exporter.fleet.review.review_contents import Review
from exporter.fleet.review.window_review import review_of
from exporter.fleet.statistics.correlation import correlate
from tests.fleet.review.fleets import TITLES
from tests.fleet.small import WEEK, fleet

FACTS = [(node, 0.0, {"gpu_count": "4", "driver": "1"}) for node in "abc"]
CRASHES = [("a", 1.0, "xid", None), ("a", 3.0, "xid", None), ("b", 2.0, "hang", None)]


def review(observed: Observed) -> Review:
    with duckdb.connect() as db:
        fill_from_counts(db, observed)
        return review_of(db, WEEK, correlate(observed, WEEK), TITLES)


@pytest.mark.parametrize("busy", [None, dict.fromkeys("abc", 20.0)])
def test_counts_are_the_correlators(busy: dict[str, float] | None) -> None:
    found = review(fleet(FACTS, CRASHES, busy=busy))
    assert found.correlation is not None
    assert (found.totals.incidents, found.totals.nodes_crashed, found.nodes) == (3, 2, 3)
    assert found.totals.incidents == found.correlation.incidents
    assert found.totals.origins == found.correlation.origins
    assert found.exposure == found.correlation.exposure
    assert found.totals.hours == pytest.approx(found.correlation.exposure_hours)
    assert [(row.id, row.incidents) for row in found.causes] == [("xid", 2), ("hang", 1)]


def test_an_empty_prometheus_gives_a_report_that_says_so() -> None:
    found = review(fleet([]))
    assert found.sentence == "Nothing was seen: no node reported in this window."
    assert NOTE.split(":")[0] in as_html(found, TITLES, (NOTE,))
    assert "need the journals" in as_markdown(found, {}, (NOTE,))
