"""Renders the fleet's pages: templates with autoescape, and how times, numbers, ids and hostile texts are shown."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from exporter.core.authoring.explanation import Explanation, explanation_of
from exporter.core.catalogue.loader import Catalogue
from exporter.core.model import DOMAIN_WORDS
from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact
from exporter.fleet.review.review_contents import titles_of
from exporter.web.page import environment, with_code

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
MAX_CELL_CHARS = 300  # a hostile name may have 256, a line 4,096; the incident's page has all of it
UNKNOWN_TITLE = "Cause unknown"


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    made = environment([TEMPLATES], _shown, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "time": time_of, "count": count, "clip": clip, "log": redact, "segment": segment, "code": with_code,
        "lines": multiline, "breakable": breakable, "domain": DOMAIN_WORDS.__getitem__,
    }  # fmt: skip
    return made


def _shown(value: Any) -> Markup | str:
    """What is HTML already, such as a cell, as it is; everything else as printable text, which jinja2 escapes."""
    return Markup(value.__html__()) if hasattr(value, "__html__") else printable(str(value))  # noqa: S704


def time_of(time: float | None) -> Markup:
    """Unix seconds as a time in UTC; a dash if unknown."""
    if time is None:
        return Markup("–")
    at = datetime.fromtimestamp(time, UTC)
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%d %b %Y %H:%M:%S}</time>').format(at, at)


def count(value: float | None) -> str:
    """A number with thousands separators; a dash if unknown."""
    return "–" if value is None else f"{value:,.0f}"


def clip(text: str | None) -> str:
    """A text for a table's cell."""
    text = text or ""
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"


def breakable(name: str) -> Markup:
    """A name that a line may end in behind each underscore."""
    return Markup("_<wbr>").join(printable(part) for part in name.split("_"))


def multiline(text: str) -> Markup:
    """A text of several lines, for a `pre`."""
    return Markup("\n").join(printable(line) for line in text.splitlines())


def segment(name: str) -> str:
    """A name as one segment of a path; `.` and `..` would be taken for folders."""
    return quote(name, safe="").replace(".", "%2E") if name.strip(".") == "" else quote(name, safe="")


def change(value: float, before: float | None) -> str:
    """A change as people write it: `none before`, `±0`, `+340%`; a dash where there is nothing to compare with."""
    if before is None:
        return "–"
    if not before:
        return "none before" if value else "±0"
    share = round((value - before) / before * 100)
    return f"{share:+,}%".replace("-", "−") if share else "±0"


class Titles:
    """Titles and explanations of the catalogue; of ids that it does not have, the id."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.plain = titles_of(catalogue)

    def title(self, name: str | None) -> str:
        """The title of a root cause or a signature."""
        if name in (None, "", "unknown"):
            return UNKNOWN_TITLE
        entry = self.catalogue.root_causes.get(name) or self.catalogue.signatures.get(name)
        return entry.title if entry else name

    def about(self, name: str) -> Explanation:
        """What the catalogue says of an id, also of one that it does not have."""
        return explanation_of(self.catalogue, name) or Explanation(kind="id", title=name)
