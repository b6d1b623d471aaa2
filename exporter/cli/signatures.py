"""`gpufault signatures`: the signature author's tools."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from exporter.cli import options as flags
from exporter.core.model import UNKNOWN, UNRECOGNISED, Layer, Severity, SourceKind, Vendor
from exporter.core.text.phrases import counted

if TYPE_CHECKING:
    from exporter.core.catalogue.loader import LoadedPacks
    from exporter.core.catalogue.pack_types import RootCause, Signature
    from exporter.core.text.problems import Problem

DESCRIPTION = "Lists, shows, checks, tests and describes signatures. docs/writing-signatures.md says how to write one."
LEAST_SHARE = 0.05  # of an estimate that is printed
WITHOUT_CAUSE = """unknown: no cause is known for this crash, or none could be shown. `gpufault explain --facts host LOG` on the
node names those that are still possible, and the command that finds out what would decide; without a log,
`gpufault signatures show` of the signature tells what to do first."""
VERBS = "list|show|new|check|test|diff|schema|docs|reports"
BUILTIN = "builtin"  # the built-in packs, for `diff`
PACKS = "your own packs: files or folders, loaded beside the built-in packs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar=VERBS, required=True)
    listing = verbs.add_parser("list", help="all active signatures")
    listing.add_argument("--vendor", choices=get_args(Vendor), help="only this vendor's")
    listing.add_argument("--layer", choices=get_args(Layer), help="only this layer's")
    listing.add_argument("--severity", choices=get_args(Severity), help="only of this severity")
    listing.add_argument("--format", choices=("text", "json"), default="text", help="json: one object a line")
    flags.add_catalogue(listing)
    showing = verbs.add_parser("show", help="one signature or root cause in full, and what explains it")
    showing.add_argument("id")
    flags.add_catalogue(showing)
    new = verbs.add_parser("new", help="draft a pack from lines of one error")
    new.add_argument(
        "lines", nargs="+", metavar="LINE", help="a line of a log; if there are several, their numbers may differ"
    )
    new.add_argument("--source", default="auto", choices=("job", "kernel", "auto"), help="default: auto")
    flags.add_catalogue(new)
    checking = verbs.add_parser(
        "check",
        help="all errors and warnings of packs, with file:line:col; a YAML syntax error hides the rest of its file",
    )
    checking.add_argument("packs", nargs="*", metavar="PATH", help=f"{PACKS} (default: check the built-in packs)")
    checking.add_argument("--strict", action="store_true", help="warnings are errors")
    checking.add_argument(
        "--profile", action="store_true", help="also what each pattern costs; one that is slow is a warning"
    )
    testing = verbs.add_parser("test", help="run every example and near miss with both engines")
    testing.add_argument("packs", nargs="*", metavar="PATH", help=PACKS)
    comparing = verbs.add_parser(
        "diff",
        help="what packs add to the built-in ones, replace and shadow; or what changed between two sets of packs",
    )
    comparing.add_argument("old", metavar="OLD", help=f"a file or folder of packs, or `{BUILTIN}`")
    comparing.add_argument("new", metavar="NEW", help="a file or folder of packs")
    verbs.add_parser("schema", help="the JSON schema of a pack, for editors")
    writing = verbs.add_parser("docs", help="write one page for each signature, and an index")
    writing.add_argument(
        "packs",
        nargs="*",
        metavar="PATH",
        help=f"{PACKS}; only pages of their signatures, and of those that their causes explain, are written",
    )
    writing.add_argument("--out", metavar="DIR", default="docs/signatures", help="default: docs/signatures")
    flags.add_catalogue(writing)
    giving = verbs.add_parser("reports", help="your packs' settled incidents in the project's form, without names")
    giving.add_argument("--address", required=True, metavar="URL", help="of the issue or change in which you give them")
    giving.add_argument(
        "--allow",
        nargs="+",
        default=[],
        metavar="WORD",
        help="words that are not names",
    )
    flags.add_catalogue(giving)


def run(options: argparse.Namespace) -> int:
    verbs = {
        "list": _list, "show": _show, "new": _new, "check": _check, "test": _test, "diff": _diff, "schema": _schema,
        "docs": _docs, "reports": _reports,
    }  # fmt: skip
    return verbs[options.verb](options)


def _list(options: argparse.Namespace) -> int:
    from exporter.config import packs

    catalogue = packs.load(flags.pack_folders(options))
    selected = [
        signature
        for signature in sorted(catalogue.signatures.values(), key=lambda s: (s.vendor, s.layer, s.id))
        if options.vendor in (None, signature.vendor)
        and options.layer in (None, signature.layer)
        and options.severity in (None, signature.severity)
    ]
    width = max((len(signature.id) for signature in selected), default=0)
    for signature in selected:
        row = {"id": signature.id, "vendor": signature.vendor, "layer": signature.layer, "severity": signature.severity}
        pack = catalogue.pack_of[signature.id]
        if options.format == "json":
            print(json.dumps({**row, "title": signature.title, "pack": pack, "override": signature.override}))
            continue
        mark = f" (pack {pack}, in the place of the built-in one)" if signature.override else ""
        columns = "{id:<{width}}  {vendor:<6}  {layer:<9}  {severity:<8}".format(**row, width=width)
        print(columns, signature.title + mark)
    return 0


def _show(options: argparse.Namespace) -> int:
    import yaml

    from exporter.config import packs
    from exporter.core.catalogue.outcomes import outlook
    from exporter.core.text.phrases import nearest
    from exporter.core.text.stored_values import to_data

    loaded = packs.load_texts(flags.pack_folders(options))
    catalogue = loaded.catalogue
    items = [item for item in (catalogue.signatures.get(options.id), catalogue.root_causes.get(options.id)) if item]
    if options.id == UNKNOWN:
        print(textwrap.fill(WITHOUT_CAUSE, 110))
        return 0
    if not items:
        ids = (*catalogue.signatures, *catalogue.root_causes)
        near = [i for i in ids if options.id in i] or [i for i in (nearest(options.id, ids),) if i]
        hint = f"; did you mean {', '.join(near[:5])}?" if near else "; see `gpufault signatures list`"
        raise flags.UsageError(f"no signature or root cause {options.id!r}{hint}")
    for item in items:
        print(f"# {_defined_in(loaded, item)}")
        print(yaml.safe_dump(to_data(item), sort_keys=False, allow_unicode=True, width=110), end="")
    if options.id in catalogue.root_causes:
        print("# explains:")
        for name in sorted(catalogue.matching(catalogue.root_causes[options.id].signatures)):
            print(f"#   {name}: {catalogue.signatures[name].title}")
    outcomes = packs.outcomes(catalogue, options.id)
    shown = outlook(outcomes)
    for sentence in shown.sentences:
        print(f"# {sentence}")
    if shown.shares:
        likely = sorted(shown.shares.items(), key=lambda item: -item[1])
        print("# estimate:", ", ".join(f"{domain} {share:.0%}" for domain, share in likely if share >= LEAST_SHARE))
    for report in (*outcomes.site, *outcomes.public):
        print(f"#   {report.date} {report.domain}: {report.cause} ({report.settled}) {report.address}")
    if causes := catalogue.causes_of(options.id):
        print("# can be explained by:")
        for cause in causes:
            print(f"#   {cause.id} ({cause.verdict}, evidence {cause.strength}): {cause.title}")
    return 0


def _new(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.core.authoring.draft import draft, left_out
    from exporter.core.authoring.example_checks import run_text
    from exporter.core.decoding.formats import decode, resembles_kernel_line
    from exporter.core.decoding.prefixes import Clock
    from exporter.core.matching.pipeline import Pipeline

    lines = [line.strip().encode("utf-8", "backslashreplace") for line in options.lines]
    if any(not line or b"\n" in line for line in lines):
        raise flags.UsageError("each argument is one line of a log")
    likely: tuple[SourceKind, ...] = ("kernel", "job") if resembles_kernel_line(lines[0]) else ("job", "kernel")
    sources = likely if options.source == "auto" else (options.source,)
    pipeline = Pipeline(catalogue := packs.load(flags.pack_folders(options)))
    shown: set[str] = set()
    for source in sources:  # a copied kernel line may lack its timestamp
        texts = [decode(line, "plain", source, Clock(0.0)).text for line in lines]
        shown = {match.signature for text in texts for match in run_text(pipeline, text, source).matches} - {
            UNRECOGNISED
        }
        if shown:
            break
    else:
        source = sources[0]
        texts = [decode(line, "plain", source, Clock(0.0)).text for line in lines]
    for name in sorted(shown):
        print(f"{name} matches this line already: `gpufault signatures show {name}`", file=sys.stderr)
    for text in left_out(texts):
        print(f"left out, since its wording differs: {text}; draft a signature of its own for it", file=sys.stderr)
    print(draft(texts, source, catalogue.signatures), end="")
    return 0


def _defined_in(loaded: LoadedPacks, item: Signature | RootCause) -> str:
    """The file and line of an item, and what it replaces."""
    locations = [
        f"{problem.file}:{problem.line}"
        for file in (*loaded.own, *loaded.builtin)
        for loc, other in file.items()
        if other.id == item.id and type(other) is type(item)
        for problem in [file.document.problem(loc, "")]
    ]
    return f"defined in {locations[0]}" + (f", in the place of {locations[1]}" if item.override else "")


def _check(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.core.authoring import lint
    from exporter.core.facts import process
    from exporter.probes import FACTS

    loaded = packs.examine(options.packs)
    errors, warnings = list(loaded.problems), []
    if loaded.own or not errors:
        errors = sorted({*errors, *lint.errors(loaded)}, key=lambda problem: (problem.file, problem.line, problem.col))
        warnings = lint.warnings(loaded, {*FACTS, *process.FACTS}, packs.ordinary_words())
    if options.profile and not errors:
        warnings += _profile(loaded)
    for problem in errors:
        print(problem)
    for problem in warnings:
        print(f"{problem} (warning)")
    held = _held(loaded) if loaded.own or not errors else "no pack could be read"
    print(f"{held}: {counted(len(errors), 'error')}, {counted(len(warnings), 'warning')}", file=sys.stderr)
    return 2 if errors or (warnings and options.strict) else 0


def _profile(loaded: LoadedPacks) -> list[Problem]:
    """Print what each pattern of the packs costs; those that are slow, with their places."""
    from exporter.core.authoring import pattern_costs
    from exporter.core.catalogue.pack_types import Patterned

    items = [(file, loc, item) for file in loaded.own or loaded.builtin for loc, item in file.items()]
    patterned = [(file, loc, item) for file, loc, item in items if isinstance(item, Patterned)]
    ids = {item.id for _, _, item in patterned}
    measured = pattern_costs.costs(loaded.catalogue, time.process_time, ids)
    usual = (
        pattern_costs.usual(loaded.catalogue, ids, time.process_time)
        if loaded.own
        else pattern_costs.Usual.of(measured)
    )
    width = max((len(cost.id) for cost in measured), default=0)
    print(f"{'try, µs':>9}  {'compile, ms':>11}  {'':<{width}}  pattern, and the literals that lead to it")
    for cost in measured:
        gates = ", ".join(map(repr, cost.gates)) or "none: tried only on lines that others match"
        pattern = textwrap.shorten(cost.pattern, 60, placeholder=" …")
        print(
            f"{cost.try_seconds * 1e6:>9.1f}  {cost.compile_seconds * 1e3:>11.1f}  {cost.id:<{width}}  {pattern}  ({gates})"
        )
    print(f"{usual.try_seconds * 1e6:>9.1f}  {usual.compile_seconds * 1e3:>11.1f}  what others take, the median")
    print(f"the database of {pattern_costs.literals(loaded.catalogue, time.process_time)}")
    return [
        file.document.problem((*loc, key, number), f"{item.id} {why}")
        for cost, why in pattern_costs.slow(measured, usual)
        for file, loc, item in patterned
        for key in ("patterns", "unless")
        for number, pattern in enumerate(getattr(item, key))
        if item.id == cost.id and pattern == cost.pattern
    ]


def _test(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.core.authoring.example_checks import BOTH, check_examples, failed_examples

    loaded = packs.load_texts(packs.with_packs(options.packs))
    files = [*loaded.own, *loaded.builtin]
    own = {file.document.file for file in loaded.own}
    replaced = {(type(item), item.id) for file in loaded.own for _, item in file.items()}
    broken = [
        promise
        for promise in failed_examples(files, loaded.catalogue)
        if promise.problem.file in own or (type(promise.item), promise.item.id) not in replaced
    ]
    for promise in broken:
        problem = promise.problem
        print(f"{problem.file}:{problem.line}:{problem.col}: {promise.item.id}")
        for name, text in (
            ("line", promise.text.strip()),
            ("wrong", problem.message),
            ("shows", ", ".join(promise.shows) or "no signature"),
            ("engine", ", ".join(promise.engines)),
        ):
            print(f"  {name:<7} {text}".replace("\n", "\n          "))
    of_builtin = sum(promise.problem.file not in own for promise in broken)
    examples, near_misses = check_examples(loaded.own or loaded.builtin)
    print(
        f"{counted(examples, 'example')} and {counted(near_misses, 'near miss', 'near misses')} with {' and '.join(BOTH)}: "
        + _hold(len(broken) - of_builtin if own else len(broken))
    )
    if own:
        print(f"examples of the built-in packs beside them: {_hold(of_builtin)}")
    return 1 if broken else 0


def _hold(broken: int) -> str:
    return f"{broken} do{'es' * (broken == 1)} not hold" if broken else "all hold"


def _diff(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.core.authoring.pack_diff import against_builtin, against_others

    if options.new == BUILTIN != options.old:
        raise flags.UsageError(f"name {BUILTIN} first: diff {BUILTIN} {options.old}")
    old, new = (
        packs.load_texts(packs.with_packs([name] if name != BUILTIN else [])) for name in (options.old, options.new)
    )
    beside = options.old == BUILTIN
    changes = against_builtin(new) if beside else against_others(old.own, new.own)
    for change in changes:
        print(change)
    if beside:
        verbs = {"added": "adds", "replaced": "replaces", "shadowed": "shadows", "overlaps": "overlaps"}
        counts = [f"{verb} {sum(change.how == how for change in changes)}" for how, verb in verbs.items()]
        print(f"{options.new}, beside the built-in packs: {', '.join(counts)}", file=sys.stderr)
    elif not changes:
        print("no differences", file=sys.stderr)
    return int(bool(changes))


def _schema(_options: argparse.Namespace) -> int:
    from exporter.core.catalogue.pack_files import schema
    from exporter.core.catalogue.pack_types import Pack

    dialect = "https://json-schema.org/draft/2020-12/schema"
    print(json.dumps({"$schema": dialect, **schema(Pack).json_schema()}, indent=2))
    return 0


def _docs(options: argparse.Namespace) -> int:
    from exporter.config import packs
    from exporter.core.authoring.docs_pages import pages_of, signature_pages

    paths = packs.with_packs(options.packs)
    loaded = packs.load_texts([*flags.pack_folders(options), *paths])
    given = {name for name, _ in packs.of_site(paths)}
    only = pages_of([file for file in loaded.own if file.document.file in given], loaded.catalogue) if paths else None
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    written = signature_pages(loaded.catalogue, only, lambda name: packs.outcomes(loaded.catalogue, name))
    for name, text in written.items():
        (out / name).write_text(text, encoding="utf-8")
    strays = set() if paths else {path.name for path in out.glob("*.md")} - written.keys()
    for stray in sorted(strays):
        print(f"{out / stray}: of no signature; remove it", file=sys.stderr)
    print(f"{counted(len(written) - 1, 'signature page')} and an index in {out}", file=sys.stderr)
    return 0


def _reports(options: argparse.Namespace) -> int:
    """Print the reports of a site's packs for the project; none of them if one may still have a name."""
    import yaml

    from exporter.config import packs
    from exporter.core.catalogue.reports import unusual_words
    from exporter.core.text.problems import InvalidInput
    from exporter.core.text.stored_values import to_data

    if not options.address.startswith("https://"):
        raise flags.UsageError("--address: give an address that begins with https://, such as that of an issue")
    usual = packs.usual_words() | {word.lower() for word in options.allow}
    own = packs.load_texts(flags.pack_folders(options)).own
    reports = [(file, number, report) for file in own for number, report in enumerate(file.pack.reports)]
    advice = "use other words, or give those that are not names to --allow"
    problems = [
        file.document.problem(("reports", number, "cause"), f"may have a name: {', '.join(words)}; {advice}")
        for file, number, report in reports
        if (words := unusual_words(report, usual))
    ]
    if problems:
        raise InvalidInput(problems)
    given = [{**to_data(one), "address": f"{options.address}#{n}"} for n, (_, _, one) in enumerate(reports, 1)]
    print(yaml.safe_dump({"reports": given}, sort_keys=False, allow_unicode=True, width=110), end="")
    return 0


def _held(loaded: LoadedPacks) -> str:
    written = [file.document.data for file in loaded.own or loaded.builtin]  # rejected items count too
    kinds = ("signatures", "root_causes", "reports")
    signatures, causes, reports = (sum(len(data.get(kind) or ()) for data in written) for kind in kinds)
    of_site = f", {counted(reports, 'settled report')}" if reports else ""
    return f"{counted(signatures, 'signature')}, {counted(causes, 'root cause')}{of_site}"
