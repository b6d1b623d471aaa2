"""How well settled reports foretell where the fault of another report lies: one project, then one year, left out at a time.

    python -m benchmarks.reports            # prints the tables of docs/settled-reports.md
    python -m benchmarks.reports --write    # writes them there

Each report is judged by a distribution made of the reports of all other projects (of a GitHub address owner and name, of
others the host), or of all other years. The domains that the catalogue gives to signatures are not used: people chose them
after they had read the same reports.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from benchmarks import into_page
from exporter.config import packs
from exporter.core.catalogue import loader
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.outcomes import BACK_OFF, LEAST, smoothed
from exporter.core.catalogue.reports import SettledReport
from exporter.core.model import Domain

DATA_CENTRE = (
    "A100",
    "A800",
    "B200",
    "B300",
    "GB200",
    "GB300",
    "H100",
    "H200",
    "MI",
    "P100",
    "PVC",
    "T4",
    "Tesla",
    "V100",
)
NEVER = 1e-6  # as good as 0
BANDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 1.01)

Key = Callable[[SettledReport], Hashable]  # of the group that a report is in; None: not known
Reports = Sequence[SettledReport]


@dataclass(frozen=True, slots=True)
class Judged:
    """A report and what the others foretell of it. others: of its own signature."""

    report: SettledReport
    shares: dict[Domain, float]
    others: int

    @property
    def top(self) -> Domain:
        return max(self.shares, key=lambda domain: self.shares[domain])

    @property
    def is_right(self) -> bool:
        return self.top == self.report.domain


@dataclass(frozen=True, slots=True)
class Score:
    """right: share of reports whose likeliest domain is theirs. loss: mean -ln of the share of their domain."""

    right: float
    loss: float

    @classmethod
    def of(cls, judged: Sequence[Judged]) -> Score:
        shares = [each.shares[each.report.domain] for each in judged]
        loss = sum(-math.log(share) if share > NEVER else math.inf for share in shares) / len(judged)
        return cls(sum(each.is_right for each in judged) / len(judged), loss)


def project(report: SettledReport) -> str:
    """`github.com/owner/name`; of an address elsewhere the host."""
    address = urlsplit(report.address)
    return (
        "/".join([address.netloc, *address.path.split("/")[1:3]]) if address.netloc == "github.com" else address.netloc
    )


def year(report: SettledReport) -> str:
    return report.date[:4]


def signature(report: SettledReport) -> Hashable:
    return report.signature


def everything(_: SettledReport) -> Hashable:
    return True


def vendor(report: SettledReport) -> Hashable:
    return (report.signature, report.vendor) if report.vendor != "any" else None


def gpu_class(report: SettledReport) -> Hashable:
    if not report.gpu:
        return None
    return report.signature, any(model in gpu for gpu in report.gpu for model in DATA_CENTRE)


def release(report: SettledReport) -> Hashable:
    """The major release of the first software whose version is known."""
    first = next(iter(report.software.items()), None)
    return (report.signature, first[0], first[1].partition(".")[0]) if first else None


def era(report: SettledReport) -> Hashable:
    return report.signature, int(year(report)) // 3


def judge(
    reports: Reports, left_out: Callable[[SettledReport], str], levels: Sequence[Key], back_off: float
) -> list[Judged]:
    """Each report, by the reports of all other projects or years. levels: the widest first."""
    groups: dict[str, list[SettledReport]] = {}
    for report in reports:
        groups.setdefault(left_out(report), []).append(report)
    counts = [_counts(reports, key) for key in (*levels, signature)]
    judged = []
    for group in groups.values():
        own = [_counts(group, key) for key in (*levels, signature)]
        for report in group:
            keys = [key(report) for key in (*levels, signature)]
            rest = [
                count[key] - less[key] for count, less, key in zip(counts, own, keys, strict=True) if key is not None
            ]
            judged.append(Judged(report, smoothed(rest[:-1], back_off), rest[-1].total()))
    return judged


def _counts(reports: Reports, key: Key) -> dict[Hashable, Counter[Domain]]:
    counts: dict[Hashable, Counter[Domain]] = {}
    for report in reports:
        counts.setdefault(key(report), Counter())[report.domain] += 1
    return counts


def tables(reports: Reports, catalogue: Catalogue) -> Iterator[str]:
    """The Markdown of the page."""

    def layer(report: SettledReport) -> Hashable:
        return catalogue.signatures[report.signature].layer

    shown = [everything, signature]
    rows: list[tuple[str, Sequence[Key], float]] = [
        ("of all lines", [everything], BACK_OFF),
        ("of the line alone, unsmoothed", [signature], 1e-9),
        ("of the line alone, with one report more in each domain", [signature], 10.0),
        ("**of the line, backed off to all lines: what is shown**", shown, BACK_OFF),
        ("the same, weight of the back-off 1", shown, 1.0),
        ("the same, weight of the back-off 5", shown, 5.0),
        ("backed off to its layer first", [everything, layer, signature], BACK_OFF),
        ("also by vendor", [*shown, vendor], BACK_OFF),
        ("also by kind of GPU, data centre or not", [*shown, gpu_class], BACK_OFF),
        ("also by release of the software", [*shown, release], BACK_OFF),
        ("also by time, three years each", [*shown, era], BACK_OFF),
    ]
    projects = len({project(report) for report in reports})
    lines = len({report.signature for report in reports})
    first, last = min(map(year, reports)), max(map(year, reports))
    yield f"{len(reports)} reports of {lines} signatures from {projects} projects, {first} to {last}.\n"
    yield "| frequencies | right, project left out | log loss | right, year left out | log loss |"
    yield "| --- | --- | --- | --- | --- |"
    for name, levels, back_off in rows:
        scores = [Score.of(judge(reports, by, levels, back_off)) for by in (project, year)]
        yield f"| {name} | {' | '.join(f'{score.right:.2f} | {_loss(score.loss)}' for score in scores)} |"
    judged = judge(reports, project, shown, BACK_OFF)
    yield "\nBy the number of other reports of the line, project left out:\n"
    yield "| other reports | reports | right | log loss |\n| --- | --- | --- | --- |"
    for low, high in ((0, 1), (1, LEAST), (LEAST, 8), (8, 1000)):
        if part := [each for each in judged if low <= each.others < high]:
            name = f"{low} to {high - 1}" if high - low > 1 else f"{low}"
            score = Score.of(part)
            yield f"| {name if high < 1000 else f'{low} or more'} | {len(part)} | {score.right:.2f} | {_loss(score.loss)} |"
    yield f"\nReliability, with {LEAST} or more other reports: the likeliest domain's share, and how often it was right.\n"
    yield from reliability([each for each in judged if each.others >= LEAST])


def _loss(loss: float) -> str:
    return "infinite" if math.isinf(loss) else f"{loss:.2f}"


def reliability(judged: Sequence[Judged]) -> Iterator[str]:
    """A row for each band of shares: the mean share, how often it was right, and both as a bar."""
    yield "| share | reports | expected | right | |\n| --- | --- | --- | --- | --- |"
    for low, high in pairwise(BANDS):
        part = [each for each in judged if low <= each.shares[each.top] < high]
        if not part:
            continue
        expected = sum(each.shares[each.top] for each in part) / len(part)
        right = sum(each.is_right for each in part) / len(part)
        band = f"below {high:.1f}" if not low else f"{low:.1f} or more" if high > 1 else f"{low:.1f} to {high:.1f}"
        yield f"| {band} | {len(part)} | {expected:.2f} | {right:.2f} | `{bar(expected, right)}` |"


def bar(expected: float, right: float, width: int = 20) -> str:
    """`right` as a bar, with a mark where it should end."""
    cells = ["=" if at < round(right * width) else "." for at in range(width)]
    cells[min(width - 1, round(expected * width))] = ":"
    return "".join(cells)


def printed() -> Iterator[str]:
    loaded = loader.load(packs.report_texts(), packs.builtin())
    return tables(loaded.catalogue.reports, loaded.catalogue)


if __name__ == "__main__":
    into_page.main(__file__, __doc__, "settled-reports.md", printed)
