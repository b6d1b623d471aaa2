"""Small tables of a page: sorted and filtered by the page's address, and exported as CSV and JSON."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact
from exporter.fleet.review.trends import is_clear
from exporter.fleet.service.api import csv_of
from exporter.fleet.service.html import clip, segment, time_of

SHOWN, MAX_SHOWN = 12, 1000  # rows of a table on a page, and if the address asks for all; its export has all
FEW = 3  # rows that are not worth hiding
FILTERED_FROM = 9  # rows, from which a page offers to filter them
MAX_FIND_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a cell shows, and its plain value for sorting and export."""

    shown: Markup
    value: str | float | None

    def __html__(self) -> str:
        return self.shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table of a page. `key` is its name in addresses; `width` the class of its card: full, larger, most, rest or half."""

    key: str
    title: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    empty: str = "None."
    width: str = "full"
    total: int = 0  # rows before the filter
    sort: str = ""  # a column's number, `-` before it for descending
    find: str = ""
    all: bool = False
    more: Markup | str = ""  # a link to the whole list

    @property
    def shown(self) -> Sequence[Sequence[Any]]:
        return self.rows[: MAX_SHOWN if self.all or len(self.rows) <= SHOWN + FEW else SHOWN]

    @property
    def filtered(self) -> bool:
        """Whether the page offers to filter the rows."""
        return bool(self.find) or self.total >= FILTERED_FROM


def arranged(table: PageTable, query: Mapping[str, str]) -> PageTable:
    """The table as an address asks for it: `sort.KEY=2` or `-2`, `find.KEY=text`."""
    sort, find = query.get(f"sort.{table.key}", ""), query.get(f"find.{table.key}", "")[:MAX_FIND_CHARS]
    rows = list(table.rows)
    assert all(len(row) == len(table.heads) for row in rows)
    if find:
        rows = [row for row in rows if any(find.casefold() in str(plain(value)).casefold() for value in row)]
    if re.fullmatch(r"-?[0-9]{1,2}", sort, re.ASCII) and abs(int(sort)) < len(table.heads):
        column = abs(int(sort))
        with_value = [row for row in rows if plain(row[column]) is not None]
        with_value.sort(key=lambda row: _order(row[column]), reverse=sort.startswith("-"))
        rows = [*with_value, *(row for row in rows if plain(row[column]) is None)]
    else:
        sort = ""
    return replace(table, rows=rows, total=len(table.rows), sort=sort, find=find, all=f"all.{table.key}" in query)


def as_csv(table: PageTable) -> str:
    """The rows as CSV, without formulas."""
    return csv_of(table.heads, ([plain(value) for value in row] for row in table.rows))


def as_json(table: PageTable) -> dict[str, Any]:
    return {
        "table": table.key,
        "rows": [dict(zip(table.heads, map(plain, row), strict=True)) for row in table.rows],
    }


def plain(value: Any) -> Any:
    """A cell's value for programs."""
    if isinstance(value, Cell):
        return value.value
    if isinstance(value, Markup):
        return str(value.striptags())
    return redact(value) if isinstance(value, str) else value


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers before texts."""
    plain_value = plain(value)
    number = isinstance(plain_value, (int, float))
    return not number, float(plain_value) if number else 0.0, "" if number else str(plain_value)


def when(time: float | None) -> Cell:
    return Cell(shown=time_of(time), value=time)


def number(value: float | None, shown: str | None = None, tone: str = "") -> Cell:
    """A number, by default with thousands separators."""
    text = ("–" if value is None else f"{value:,.0f}") if shown is None else shown
    return Cell(shown=Markup('<span class="{}">{}</span>').format(f"figures {tone}".strip(), text), value=value)


def tone_of(now: int, before: int) -> str:
    """The class of a change: dim where chance explains it."""
    return "dim" if not is_clear(now, before) else "worse" if now > before else "better"


def tag(verdict: str) -> Cell:
    """Whose fault something is, in its colour."""
    class_ = verdict if verdict in ("infrastructure", "workload") else "unclear"
    return Cell(shown=Markup('<span class="tag {}">{}</span>').format(class_, class_), value=class_)


def picture(svg: str, value: float | None = None) -> Cell:
    return Cell(shown=Markup(svg), value=value)  # noqa: S704 - the charts escape every text


def linked(address: str, text: str) -> Cell:
    """A text that leads to an address, such as that of a filtered list."""
    shown = Markup('<a href="{}">{}</a>').format(address, printable(clip(redact(text))))
    return Cell(shown=shown, value=text)


Link = Callable[[str], str]


def link(address: Link, kind: str, name: str, text: str = "", *, with_id: bool = False) -> Cell:
    """A link to the page of a cause, node, job or incident; its text alone where `address` has no such page."""
    target, label = address(f"/{kind}/{segment(name)}"), printable(clip(redact(text or name)))
    shown = Markup('<a href="{}">{}</a>').format(target, label) if target else escape(label)
    if with_id and text and text != name:
        shown += Markup(' <span class="id">{}</span>').format(printable(clip(name)))
    return Cell(shown=shown, value=name)


def several(cells: Iterable[Cell], more: int = 0) -> Cell:
    """Several links in one cell, and how many there are beside them."""
    links = list(cells)
    shown = Markup(", ").join(escape(cell) for cell in links)
    if more > 0:
        shown += Markup(" and {} more").format(f"{more:,}")
    return Cell(
        shown=shown, value=", ".join(str(cell.value) for cell in links) + (f" and {more:,} more" if more > 0 else "")
    )
