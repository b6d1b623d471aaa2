"""Tables of a page: arranged by the address, exported without formulas."""

from markupsafe import Markup

from exporter.fleet.service.tables import PageTable, arranged, as_csv, as_json, link, number, plain, several, when

TABLE = PageTable(
    key="t", title="T", heads=("Name", "Count"),
    rows=[("b", number(2)), ("a", number(10)), ("=c", number(None)), (Markup("<b>d</b>"), number(1))],
)  # fmt: skip


def names(query: dict[str, str]) -> list[str]:
    return [plain(row[0]) for row in arranged(TABLE, query).rows]


def test_the_address_sorts_by_number_with_the_unknown_last() -> None:
    assert names({"sort.t": "1"}) == ["d", "b", "a", "=c"]
    assert names({"sort.t": "-1"}) == ["a", "b", "d", "=c"]
    assert names({"sort.t": "0"}) == ["=c", "a", "b", "d"]
    assert names({"sort.t": "-0"}) == ["d", "b", "a", "=c"]


def test_an_order_that_cannot_be_meant_is_ignored() -> None:
    for sort in ("9", "x", "-", "1" * 50, "²"):
        assert names({"sort.t": sort}) == ["b", "a", "=c", "d"]
    assert names({"sort.other": "1"}) == ["b", "a", "=c", "d"]


def test_the_address_filters_by_what_a_cell_shows() -> None:
    assert names({"find.t": "D"}) == ["d"]
    assert arranged(TABLE, {"find.t": "nothing"}).filtered


def test_exports_have_plain_values() -> None:
    assert as_csv(TABLE).splitlines() == ["Name,Count", "b,2", "a,10", "'=c,", "d,1"]
    assert as_json(TABLE)["rows"][3] == {"Name": "d", "Count": 1}
    assert when(0.0).value == 0.0


def test_a_link_is_text_where_there_is_no_page() -> None:
    hostile = "<script>"
    assert link(lambda path: f"{path}?x=1&y", "nodes", hostile).shown == (
        '<a href="/nodes/%3Cscript%3E?x=1&amp;y">&lt;script&gt;</a>'
    )
    assert link(lambda _: "", "nodes", hostile).shown == "&lt;script&gt;"
    assert several([link(lambda _: "", "nodes", "a"), link(lambda _: "", "nodes", "b")], 3).value == "a, b and 3 more"
