import gzip
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.samples import Exemplar

from exporter.metrics.exposition import MAX_BODIES, Exposition, Family, MetricsSnapshot, Rendered

TEXT = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
# What Prometheus 3 sends (its scrape.go, acceptHeader).
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)

INCIDENTS = Family(
    "gpufault_incidents_total",
    "counter",
    "Incidents, each counted once.",
    ("signature", "root_cause"),
    {("nv_xid_79_fallen_off_bus", "unknown"): 3, ("amd_aperture_violation", "driver_older_than_rocm"): 0},
)
LAG = Family("gpufault_source_lag_seconds", "gauge", "Age of the oldest byte not yet read.", (), {(): 0.25})
SNAPSHOT = MetricsSnapshot((INCIDENTS, LAG))


def rendered(*families: Family, accept: str | None = None) -> Rendered:
    return Exposition(lambda: MetricsSnapshot(families)).render(accept, None)


def own_part(text: Rendered) -> bytes:
    """What is told before the figures of this process, which differ from one moment to the next."""
    own, process, _ = text.body.partition(b"# HELP process_")
    assert process
    return own


def samples(text: Rendered) -> dict[tuple[str, tuple[str, ...]], float]:
    """Each sample of ours in a rendered text, read by prometheus_client's own parser of that format."""
    read = read_openmetrics if "openmetrics" in text.content_type else read_text
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in read(text.body.decode())
        for sample in family.samples
        if not sample.name.startswith("process_")
    }


@pytest.mark.parametrize("accept", [None, TEXT, OPENMETRICS, PROMETHEUS_3])
def test_every_format_reads_back_as_the_numbers_of_the_snapshot(accept: str | None) -> None:
    assert samples(rendered(INCIDENTS, LAG, accept=accept)) == {
        # prometheus_client writes labels by name: root_cause before signature
        ("gpufault_incidents_total", ("unknown", "nv_xid_79_fallen_off_bus")): 3.0,
        ("gpufault_incidents_total", ("driver_older_than_rocm", "amd_aperture_violation")): 0.0,
        ("gpufault_source_lag_seconds", ()): 0.25,
    }


def test_openmetrics_shows_the_incident_behind_a_counter_and_the_text_format_does_not() -> None:
    exemplar = Exemplar({"incident": "0123456789abcdef", "job": "7\udcff"}, 1.0, 1_700_000_000.25)
    counted = replace(INCIDENTS, exemplars={("nv_xid_79_fallen_off_bus", "unknown"): exemplar})
    told = rendered(counted, accept=OPENMETRICS)
    (family,) = (f for f in read_openmetrics(told.body.decode()) if f.name == "gpufault_incidents")
    found = {
        sample.labels["signature"]: sample.exemplar and (sample.exemplar.labels, float(sample.exemplar.timestamp))
        for sample in family.samples
    }
    assert found == {
        "nv_xid_79_fallen_off_bus": ({"incident": "0123456789abcdef", "job": "7\\udcff"}, 1_700_000_000.25),
        "amd_aperture_violation": None,
    }
    assert own_part(rendered(counted, accept=TEXT)) == own_part(rendered(INCIDENTS, accept=TEXT))


def test_types_and_help_reach_the_reader() -> None:
    for read, accept in ((read_text, TEXT), (read_openmetrics, OPENMETRICS)):
        families = {family.name: family for family in read(rendered(INCIDENTS, LAG, accept=accept).body.decode())}
        incidents = families["gpufault_incidents"]
        assert (incidents.type, incidents.documentation) == ("counter", "Incidents, each counted once.")
        assert families["gpufault_source_lag_seconds"].type == "gauge"


def test_a_counter_is_named_the_same_with_or_without_total() -> None:
    bare = Family("gpufault_incidents", "counter", INCIDENTS.help, INCIDENTS.labels, INCIDENTS.samples)
    for accept in (TEXT, OPENMETRICS):
        assert samples(rendered(bare, accept=accept)) == samples(rendered(INCIDENTS, accept=accept))


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
def test_no_created_lines_are_written(accept: str) -> None:
    assert b"_created" not in rendered(INCIDENTS, accept=accept).body


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"),
        ("text/plain;version=1.0.0", "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"),
        ("application/openmetrics-text;version=x", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.x", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_the_scraper_chooses_the_format_and_nonsense_gets_plain_text(accept: str | None, content_type: str) -> None:
    assert rendered(LAG, accept=accept).content_type == content_type


def test_gzip_is_used_when_it_is_accepted_and_only_then() -> None:
    exposition = Exposition(lambda: SNAPSHOT)
    plain = exposition.render(TEXT, "identity")
    zipped = exposition.render(TEXT, "deflate, gzip;q=0.8")
    assert (plain.encoding, zipped.encoding) == (None, "gzip")
    assert gzip.decompress(zipped.body) == plain.body


@pytest.mark.parametrize("accept_encoding", [None, "gzip"])
def test_one_snapshot_is_the_same_bytes_however_often_it_is_asked_for(accept_encoding: str | None) -> None:
    exposition = Exposition(lambda: SNAPSHOT)
    assert exposition.render(TEXT, accept_encoding).body is exposition.render(TEXT, accept_encoding).body


def test_a_new_snapshot_is_seen_by_the_next_scrape() -> None:
    published = [SNAPSHOT]
    exposition = Exposition(lambda: published[-1])
    assert b"gpufault_source_lag_seconds 0.25" in exposition.render(TEXT, None).body
    published.append(MetricsSnapshot((Family(LAG.name, "gauge", LAG.help, (), {(): 7}),)))
    assert b"gpufault_source_lag_seconds 7.0" in exposition.render(TEXT, None).body


def test_of_a_new_snapshot_each_format_shows_every_family_as_it_is_now() -> None:
    later = Family(INCIDENTS.name, INCIDENTS.kind, INCIDENTS.help, INCIDENTS.labels, {("a", "b"): 7})
    latest = [SNAPSHOT, MetricsSnapshot((later, LAG)), MetricsSnapshot((LAG,)), SNAPSHOT]
    exposition = Exposition(lambda: latest[0])
    while latest:
        for accept in (TEXT, OPENMETRICS):
            expected = samples(rendered(*latest[0].families, accept=accept))
            assert samples(exposition.render(accept, None)) == expected
        latest.pop(0)


def test_formats_beyond_the_bound_are_rendered_but_not_kept() -> None:
    exposition = Exposition(lambda: SNAPSHOT)
    asked = [f"application/openmetrics-text;version=1.0.{patch}" for patch in range(MAX_BODIES + 1)]
    first, *_, last = [exposition.render(accept, None) for accept in asked]
    assert exposition.render(asked[0], None).body is first.body
    assert exposition.render(asked[-1], None).body is not last.body
    assert samples(exposition.render(asked[-1], None)) == samples(last)


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
def test_the_process_tells_of_itself_beside_the_snapshot(accept: str) -> None:
    body = rendered(LAG, accept=accept).body
    assert b"\nprocess_resident_memory_bytes " in body
    assert b"\nprocess_cpu_seconds_total " in body


# What has broken expositions: quotes, backslashes, line ends, empty text, text beyond ASCII.
values = st.text(alphabet=["\\", '"', "\n", "\r", "n", "{", "}", ",", "=", " ", "#", "é", "🔥"], max_size=8)


@given(first=values, second=values)
def test_any_label_value_reads_back_as_it_was(first: str, second: str) -> None:
    family = Family("gpufault_node_fact", "gauge", "A fact.", ("fact", "value"), {(first, second): 1})
    for accept in (TEXT, OPENMETRICS, PROMETHEUS_3):
        assert samples(rendered(family, accept=accept)) == {("gpufault_node_fact", (first, second)): 1.0}


def test_a_path_that_is_no_utf8_does_not_fail_the_scrape() -> None:
    path = b"/scratch/caf\xe9.log".decode(errors="surrogateescape")
    family = Family("gpufault_source_up", "gauge", "Whether it is read.", ("source",), {(path,): 1})
    assert samples(rendered(family)) == {("gpufault_source_up", ("/scratch/caf\\udce9.log",)): 1.0}


def test_a_series_with_too_few_label_values_is_our_bug_and_is_not_written() -> None:
    with pytest.raises(AssertionError, match="gpufault_incidents_total"):
        Family("gpufault_incidents_total", "counter", "Incidents.", ("signature", "root_cause"), {("amd",): 1})
