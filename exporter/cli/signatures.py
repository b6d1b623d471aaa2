"""`gpufault signatures`: the signature author's tools."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from exporter.cli import options as flags

HELP = "the signature author's tools"
DESCRIPTION = "Lists, shows and checks signatures."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="list|show|check|schema", required=True)
    listing = verbs.add_parser("list", help="every signature in force")
    flags.add_catalogue(listing)
    showing = verbs.add_parser("show", help="one signature or root cause, whole")
    showing.add_argument("id")
    flags.add_catalogue(showing)
    checking = verbs.add_parser("check", help="errors in packs, and examples that do not hold")
    checking.add_argument("packs", nargs="*", metavar="FILE|DIR", help="beside the built-in packs")
    verbs.add_parser("schema", help="the JSON schema of a pack, for editors")


def run(options: argparse.Namespace) -> int:
    return {"list": _list, "show": _show, "check": _check, "schema": _schema}[options.verb](options)


def _list(options: argparse.Namespace) -> int:
    from exporter import packs

    catalogue = packs.load([Path(d) for d in options.signatures_dir or ()])
    width = max(map(len, catalogue.signatures))
    for signature in sorted(catalogue.signatures.values(), key=lambda s: (s.vendor, s.layer, s.id)):
        print(
            f"{signature.id:<{width}}  {signature.vendor:<6}  {signature.layer:<9}  {signature.severity:<8}  {signature.title}"
        )
    return 0


def _show(options: argparse.Namespace) -> int:
    import sys

    import yaml

    from exporter import packs

    catalogue = packs.load([Path(d) for d in options.signatures_dir or ()], whole=True)
    item = catalogue.signatures.get(options.id) or catalogue.root_causes.get(options.id)
    if item is None:
        near = [i for i in (*catalogue.signatures, *catalogue.root_causes) if options.id in i]
        hint = f"; did you mean {', '.join(near[:5])}?" if near else "; see `gpufault signatures list`"
        print(f"gpufault: no signature or root cause {options.id!r}{hint}", file=sys.stderr)
        return 2
    data = item.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110), end="")
    causes = [c.id for c in catalogue.causes_of(options.id)]
    if causes:
        print(f"# can be explained by: {', '.join(causes)}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from exporter import packs
    from exporter.core.check import broken_promises

    catalogue = packs.load([Path(given) for given in options.packs], whole=True)
    broken = list(broken_promises(catalogue))
    for promise in broken:
        print(promise)
    print(
        f"{len(catalogue.signatures)} signatures, {len(catalogue.root_causes)} root causes: {len(broken)} broken promises"
    )
    return 1 if broken else 0


def _schema(_options: argparse.Namespace) -> int:
    from exporter.core.signatures import Pack

    print(json.dumps(Pack.model_json_schema(by_alias=True), indent=2))
    return 0
