"""The part of the shipped rules that decides about some alerts: these, and the records that they read.

Texts of alerts are left out, and so is what makes a record whose values are given. Each alert fires as by the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import yaml

RECORD = re.compile(r"\b[a-z]\w*:\w+(?::\w+)?")
OTHER_GROUPS = ("gpufault-agents", "gpufault-fleet", "gpufault-logs")


def paging(text: str, given: Collection[str], tickets: Collection[str] = ()) -> dict[str, Any]:
    """The rules file of `text` without what no page reads; `given`: names of records that the caller has values of.

    tickets: alerts that do not page, which are kept in place of those that do.
    """

    def is_asked_for(rule: Mapping[str, Any]) -> bool:
        if tickets:
            return rule.get("alert") in tickets
        return bool(rule.get("labels", {}).get("severity") == "critical")

    groups = [group for group in yaml.safe_load(text)["groups"] if group["name"] not in OTHER_GROUPS]
    rules = [rule for group in groups for rule in group["rules"]]
    read: set[str] = set()
    todo = [rule for rule in rules if is_asked_for(rule)]
    while todo:
        new = set(RECORD.findall(todo.pop()["expr"])) - read - set(given)
        read |= new
        todo += [rule for rule in rules if rule.get("record") in new]
    kept = [
        {
            "name": group["name"],
            "rules": [
                {key: value for key, value in rule.items() if key != "annotations"}
                for rule in group["rules"]
                if rule.get("record") in read or is_asked_for(rule)
            ],
        }
        for group in groups
    ]
    return {"groups": [group for group in kept if group["rules"]]}
