"""What a request asks: window, filters, order and page. An address with these is permanent."""

import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from urllib.parse import urlencode

from starlette.requests import Request

from exporter.fleet.service.html import segment
from exporter.fleet.service.lists import LISTS, MAX_ROWS, Asked

DAY = 86400.0
WINDOWS = {"1d": "1 day", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
MAX_OFFSET = 1_000_000
_UNITS = {"h": 3600.0, "d": DAY, "w": 7 * DAY}
_KEPT = ("window", "start", "end")


class BadRequest(ValueError):
    """What is wrong with a request, for people."""


def window_of(request: Request, *, newest: float, usual: float) -> tuple[float, float]:
    """Start and end in Unix seconds: `window` before `end`, which is by default just after the newest record."""
    given = request.query_params
    end = _time(given["end"], "end") if given.get("end") else newest + 1
    if given.get("start"):
        start = _time(given["start"], "start")
    else:
        start = end - (_span(given["window"]) if given.get("window") else usual)
    if not start < end:
        raise BadRequest("start is not before end")
    return start, end


def asked(request: Request, name: str, window: tuple[float, float], *, limit: int = 100) -> Asked:
    """The request for a list. Raises BadRequest for a parameter that the list does not have."""
    listing, given = LISTS[name], request.query_params
    facts = {key.removeprefix("fact."): value for key, value in given.items() if key.startswith("fact.") and value}
    if given.get("fact") and given.get("value"):  # as the form of the page asks
        facts[given["fact"]] = given["value"]
    filters = {key: value for key, value in given.items() if key in listing.filters and value}
    own = {"by", "fact", "value", "table"} if name == "nodes" else set()
    refuse_others(request, {*listing.filters, *own, "sort", "limit", "offset", "format"}, "fact.")
    if facts and "node" not in listing.filters:
        raise BadRequest(f"{name} cannot be filtered by facts")
    sort = given.get("sort", listing.sort)
    if sort.removeprefix("-") not in {column.key for column in listing.columns}:
        raise BadRequest(f"cannot sort by {sort[:80]!r}; use one of {', '.join(c.key for c in listing.columns)}")
    return Asked(
        start=window[0], end=window[1], filters=filters, facts=facts, sort=sort,
        offset=_number(given.get("offset", "0"), "offset", MAX_OFFSET),
        limit=max(_number(given.get("limit", str(limit)), "limit", MAX_ROWS), 1),
    )  # fmt: skip


def refuse_others(request: Request, parameters: AbstractSet[str], *prefixes: str) -> None:
    """Raise BadRequest for a parameter that is neither of the window nor one of these: a filter that would filter nothing."""
    allowed = {*parameters, *_KEPT}
    of_tables = ("sort.", "find.", "all.", *prefixes)
    if unknown := sorted(k for k in request.query_params if k not in allowed and not k.startswith(of_tables)):
        names = ", ".join([*sorted(allowed), *(f"{prefix}NAME" for prefix in prefixes)])
        raise BadRequest(f"unknown parameter {unknown[0][:80]!r}; use one of {names}")


def moment_of(request: Request, name: str, usual: float) -> float:
    """A time that the request names. Raises BadRequest."""
    given = request.query_params.get(name)
    return _time(given, name) if given else usual


def address(request: Request, path: str | None = None, /, **changes: str | None) -> str:
    """A path (this page's by default) with window and filters of the request, some changed or removed (None)."""
    given = {k: v for k, v in request.query_params.items() if v and (path is None or k in _KEPT)}
    for key, value in changes.items():
        given.pop(key, None)
        if value:
            given[key] = value
    return (path_of(request) if path is None else path) + (f"?{urlencode(given)}" if given else "")


def path_of(request: Request) -> str:
    """The path of a page as it stands in a link; a name in it may hold slashes and what else."""
    kind, _, name = request.scope["path"].removeprefix("/").partition("/")
    return f"/{kind}/{segment(name)}" if name else f"/{kind}"


def window_in(request: Request) -> Mapping[str, str]:
    """The parameters that choose the window."""
    return {k: v for k, v in request.query_params.items() if v and k in _KEPT}


def filters_in(request: Request) -> Mapping[str, str]:
    """The parameters that a form has to keep."""
    return {k: v for k, v in request.query_params.items() if v and k not in (*_KEPT, "offset")}


def _number(text: str, name: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise BadRequest(f"{name} is not a number from 0 to {most}")
    return min(int(text), most)


def _span(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text, re.ASCII)
    if not match or not int(match[1]):
        raise BadRequest("invalid window; use a number and a unit, such as 7d")
    return int(match[1]) * _UNITS[match[2]]


def _time(text: str, name: str) -> float:
    try:
        if re.fullmatch(r"[0-9.]{1,20}", text, re.ASCII):
            time = float(text)
        else:
            read = datetime.fromisoformat(text)
            time = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        time = math.nan
    if not 0 <= time < 1e11:
        raise BadRequest(f"{name} is not a time; use RFC 3339, such as 2026-11-20T14:00:00Z, or Unix seconds")
    return time
